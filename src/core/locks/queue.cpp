#include "core/locks/queue.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include "core/locks/number.hpp"

namespace cmi::locks {

namespace {

// Empty: neither; being filled: held; full: flag; being emptied: both. The count is the turn.
bool parse_cell(uint64_t raw, Word* word) {
  return Word::parse(raw, Kind::kCell, word) && word->held == (word->holder != 0);
}
// How often the cell was claimed by producers, or by consumers.
uint32_t claims(const Word& word, bool put) {
  const bool one_more = put ? word.held || word.flag : word.held && word.flag;
  return (word.count + (one_more ? 1 : 0)) % Word::kCounts;
}

size_t cell_bytes(uint32_t item_size) { return sizeof(uint64_t) + (size_t{item_size} + 7) / 8 * 8; }

uint64_t* cell_at(const QueueHandle& q, uint64_t place) {
  std::byte* const first = q.memory + sizeof(uint64_t);
  return reinterpret_cast<uint64_t*>(first + place % q.cells * cell_bytes(q.item_size));
}

// The first place that is not claimed; all before it are. Claims are made in order, so there is one
// cell at most where the number of claims goes down.
bool find_place(Words& words, const QueueHandle& q, bool put, uint64_t* place) {
  Word word;
  if (!parse_cell(words.load(cell_at(q, 0)), &word)) return false;
  const uint32_t first = claims(word, put);
  for (uint32_t i = 1; i < q.cells; ++i) {
    if (!parse_cell(words.load(cell_at(q, i)), &word)) return false;
    const uint32_t behind = Word::distance(claims(word, put), first);
    if (behind == 0 || behind > Word::kCounts / 2) continue;
    *place = uint64_t{(first - 1) % Word::kCounts} * q.cells + i;
    return true;
  }
  *place = uint64_t{first} * q.cells;
  return true;
}

// The next place that nobody of this side has claimed, from the caller's own note on.
bool next_place(Words& words, QueueHandle* q, bool put, uint64_t* raw, Word* word) {
  uint64_t* const note = put ? &q->put : &q->taken;
  for (uint32_t i = 0; i <= q->cells; ++i) {
    *raw = words.load(cell_at(*q, *note));
    if (!parse_cell(*raw, word)) return false;
    const auto turn = static_cast<uint32_t>(*note / q->cells % Word::kCounts);
    const uint32_t ahead = Word::distance(turn, claims(*word, put));
    if (ahead == 0) return true;
    if (ahead > Word::kCounts / 2) break;  // another queue lies here by now
    ++*note;
  }
  // A whole round behind, or ahead: where the others are by now is to be found.
  if (!find_place(words, *q, put, note)) return false;
  *raw = words.load(cell_at(*q, *note));
  return parse_cell(*raw, word);
}

// What a consumer was emptying that is gone is emptied by this one. A look asks about one consumer,
// since each question may be a message: about the first one from *from on, behind which the next
// look begins. kTimedOut: that one is there, or there is none.
Outcome take_over(Words& words, const QueueHandle& q, uint64_t* from, uint64_t** cell, Word* mine) {
  for (uint32_t i = 0; i < q.cells; ++i) {
    *cell = cell_at(q, *from + i);
    const uint64_t raw = words.load(*cell);
    Word word;
    if (!parse_cell(raw, &word)) return Outcome::kBad;
    if (!word.held || !word.flag) continue;
    *from += i + 1;
    if (words.gone(word.holder) <= 0) return Outcome::kTimedOut;
    *mine = {words.self(), word.count, true, true};
    return replace(words, *cell, raw, mine->raw(Kind::kCell));
  }
  return Outcome::kTimedOut;
}

// A cell whose holder is gone goes on without it. Nothing: this one has to look again.
std::optional<Outcome> go_on_without(Words& words, uint64_t* cell, uint64_t raw, const Word& word,
                                     bool put) {
  // Held by the other side, or by this one since the last turn.
  if (!word.held || words.gone(word.holder) <= 0) return std::nullopt;
  // What a consumer left is full in the next turn, as if this producer had put it in; where the
  // consumer of the last turn has left it, it is to be taken over.
  if (word.flag && !put) return std::nullopt;
  const Word next{0, word.count + 1, word.flag, false};
  const Outcome freed = replace(words, cell, raw, next.raw(Kind::kCell));
  if (freed == Outcome::kTimedOut || (freed == Outcome::kDone && word.flag)) return std::nullopt;
  return freed == Outcome::kDone ? Outcome::kOwnerDead : freed;
}

// Claims the next cell for this side. kOwnerDead: a producer that was filling it was gone, and it
// is free now.
Outcome claim(Words& words, QueueHandle* q, bool put, Wait& wait, uint64_t** cell, Word* mine) {
  bool first = true;
  Awaited next;
  // Anywhere, so that short calls come to each consumer as well.
  uint64_t ask_from = static_cast<uint64_t>(words.time() / kMicro) % q->cells;
  do {
    const bool waited = !std::exchange(first, false);
    uint64_t raw = 0;
    Word word;
    if (!next_place(words, q, put, &raw, &word)) return Outcome::kBad;
    uint64_t* const note = put ? &q->put : &q->taken;
    const auto turn = static_cast<uint32_t>(*note / q->cells % Word::kCounts);
    *cell = cell_at(*q, *note);
    next = {*cell, raw};
    if (!word.held && word.flag != put && word.count == turn) {  // empty, or full
      *mine = {words.self(), word.count, !put, true};
      const Outcome claimed = replace(words, *cell, raw, mine->raw(Kind::kCell));
      if (claimed == Outcome::kDone) ++*note;
      if (claimed != Outcome::kTimedOut) return claimed;
      continue;
    }
    if (!wait.due()) continue;
    if (!put && waited) {
      const Outcome taken = take_over(words, *q, &ask_from, cell, mine);
      if (taken != Outcome::kTimedOut) return taken;
    }
    if (const auto out = go_on_without(words, cell_at(*q, *note), raw, word, put)) return *out;
  } while (wait.again(next));
  return Outcome::kTimedOut;
}

Outcome finish(Words& words, uint64_t* cell, const Word& mine, const Word& next) {
  const Outcome done = replace_and_wake(words, cell, mine.raw(Kind::kCell), next.raw(Kind::kCell));
  return done == Outcome::kTimedOut ? Outcome::kNotOwner : done;
}

}  // namespace

size_t queue_bytes(uint32_t cells, uint32_t item_size) {
  if (cells == 0 || cells > kMostCells || item_size == 0 || item_size > kMostItemBytes) return 0;
  return sizeof(uint64_t) + cells * cell_bytes(item_size);
}

Outcome open_queue(Words& words, QueueHandle* queue, void* memory, uint32_t cells,
                   uint32_t item_size) {
  if (queue_bytes(cells, item_size) == 0) return Outcome::kBad;
  QueueHandle q{static_cast<std::byte*>(memory), cells, item_size, 0, 0};
  const uint64_t sizes = uint64_t{cells} * (kMostItemBytes + 1) + item_size;
  auto* const head = static_cast<uint64_t*>(memory);
  const Outcome made = make_number(words, head, Kind::kQueue, sizes);
  if (made != Outcome::kDone) return made;
  if (!find_place(words, q, true, &q.put) || !find_place(words, q, false, &q.taken)) {
    return Outcome::kBad;
  }
  *queue = q;
  return Outcome::kDone;
}

Outcome push_item(Words& words, QueueHandle* queue, const void* item, Nanos span) {
  Wait wait(words, span);
  uint64_t* cell = nullptr;
  Word mine;
  const Outcome claimed = claim(words, queue, true, wait, &cell, &mine);
  if (claimed != Outcome::kDone) return claimed;
  std::memcpy(cell + 1, item, queue->item_size);
  return finish(words, cell, mine, {0, mine.count, true, false});
}

Outcome pop_item(Words& words, QueueHandle* queue, void* item, Nanos span) {
  Wait wait(words, span);
  uint64_t* cell = nullptr;
  Word mine;
  const Outcome claimed = claim(words, queue, false, wait, &cell, &mine);
  if (claimed != Outcome::kDone) return claimed;
  std::memcpy(item, cell + 1, queue->item_size);
  return finish(words, cell, mine, {0, mine.count + 1, false, false});
}

}  // namespace cmi::locks

#include "core/locks/barrier.hpp"

#include "core/locks/number.hpp"

namespace cmi::locks {

namespace {

// A latch keeps one more than is left, so that its word is never one of zeros.
constexpr uint64_t kMostInLatch = Word::kNumbers - 2;

bool parse_party(uint64_t raw, Word* word) {
  return Word::parse(raw, Kind::kParty, word) && word->held == (word->holder != 0);
}

// Takes a word for a party that has none, and arrives by that. kTimedOut: all are taken.
Outcome join(Words& words, BarrierMemory* at, uint32_t parties, Party* party) {
  const Word mine{words.self(), 1, false, true};
  for (uint32_t i = 0; i < parties; ++i) {
    if (words.load(&at->parties[i]) != 0) continue;
    const Outcome joined = replace_and_wake(words, &at->parties[i], 0, mine.raw(Kind::kParty));
    if (joined == Outcome::kTimedOut) continue;
    if (joined == Outcome::kDone) *party = {i + 1, 1};
    return joined;
  }
  return Outcome::kTimedOut;
}

// *phase: how often the party has arrived.
Outcome arrive(Words& words, BarrierMemory* at, uint32_t parties, Party* party, uint32_t* phase) {
  if (party->place > parties) return Outcome::kBad;
  if (party->place == 0) {
    const Outcome joined = join(words, at, parties, party);
    if (joined != Outcome::kDone) return joined == Outcome::kTimedOut ? Outcome::kBad : joined;
  }
  uint64_t* const own = &at->parties[party->place - 1];
  const uint64_t raw = words.load(own);
  Word word;
  if (!parse_party(raw, &word)) return Outcome::kBad;
  if (word.flag || word.holder != words.self()) return Outcome::kNotOwner;
  *phase = word.count;
  if (party->arrived != 0) return Outcome::kDone;
  *phase = (word.count + 1) % Word::kCounts;
  const Word next{word.holder, *phase, false, true};
  const Outcome swapped = replace_and_wake(words, own, raw, next.raw(Kind::kParty));
  if (swapped == Outcome::kDone) party->arrived = 1;
  return swapped == Outcome::kTimedOut ? Outcome::kNotOwner : swapped;
}

// A party that is not here and gone is marked: the others go on without it. kFailed: nobody could
// be asked, or told.
Outcome drop_if_gone(Words& words, uint64_t* at, uint64_t raw, Word* word) {
  if (word->flag || !word->held || words.gone(word->holder) <= 0) return Outcome::kDone;
  word->flag = true;
  const Outcome o = replace_and_wake(words, at, raw, word->raw(Kind::kParty));
  word->flag = o == Outcome::kDone;
  return o == Outcome::kFailed ? o : Outcome::kDone;
}

}  // namespace

Outcome make_barrier(Words& words, BarrierMemory* at, uint32_t parties) {
  if (parties == 0 || parties > kPartyWords) return Outcome::kBad;
  return make_number(words, &at->head, Kind::kParties, parties);
}

Outcome pass_barrier(Words& words, BarrierMemory* at, Nanos span, Party* party) {
  Wait wait(words, span);
  uint32_t parties = 0, phase = 0;
  if (!read_number(words, &at->head, Kind::kParties, kPartyWords, &parties)) return Outcome::kBad;
  if (const Outcome o = arrive(words, at, parties, party, &phase); o != Outcome::kDone) return o;
  Awaited missing;  // the first of them
  do {
    const bool asking = wait.due();
    bool all = true, dropped = false;
    for (uint32_t i = 0; i < parties; ++i) {
      const uint64_t raw = words.load(&at->parties[i]);
      Word word;
      if (!parse_party(raw, &word)) return Outcome::kBad;
      const bool here = word.held && Word::distance(phase, word.count) < Word::kCounts / 2;
      if (!here && asking && drop_if_gone(words, &at->parties[i], raw, &word) != Outcome::kDone) {
        return Outcome::kFailed;
      }
      dropped = dropped || word.flag;
      if (all && !here && !word.flag) missing = {&at->parties[i], raw};
      all = all && (here || word.flag);
    }
    if (all) {
      party->arrived = 0;
      return dropped ? Outcome::kOwnerDead : Outcome::kDone;
    }
  } while (wait.again(missing));
  return Outcome::kTimedOut;
}

Outcome make_latch(Words& words, uint64_t* at, uint64_t count) {
  if (count > kMostInLatch) return Outcome::kBad;
  // One that was made may have been counted down since.
  if (words.load(at) != 0) return Outcome::kDone;
  const Outcome made = replace(words, at, 0, Word{count + 1, 0, false, true}.raw(Kind::kLatch));
  return made == Outcome::kTimedOut ? Outcome::kDone : made;
}

Outcome count_down(Words& words, uint64_t* at, uint64_t by, Nanos span) {
  Wait wait(words, span);
  do {
    const uint64_t raw = words.load(at);
    Word word;
    if (!Word::parse(raw, Kind::kLatch, &word) || !word.held || word.holder <= by) {
      return Outcome::kBad;
    }
    word.holder -= by;
    const Outcome swapped = replace(words, at, raw, word.raw(Kind::kLatch));
    if (swapped == Outcome::kDone && word.holder == 1) words.wake(at, Woken::kAll);
    if (swapped != Outcome::kTimedOut) return swapped;
  } while (wait.again());
  return Outcome::kTimedOut;
}

Outcome await_latch(Words& words, uint64_t* at, Nanos span) {
  Wait wait(words, span);
  Awaited latch{at, 0};
  do {
    latch.seen = words.load(at);
    Word word;
    if (!Word::parse(latch.seen, Kind::kLatch, &word) || !word.held || word.holder == 0) {
      return Outcome::kBad;
    }
    if (word.holder == 1) return Outcome::kDone;
  } while (wait.again(latch));
  return Outcome::kTimedOut;
}

}  // namespace cmi::locks

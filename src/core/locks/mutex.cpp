#include "core/locks/mutex.hpp"

#include <atomic>
#include <utility>

namespace cmi::locks {

namespace {

// False: no mutex has left this. Held is who has a holder, and nobody else.
bool parse_mutex(uint64_t raw, Kind kind, Word* word) {
  return Word::parse(raw, kind, word) && word->held == (word->holder != 0);
}

// Readers wait for a writer's word as well, and all of them may go on.
Woken woken_by(Kind kind) { return kind == Kind::kMutex ? Woken::kOne : Woken::kAll; }

// The owner's own change of the word.
Outcome change_own(Words& words, uint64_t* at, Kind kind, bool release) {
  const uint64_t raw = words.load(at);
  Word word;
  if (!parse_mutex(raw, kind, &word)) return Outcome::kBad;
  if (!word.held || word.holder != words.self()) return Outcome::kNotOwner;
  if (release) {
    word.held = false;
    word.holder = 0;
    word.count = 0;  // as every free one: who locks it next need not look first
  } else {
    word.flag = false;
  }
  const Outcome swapped = release ? replace_and_wake(words, at, raw, word.raw(kind), woken_by(kind))
                                  : replace(words, at, raw, word.raw(kind));
  return swapped == Outcome::kTimedOut ? Outcome::kNotOwner : swapped;
}

// Another one for each taking of this process, until they come round.
uint32_t new_count() {
  static std::atomic<uint32_t> taken{0};
  return taken.fetch_add(1, std::memory_order_relaxed) % Word::kCounts;
}

}  // namespace

Outcome lock_mutex(Words& words, uint64_t* at, Nanos span, Kind kind) {
  Wait wait(words, span);
  const uint64_t self = words.self();
  // Where a load costs as much as a swap, the swap says what stands there.
  bool guessed = !words.at_hand(at);
  uint64_t raw = guessed ? Word{}.raw(kind) : words.load(at);
  for (;;) {
    Word word;
    if (!parse_mutex(raw, kind, &word)) return Outcome::kBad;
    if (word.held && wait.gone(word.holder)) {
      word.held = false;
      word.flag = true;
    }
    if (!word.held) {
      uint64_t found = 0;
      const Word mine{self, new_count(), word.flag, true};
      if (words.swap(at, raw, mine.raw(kind), &found) != 0) return Outcome::kFailed;
      if (found == raw) return word.flag ? Outcome::kOwnerDead : Outcome::kDone;
      raw = found;
      if (std::exchange(guessed, false)) continue;
    }
    if (!wait.again({at, raw})) return Outcome::kTimedOut;
    raw = words.load(at);
  }
}

Outcome unlock_mutex(Words& words, uint64_t* at, Kind kind) {
  return change_own(words, at, kind, true);
}

Outcome repaired_mutex(Words& words, uint64_t* at, Kind kind) {
  return change_own(words, at, kind, false);
}

}  // namespace cmi::locks

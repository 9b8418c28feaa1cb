#include "core/locks/mutex.hpp"

namespace cmi::locks {

namespace {

// False: no mutex has left this. Held is who has a holder, and nobody else.
bool parse_mutex(uint64_t raw, Kind kind, Word* word) {
  return Word::parse(raw, kind, word) && word->held == (word->holder != 0);
}

// The owner's own change of the word.
Outcome change_own(Words& words, uint64_t* at, Kind kind, bool release) {
  const uint64_t raw = words.load(at);
  Word word;
  if (!parse_mutex(raw, kind, &word)) return Outcome::kBad;
  if (!word.held || word.holder != words.self()) return Outcome::kNotOwner;
  if (release) {
    word.held = false;
    word.holder = 0;
  } else {
    word.flag = false;
  }
  const Outcome swapped = replace(words, at, raw, word.raw(kind));
  return swapped == Outcome::kTimedOut ? Outcome::kNotOwner : swapped;
}

}  // namespace

Outcome lock_mutex(Words& words, uint64_t* at, Nanos span, Kind kind) {
  Wait wait(words, span);
  const uint64_t self = words.self();
  do {
    const uint64_t raw = words.load(at);
    Word word;
    if (!parse_mutex(raw, kind, &word)) return Outcome::kBad;
    if (word.held) {
      if (!wait.gone(word.holder)) continue;
      word.flag = true;
    }
    const Word mine{self, word.count + 1, word.flag, true};
    const Outcome swapped = replace(words, at, raw, mine.raw(kind));
    if (swapped == Outcome::kFailed) return swapped;
    if (swapped == Outcome::kDone) return word.flag ? Outcome::kOwnerDead : Outcome::kDone;
  } while (wait.again());
  return Outcome::kTimedOut;
}

Outcome unlock_mutex(Words& words, uint64_t* at, Kind kind) {
  return change_own(words, at, kind, true);
}

Outcome repaired_mutex(Words& words, uint64_t* at, Kind kind) {
  return change_own(words, at, kind, false);
}

}  // namespace cmi::locks

#include "core/locks/shared_mutex.hpp"

#include "core/locks/mutex.hpp"

namespace cmi::locks {

namespace {

constexpr int kTries = 1000;  // of a change that only threads of the own process compete with

// False: no reader has left this.
bool parse_readers(uint64_t raw, Word* word) {
  if (!Word::parse(raw, Kind::kReaders, word)) return false;
  const bool some = word->holder != 0;
  return word->held == some && (word->count != 0) == some && !word->flag;
}

uint64_t readers(uint64_t holder, uint32_t count) {
  if (count == 0) return Word{}.raw(Kind::kReaders);
  return Word{holder, count, false, true}.raw(Kind::kReaders);
}

// One reader more of this context. kTimedOut: there is no word for it now.
Outcome enter(Words& words, SharedMutexMemory* at, uint64_t self) {
  for (int tries = 0; tries < kTries; ++tries) {
    uint64_t* place = nullptr;
    uint64_t raw = 0, next = 0;
    for (uint64_t& reader : at->readers) {
      const uint64_t seen = words.load(&reader);
      Word word;
      if (!parse_readers(seen, &word)) return Outcome::kBad;
      const bool own = word.holder == self && word.count + 1 < Word::kCounts;
      if (!own && (word.held || place != nullptr)) continue;
      place = &reader;
      raw = seen;
      next = readers(self, word.count + 1);
      if (own) break;
    }
    if (place == nullptr) return Outcome::kTimedOut;
    const Outcome swapped = replace(words, place, raw, next);
    if (swapped != Outcome::kTimedOut) return swapped;
  }
  return Outcome::kTimedOut;
}

// *left: a reader, if there is one. Those that are gone are taken out, when it is time to ask.
Outcome look_for_readers(Words& words, SharedMutexMemory* at, Wait& wait, Awaited* left) {
  *left = {};
  bool asking = false, asked = false;
  for (uint64_t& reader : at->readers) {
    const uint64_t raw = words.load(&reader);
    Word word;
    if (!parse_readers(raw, &word)) return Outcome::kBad;
    if (!word.held) continue;
    if (!asked) asking = wait.due();
    asked = true;
    if (asking && words.gone(word.holder) > 0) {
      const Outcome swapped = replace(words, &reader, raw, readers(0, 0));
      if (swapped == Outcome::kFailed) return swapped;
      if (swapped == Outcome::kDone) continue;
    }
    *left = {&reader, raw};
  }
  return Outcome::kDone;
}

}  // namespace

Outcome lock_exclusive(Words& words, SharedMutexMemory* at, Nanos span) {
  const Nanos end = words.time() + span;
  const Outcome taken = lock_mutex(words, &at->exclusive, span, Kind::kExclusive);
  if (taken != Outcome::kDone && taken != Outcome::kOwnerDead) return taken;
  Wait wait(words, end - words.time());
  Outcome why = Outcome::kTimedOut;
  Awaited reader;
  do {
    const Outcome looked = look_for_readers(words, at, wait, &reader);
    if (looked != Outcome::kDone) {
      why = looked;
      break;
    }
    if (reader.at == nullptr) return taken;
  } while (wait.again(reader));
  const Outcome left = unlock_exclusive(words, at);
  return left == Outcome::kFailed ? left : why;
}

Outcome unlock_exclusive(Words& words, SharedMutexMemory* at) {
  return unlock_mutex(words, &at->exclusive, Kind::kExclusive);
}

Outcome repaired_exclusive(Words& words, SharedMutexMemory* at) {
  return repaired_mutex(words, &at->exclusive, Kind::kExclusive);
}

Outcome lock_shared(Words& words, SharedMutexMemory* at, Nanos span) {
  Wait wait(words, span);
  const uint64_t self = words.self();
  Awaited held;
  do {
    Word writer;
    const uint64_t raw = words.load(&at->exclusive);
    held = {};
    if (!Word::parse(raw, Kind::kExclusive, &writer)) return Outcome::kBad;
    if (writer.held) {
      held = {&at->exclusive, raw};
      if (wait.gone(writer.holder)) return Outcome::kOwnerDead;
      continue;
    }
    if (writer.flag) return Outcome::kOwnerDead;
    const Outcome entered = enter(words, at, self);
    if (entered == Outcome::kTimedOut) continue;
    if (entered != Outcome::kDone) return entered;
    if (!Word::parse(words.load(&at->exclusive), Kind::kExclusive, &writer)) return Outcome::kBad;
    if (!writer.held && !writer.flag) return Outcome::kDone;
    const Outcome left = unlock_shared(words, at);  // a writer was quicker
    if (left != Outcome::kDone) return left;
  } while (wait.again(held));
  return Outcome::kTimedOut;
}

Outcome unlock_shared(Words& words, SharedMutexMemory* at) {
  const uint64_t self = words.self();
  for (int tries = 0; tries < kTries; ++tries) {
    uint64_t* place = nullptr;
    uint64_t raw = 0;
    Word word;
    for (uint64_t& reader : at->readers) {
      raw = words.load(&reader);
      if (!parse_readers(raw, &word)) return Outcome::kBad;
      if (word.held && word.holder == self) {
        place = &reader;
        break;
      }
    }
    if (place == nullptr) return Outcome::kNotOwner;
    const uint64_t fewer = readers(self, word.count - 1);
    const Outcome swapped = replace_and_wake(words, place, raw, fewer);
    if (swapped != Outcome::kTimedOut) return swapped;
  }
  return Outcome::kBad;  // nobody changes one word so often
}

}  // namespace cmi::locks

#include "core/locks/semaphore.hpp"

#include "core/locks/number.hpp"

namespace cmi::locks {

Outcome make_semaphore(Words& words, SemaphoreMemory* at, uint32_t permits) {
  if (permits == 0 || permits > kPermitWords) return Outcome::kBad;
  return make_number(words, &at->head, Kind::kPermits, permits);
}

namespace {
// kTimedOut: it is held, or another was faster. `*raw`: what stood there.
Outcome take_permit(Words& words, uint64_t* permit, bool asking, uint64_t* raw) {
  *raw = words.load(permit);
  Word word;
  if (!Word::parse(*raw, Kind::kPermit, &word) || word.held != (word.holder != 0)) {
    return Outcome::kBad;
  }
  const bool dead = word.held && asking && words.gone(word.holder) > 0;
  if (word.held && !dead) return Outcome::kTimedOut;
  const Word mine{words.self(), word.count + 1, false, true};
  const Outcome swapped = replace(words, permit, *raw, mine.raw(Kind::kPermit));
  return swapped == Outcome::kDone && dead ? Outcome::kOwnerDead : swapped;
}
}  // namespace

Outcome acquire_permit(Words& words, SemaphoreMemory* at, Nanos span) {
  Wait wait(words, span);
  const uint64_t self = words.self();
  uint32_t permits = 0;
  if (!read_number(words, &at->head, Kind::kPermits, kPermitWords, &permits)) return Outcome::kBad;
  Awaited held;  // the one that this context would take first
  do {
    const bool asking = wait.due();
    for (uint32_t i = 0; i < permits; ++i) {
      // Contexts begin at different places.
      uint64_t* const permit = &at->permits[(self + i) % permits];
      uint64_t raw = 0;
      const Outcome taken = take_permit(words, permit, asking, &raw);
      if (taken != Outcome::kTimedOut) return taken;
      if (i == 0) held = {permit, raw};
    }
  } while (wait.again(held));
  return Outcome::kTimedOut;
}

Outcome release_permit(Words& words, SemaphoreMemory* at) {
  const uint64_t self = words.self();
  uint32_t permits = 0;
  if (!read_number(words, &at->head, Kind::kPermits, kPermitWords, &permits)) return Outcome::kBad;
  for (uint32_t i = 0; i < permits; ++i) {
    uint64_t* const permit = &at->permits[(self + i) % permits];
    const uint64_t raw = words.load(permit);
    Word word;
    if (!Word::parse(raw, Kind::kPermit, &word)) return Outcome::kBad;
    if (!word.held || word.holder != self) continue;
    const Word free{0, word.count, false, false};
    const Outcome swapped = replace_and_wake(words, permit, raw, free.raw(Kind::kPermit));
    // Another thread of this context may have released it: the next one then.
    if (swapped != Outcome::kTimedOut) return swapped;
  }
  return Outcome::kNotOwner;
}

}  // namespace cmi::locks

// Up to 63 permits, each a word that its holder is written into: a permit whose holder is gone is
// taken over.
#pragma once

#include <cstddef>

#include "core/locks/words.hpp"

namespace cmi::locks {

inline constexpr size_t kPermitWords = 63;

struct SemaphoreMemory {
  uint64_t head;  // its number: how many permits
  uint64_t permits[kPermitWords];
};

// The first to come makes it. kBad: it was made with another number of permits, or there is none
// such.
Outcome make_semaphore(Words& words, SemaphoreMemory* at, uint32_t permits);
// kDone; kOwnerDead: taken from a holder that is gone; kTimedOut, kFailed, kBad.
Outcome acquire_permit(Words& words, SemaphoreMemory* at, Nanos span);
// One of this context's permits. kNotOwner: it has none.
Outcome release_permit(Words& words, SemaphoreMemory* at);

}  // namespace cmi::locks

// A mutex in one word. Held: holder, `held`. `flag`: an owner has died, and nobody has repaired
// since. Each taking of a process has another count, so that an owner that was declared dead and
// lives on cannot release what a later taking of its own process holds. A free word has none, so
// that it can be taken by one swap that looks at nothing before.
#pragma once

#include "core/locks/words.hpp"

namespace cmi::locks {

// kDone; kOwnerDead: taken, and what it guards may be half changed; kTimedOut, kFailed, kBad.
Outcome lock_mutex(Words& words, uint64_t* at, Nanos span, Kind kind = Kind::kMutex);
// kDone, kNotOwner, kFailed, kBad. A flag that is set stays.
Outcome unlock_mutex(Words& words, uint64_t* at, Kind kind = Kind::kMutex);
// By the owner: what it guards is whole again. As unlock_mutex().
Outcome repaired_mutex(Words& words, uint64_t* at, Kind kind = Kind::kMutex);

}  // namespace cmi::locks

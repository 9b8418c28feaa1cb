// A mutex for one writer or many readers: a word as of a mutex for the writer, and one for each
// context that reads, with the number of its readers. A reader enters its word first and looks at
// the writer's then, a writer the other way round: since a swap is seen everywhere when it returns,
// one of two sees the other.
#pragma once

#include <cstddef>

#include "core/locks/words.hpp"

namespace cmi::locks {

inline constexpr size_t kReaderWords = 63;

struct SharedMutexMemory {
  uint64_t exclusive;
  uint64_t readers[kReaderWords];
};

// As of a mutex; readers that are gone are passed over, since they have changed nothing.
Outcome lock_exclusive(Words& words, SharedMutexMemory* at, Nanos span);
Outcome unlock_exclusive(Words& words, SharedMutexMemory* at);
Outcome repaired_exclusive(Words& words, SharedMutexMemory* at);
// kOwnerDead: not taken. A writer has died, and whoever takes it exclusively has to repair.
Outcome lock_shared(Words& words, SharedMutexMemory* at, Nanos span);
Outcome unlock_shared(Words& words, SharedMutexMemory* at);

}  // namespace cmi::locks

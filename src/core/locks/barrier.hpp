// A barrier of up to 63 parties: each has a word with its holder and how often it has arrived. A
// party that is gone before it arrives is dropped, and everybody hears of it.
// And a latch: a word that is counted down to 0, once.
#pragma once

#include <cstddef>

#include "core/locks/words.hpp"

namespace cmi::locks {

inline constexpr size_t kPartyWords = 63;

struct BarrierMemory {
  uint64_t head;  // its number: how many parties
  uint64_t parties[kPartyWords];
};

struct Party {       // in the caller's own memory, zeros at first; of one thread
  uint32_t place;    // its word, counted from 1; 0: it has none yet
  uint32_t arrived;  // not 0: it has arrived, and not passed yet
};

Outcome make_barrier(Words& words, BarrierMemory* at, uint32_t parties);
// Arrives, once, and waits until all have. kTimedOut: call again, to wait on. kOwnerDead: passed,
// and so from now on: some party was dropped. kNotOwner: this one was.
Outcome pass_barrier(Words& words, BarrierMemory* at, Nanos span, Party* party);

Outcome make_latch(Words& words, uint64_t* at, uint64_t count);
// kBad: there is not so much left.
Outcome count_down(Words& words, uint64_t* at, uint64_t by, Nanos span);
Outcome await_latch(Words& words, uint64_t* at, Nanos span);

}  // namespace cmi::locks

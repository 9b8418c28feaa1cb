// A lock that is taken in the order of coming. `tail` has the ticket that was drawn last and who
// drew it, `turn` how many tickets are done; ticket t has the lock when t - 1 are done. Who draws
// the next ticket first writes the one before into `places`, so that a ticket always has a name,
// whatever dies between two swaps. Tickets wrap.
#pragma once

#include <cstddef>

#include "core/locks/words.hpp"

namespace cmi::locks {

inline constexpr uint32_t kTicketPlaces = 64;  // waiting at once; more wait for a ticket

struct TicketLockMemory {
  uint64_t tail;
  uint64_t turn;
  uint64_t places[kTicketPlaces];
};

// As of a mutex. *ticket is for unlock_ticket(). A call that gives up leaves its place to those
// behind it. Without time it draws a ticket only where nobody has the lock.
Outcome lock_ticket(Words& words, TicketLockMemory* at, Nanos span, uint32_t* ticket);
Outcome unlock_ticket(Words& words, TicketLockMemory* at, uint32_t ticket);
Outcome repaired_ticket(Words& words, TicketLockMemory* at, uint32_t ticket);

}  // namespace cmi::locks

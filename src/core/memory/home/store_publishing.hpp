// Publishing what processes of the home's node have stored: by the segment's owner what it finds,
// by other processes what they report to the owner.
#pragma once

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

// At the owner. `named`: pages to publish whether or not they were stored to; null: none. Null:
// nobody has to hear of anything.
RoundPtr scan_and_publish(HomeCore& home, Segment& s, const PageSet* named = nullptr)
    CMI_REQUIRES(home.mu);
// Of processes that have ended. A scan finds them as well, but there is none while nobody holds a
// page, and each keeps what is left of its process.
void drop_dead_views(HomeCore& home, Segment& s) CMI_REQUIRES(home.mu);

// Elsewhere. False: it did not all fit into the owner's queue.
bool send_stored(HomeCore& home, Segment& s) CMI_REQUIRES(home.mu);
// The same until the owner has been sent all of it. False: not by the deadline.
bool notify_stored(HomeCore& home, int32_t id, Deadline deadline) CMI_EXCLUDES(home.mu);

}  // namespace cmi::memory

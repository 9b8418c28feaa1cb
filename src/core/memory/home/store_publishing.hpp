// Publishing what processes of the home's node have stored: by the segment's owner what it finds,
// by other processes what they report to the owner.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/page/page.hpp"

namespace cmi::memory {

// What the processes of the node have stored to a segment, at its owner.
//
// A scan of many pages is cut into parts. Between two parts a thread that waits for the lock of the
// views gets it. Rule 15 holds for all of them together: what a part has found is taken from the
// kernel, and another barrier that finds nothing any more waits for this scan's round.
struct Scan {
  // Pages of one part, 32 MiB, of all views together.
  static constexpr uint32_t kPart = 8192;
  // The same of a part that is protected for the first time.
  static constexpr uint32_t kArmed = 4 * kRegionPages;
  // Pages to publish whether or not they were stored to; null: none.
  const PageSet* named = nullptr;
  // By the service thread: between parts it serves what has come.
  bool serves = false;
};
// Under `views_mu` of the segment, which is released and taken again between parts: the segment may
// have left the table when this returns. Null: nobody has to hear of anything.
RoundPtr scan_and_publish(HomeCore& home, Segment& s, const Scan& scan, Finished* done)
    CMI_EXCLUDES(home.mu);
// One part of a scan that goes on later, published by itself: what is stored between two parts is
// found by the next scan. Under `views_mu`.
struct ScannedPart {
  uint32_t pages = 0;       // that were looked at
  uint32_t next = kNoPage;  // where to go on; kNoPage: this was the last part
  bool found = false;       // something was stored
};
ScannedPart scan_part(HomeCore& home, Segment& s, uint32_t from, uint32_t most)
    CMI_EXCLUDES(home.mu);
// A view of another process, before it is scanned for the first time: nobody has stored through it.
// Under `views_mu`, which is released and taken again between parts; the service thread serves
// importers meanwhile. False: the segment has left the table.
bool arm_foreign(HomeCore& home, Segment& s, const ForeignView& v) CMI_EXCLUDES(home.mu);
// Of processes that have ended. A scan finds them as well, but there is none while nobody holds a
// page, and each keeps what is left of its process. Under `views_mu`.
void drop_dead_views(HomeCore& home, Segment& s) CMI_EXCLUDES(home.mu);

// Elsewhere, under `views_mu`. False: it did not all fit into the owner's queue.
bool send_stored(HomeCore& home, Segment& s);
// The same until the owner has been sent all of it. False: not by the deadline.
bool notify_stored(HomeCore& home, int32_t id, Deadline deadline) CMI_EXCLUDES(home.mu);

}  // namespace cmi::memory

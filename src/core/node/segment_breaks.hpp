// The breaks of extensible segments, and the memory that they take.
// Invariant: what lies below the break of a segment that reserves memory is allocated, and counts
// against mem_max or its reservation.
// Threads: any; calls take the exclusive lock. Nobody else moves the break of the same segment
// meanwhile.
#pragma once

#include <functional>

#include "core/base/status.hpp"
#include "core/node/charges.hpp"
#include "core/node/seat.hpp"
#include "core/node/segment_marks.hpp"

namespace cmi::node {

class SegmentBreaks {
 public:
  SegmentBreaks(const Seat& seat, SegmentMarks& marks) : seat_(seat), marks_(marks) {}

  // Moves the end of an extensible segment's file, `fd`, up. Owner only (kPerm). Really allocated
  // if `reserve` (kNoMem, and nothing has changed), from that reservation.
  Status raise(int32_t id, int fd, uint64_t to, bool reserve, uint64_t reservation = 0);
  // Down, in two steps, so that what can fail for others' sake (kReconfig: the lock was not had)
  // comes before anybody has given up anything: from lower() on nobody uses what lies behind `to`
  // in while_steady(); cut() frees it, and gives it back to where it came from, if need be when the
  // lock can be had.
  Status lower(int32_t id, uint64_t to);
  Status cut(int32_t id, int fd, uint64_t to);
  // The break of a proxy, as its home sent it; it counts as much, or as its cache may take.
  Status store(int32_t id, uint64_t to, uint64_t cache = UINT64_MAX);
  // From now on the cache of this proxy may take so many bytes, and counts no more than that.
  // Owner only (kPerm). kNoMem: they do not fit, and nothing has changed.
  Status charge_cache(int32_t id, uint64_t cache);
  // Whether so much more may count for a proxy with these flags of its exporter's: kNoMem.
  Status has_room(uint64_t bytes, int32_t flags = 0);
  // Runs `use` with the segment's break, or more where it has none, while none of the node is
  // lowered. kReconfig: it did not run.
  Status while_steady(int32_t id, const std::function<void(uint64_t brk)>& use);

 private:
  Status try_raise(int32_t id, int fd, uint64_t to, bool reserve, uint64_t reservation);
  Status has_room_locked(const Exclusive& lock, uint64_t bytes, Outside outside);
  // Of an extensible segment of ours.
  template <class Change>
  Status change(int32_t id, uint64_t to, Change change);

  const Seat& seat_;
  SegmentMarks& marks_;
};

}  // namespace cmi::node

#include "core/node/segment_breaks.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/node/charges.hpp"
#include "core/node/other_nodes.hpp"
#include "core/node/reaper.hpp"
#include "core/node/reservation_slots.hpp"

namespace cmi::node {

namespace {
constexpr Nanos kShortly = 2 * kMilli;  // with a lock held, or on the service thread
}  // namespace

// Only the owner changes these fields, and with it its segments go: what a death leaves is gone
// with the next reaper.
template <class Change>
Status SegmentBreaks::change(int32_t id, uint64_t to, Change change) {
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found || found->word.kind != SegmentKind::kHome || found->shm->brk == kNoBreak ||
      to > found->shm->size) {
    return Status::kInval;
  }
  if (!seat_.owns(*found)) return Status::kPerm;
  return change(lock, *found->shm);
}

Status SegmentBreaks::raise(int32_t id, int fd, uint64_t to, bool reserve, uint64_t reservation) {
  return after_the_dead(seat_, [&] { return try_raise(id, fd, to, reserve, reservation); });
}

Status SegmentBreaks::try_raise(int32_t id, int fd, uint64_t to, bool reserve,
                                uint64_t reservation) {
  Registry& r = *seat_.registry;
  Outside outside;
  if (reserve) outside = look_outside(r, seat_.config);
  uint64_t from = 0;
  const auto locked = [&](auto&& what) { return change(id, to, what); };
  const auto move = [&](const Exclusive& lock, Segment_shm& s) {
    if (ftruncate(fd, static_cast<off_t>(to)) != 0) return Status::kNoMem;
    fault_point("node.break.moved");
    s.brk = to;
    charge(s, reserve ? to : 0, 0);
    fault_point("node.break.stored");
    settle_reservations_locked(r, lock);
    return Status::kOk;
  };
  Status status = locked([&](const Exclusive& lock, Segment_shm& s) {
    marks_.settle_locked(lock);  // what the last cut gave back, before more is taken
    from = s.brk;
    if (!reserve) return move(lock, s);
    if (reservation != 0 && !of_this_user(r)) return Status::kPerm;
    const uint64_t key = next_portion(s, reservation);
    reservation = reservation_locked(r, key) != nullptr ? key : 0;
    // More than `from` is charged where a growth failed, and could not say so.
    const uint64_t more = to - std::min(to, std::max(from, s.charged));
    const auto lacks = [&] {
      return lacks_room_locked(r, seat_.config, outside, more, reservation);
    };
    const char* why = lacks();
    if (why != nullptr) {
      reap_locked(r, lock);
      look_again(seat_.config, &outside);
      why = lacks();
    }
    if (why != nullptr) {
      note(kFacSeg, kWarn, "node: no room for a break of {} bytes: {}", to, why);
      return because(Status::kNoMem, why);
    }
    charge(s, to, key);
    fault_point("node.break.charged");
    return Status::kOk;
  });
  if (!ok(status) || !reserve) return status;
  // Behind the file's end, where nobody sees it before all of it is there.
  status = allocate(r, fd, from, to, reservation);
  fault_point("node.break.allocated");
  if (ok(status)) status = locked(move);
  if (ok(status)) return status;
  fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
            static_cast<off_t>(to - from));
  (void)locked([&](const Exclusive& lock, Segment_shm& s) {
    charge(s, from, 0);
    settle_reservations_locked(r, lock);
    return Status::kOk;
  });
  return status;
}

Status SegmentBreaks::lower(int32_t id, uint64_t to) {
  return change(id, to, [&](const Exclusive&, Segment_shm& s) {
    s.brk = std::min(s.brk, to);
    fault_point("node.break.lowered");
    return Status::kOk;
  });
}

// A process that held the lock before the break was lowered has given it back, and one that takes
// it now sees the lower break: so the file's end can move without the lock.
Status SegmentBreaks::cut(int32_t id, int fd, uint64_t to) {
  if (ftruncate(fd, static_cast<off_t>(to)) != 0) return Status::kNoMem;
  fault_point("node.break.cut");
  marks_.note_break(id, to);
  if (!marks_.settle(kLockWait)) return Status::kOk;  // by the thread that has the lock next
  // What was freed goes back to the reservation: that may take long, and other threads settle what
  // was noted that must not wait.
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (lock) settle_reservations_locked(*seat_.registry, lock);
  return Status::kOk;
}

Status SegmentBreaks::store(int32_t id, uint64_t to, uint64_t cache) {
  marks_.note_break(id, to, cache);
  return marks_.settle(kShortly) ? Status::kOk : Status::kReconfig;
}

Status SegmentBreaks::has_room(uint64_t bytes, int32_t flags) {
  return after_the_dead(seat_, [&] {
    Registry& r = *seat_.registry;
    Outside outside;
    if (of_machine(SegmentKind::kProxy, flags)) outside = look_outside(r, seat_.config);
    Exclusive lock(r.lock(), Deadline::in(kLockWait));
    if (!lock) return Status::kReconfig;
    return has_room_locked(lock, bytes, outside);
  });
}

Status SegmentBreaks::has_room_locked(const Exclusive& lock, uint64_t bytes, Outside outside) {
  Registry& r = *seat_.registry;
  if (lacks_room_locked(r, seat_.config, outside, bytes) == nullptr) return Status::kOk;
  reap_locked(r, lock);
  look_again(seat_.config, &outside);
  const char* why = lacks_room_locked(r, seat_.config, outside, bytes);
  return why == nullptr ? Status::kOk : because(Status::kNoMem, why);
}

Status SegmentBreaks::charge_cache(int32_t id, uint64_t cache) {
  return after_the_dead(seat_, [&] {
    const Outside outside = look_outside(*seat_.registry, seat_.config);
    Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
    if (!lock) return Status::kReconfig;
    marks_.settle_locked(lock);  // the break that is known by now
    auto found = find_locked(*seat_.registry, lock, id);
    if (!found || found->word.kind != SegmentKind::kProxy) return Status::kInval;
    if (!seat_.owns(*found)) return Status::kPerm;
    Segment_shm& s = *found->shm;
    const uint64_t bytes = std::min({s.size, s.brk, cache});
    if (bytes > s.charged) {
      const bool machine_too = of_machine(found->word.kind, s.flags);
      const Status room =
          has_room_locked(lock, bytes - s.charged, machine_too ? outside : Outside{});
      if (!ok(room)) return room;
    }
    charge(s, bytes, 0);
    return Status::kOk;
  });
}

Status SegmentBreaks::while_steady(int32_t id, const std::function<void(uint64_t)>& use) {
  Exclusive lock(seat_.registry->lock(), Deadline::in(kShortly));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found) return Status::kInval;
  use(found->shm->brk);
  return Status::kOk;
}

}  // namespace cmi::node

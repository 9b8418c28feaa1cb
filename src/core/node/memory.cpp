// What counts against mem_max, and the breaks of extensible segments. Threads: any.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/node/node_impl.hpp"
#include "core/node/reaper.hpp"

namespace cmi::node {

namespace {
constexpr Nanos kShortly = 2 * kMilli;  // with a lock held, or on the service thread
}  // namespace

uint64_t charged_locked(Registry& r) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < r.segments_end(); ++i) {
    const Segment_shm& s = r.shm()->segments[i];
    if (!SegmentWord::unpack(s.state.load(std::memory_order_acquire), i)) continue;
    if (__builtin_add_overflow(sum, s.charged, &sum)) return UINT64_MAX;
  }
  for (Reservation_shm& rsv : r.shm()->reservations) {
    const uint64_t key = rsv.key.load(std::memory_order_acquire);
    const uint64_t used = key != 0 ? used_locked(r, key) : 0;
    if (key == 0 || used >= rsv.size) continue;
    if (__builtin_add_overflow(sum, rsv.size - used, &sum)) return UINT64_MAX;
  }
  return sum;
}

bool fits_locked(Registry& r, uint64_t charged, uint64_t max, uint64_t reservation) {
  if (Reservation_shm* rsv = reservation_locked(r, reservation); rsv != nullptr) {
    const uint64_t used = used_locked(r, reservation);
    charged -= std::min(charged, rsv->size - std::min(rsv->size, used));
    if (charged == 0) return true;
  }
  const uint64_t in_use = charged_locked(r);
  return in_use <= max && charged <= max - in_use;
}

// Step by step under the lock, so that no other member of the node takes what a reservation lets go
// of for this one, and nobody waits for gigabytes.
Status Node::Impl::allocate(int fd, uint64_t from, uint64_t to, uint64_t reservation) {
  const uint64_t step = reservation != 0 ? uint64_t{4} << 20 : uint64_t{64} << 20;
  for (uint64_t at = from; at < to; at += step) {
    const uint64_t n = std::min(step, to - at);
    Exclusive lock(registry->lock(), Deadline::in(kLockWait));
    if (!lock) return Status::kReconfig;
    if (reservation != 0) release_locked(*registry, lock, reservation, n);
    fault_point("node.allocate.released");
    if (Status s = allocate_file(fd, at, at + n); !ok(s)) return s;
    fault_point("node.allocate.taken");
  }
  return Status::kOk;
}

uint64_t Node::memory_in_use() {
  Exclusive lock(impl_->registry->lock(), Deadline::in(kLockWait));
  if (lock) reap_locked(*impl_->registry, lock);  // what the dead have used is used no more
  // Without the lock the sum may mix old and new: still the best answer there is.
  return charged_locked(*impl_->registry);
}

// Only the owner changes these fields, and with it its segments go: what a death leaves is gone
// with the next reaper.
template <class Change>
Status Node::Impl::change_break(int32_t id, uint64_t to, Change change) {
  Exclusive lock(registry->lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(lock, id);
  if (!found || found->word.kind != SegmentKind::kHome || found->shm->brk == kNoBreak ||
      to > found->shm->size) {
    return Status::kInval;
  }
  if (!owned_by_self(*found)) return Status::kPerm;
  return change(lock, *found->shm);
}

Status Node::raise_break(int32_t id, int fd, uint64_t to, bool reserve, uint64_t reservation) {
  Registry& r = *impl_->registry;
  uint64_t from = 0;
  const auto locked = [&](auto&& change) { return impl_->change_break(id, to, change); };
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
    impl_->settle_marks_locked(lock);  // what the last cut gave back, before more is taken
    from = s.brk;
    if (!reserve) return move(lock, s);
    if (reservation != 0 && !of_this_user(r)) return Status::kPerm;
    const uint64_t key = next_portion(s, reservation);
    reservation = reservation_locked(r, key) != nullptr ? key : 0;
    // More than `from` is charged where a growth failed, and could not say so.
    const uint64_t more = to - std::min(to, std::max(from, s.charged));
    if (!fits_locked(r, more, impl_->config.mem_max, reservation)) {
      reap_locked(r, lock);
      if (!fits_locked(r, more, impl_->config.mem_max, reservation)) {
        note(kFacSeg, kWarn, "node: no room for a break of {} bytes: the limit is reached", to);
        return Status::kNoMem;
      }
    }
    charge(s, to, key);
    fault_point("node.break.charged");
    return Status::kOk;
  });
  if (!ok(status) || !reserve) return status;
  // Behind the file's end, where nobody sees it before all of it is there.
  status = impl_->allocate(fd, from, to, reservation);
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

Status Node::lower_break(int32_t id, uint64_t to) {
  return impl_->change_break(id, to, [&](const Exclusive&, Segment_shm& s) {
    s.brk = std::min(s.brk, to);
    fault_point("node.break.lowered");
    return Status::kOk;
  });
}

// A process that held the lock before the break was lowered has given it back, and one that takes
// it now sees the lower break: so the file's end can move without the lock.
Status Node::cut(int32_t id, int fd, uint64_t to) {
  if (ftruncate(fd, static_cast<off_t>(to)) != 0) return Status::kNoMem;
  fault_point("node.break.cut");
  if (!ok(note_break(id, to, kLockWait))) return Status::kOk;  // by whoever has the lock next
  // What was freed goes back to the reservation: that may take long, and other threads settle what
  // was noted that must not wait.
  Exclusive lock(impl_->registry->lock(), Deadline::in(kLockWait));
  if (lock) settle_reservations_locked(*impl_->registry, lock);
  return Status::kOk;
}

Status Node::store_break(int32_t id, uint64_t to) { return note_break(id, to, kShortly); }

Status Node::note_break(int32_t id, uint64_t to, Nanos wait) {
  {
    Guard g(impl_->later_mu);
    impl_->later_marks.push_back({id, 0, 0, to});
    impl_->marks_left.store(true, std::memory_order_release);
  }
  return settle_marks(wait) ? Status::kOk : Status::kReconfig;
}

void Node::Impl::store_break_locked(const Exclusive& lock, int32_t id, uint64_t to) {
  auto found = find_locked(lock, id);
  if (!found || found->shm->brk == kNoBreak || !owned_by_self(*found)) return;
  if (found->word.kind == SegmentKind::kHome) {
    charge(*found->shm, std::min(found->shm->charged, to), 0);  // the memory is free
    fault_point("node.break.freed");
    return;
  }
  found->shm->brk = to;
  // What its cache may take. More than fits counts, too: it is the home that decides.
  charge(*found->shm, to, 0);
}

Status Node::has_room(uint64_t bytes) {
  Registry& r = *impl_->registry;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  if (!fits_locked(r, bytes, impl_->config.mem_max)) reap_locked(r, lock);
  return fits_locked(r, bytes, impl_->config.mem_max) ? Status::kOk : Status::kNoMem;
}

Status Node::while_steady(int32_t id, const std::function<void(uint64_t)>& use) {
  Exclusive lock(impl_->registry->lock(), Deadline::in(kShortly));
  if (!lock) return Status::kReconfig;
  auto found = impl_->find_locked(lock, id);
  if (!found) return Status::kInval;
  use(found->shm->brk);
  return Status::kOk;
}

}  // namespace cmi::node

#include "core/node/charges.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/node/reservation_slots.hpp"

namespace cmi::node {

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
Status allocate(Registry& r, int fd, uint64_t from, uint64_t to, uint64_t reservation) {
  const uint64_t step = reservation != 0 ? uint64_t{4} << 20 : uint64_t{64} << 20;
  for (uint64_t at = from; at < to; at += step) {
    const uint64_t n = std::min(step, to - at);
    Exclusive lock(r.lock(), Deadline::in(kLockWait));
    if (!lock) return Status::kReconfig;
    if (reservation != 0) release_locked(r, lock, reservation, n);
    fault_point("node.allocate.released");
    if (Status s = allocate_file(fd, at, at + n); !ok(s)) return s;
    fault_point("node.allocate.taken");
  }
  return Status::kOk;
}

}  // namespace cmi::node

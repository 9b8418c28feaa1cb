#include "core/node/reservations.hpp"

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

Result<uint64_t> Reservations::make(uint64_t asked) {
  return after_the_dead(seat_, [&] { return try_make(asked); });
}

Status Reservations::resize(uint64_t key, uint64_t asked) {
  return after_the_dead(seat_, [&] { return try_resize(key, asked); });
}

Result<uint64_t> Reservations::try_make(uint64_t asked) {
  const auto size = whole_pages(asked);
  if (asked == 0) return Status::kInval;
  if (!size) return Status::kNoMem;
  Registry& r = *seat_.registry;
  if (!of_this_user(r)) return Status::kPerm;
  Outside outside = look_outside(r, seat_.config);
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  Reservation_shm* free = nullptr;
  for (Reservation_shm& rsv : r.shm()->reservations) {
    if (free == nullptr && rsv.key.load(std::memory_order_acquire) == 0) free = &rsv;
  }
  const auto lacks = [&]() -> const char* {
    if (free == nullptr) return "the node has as many reservations as it can";
    return lacks_room_locked(r, seat_.config, outside, *size);
  };
  if (free != nullptr && lacks() != nullptr) {
    reap_locked(r, lock);
    look_again(seat_.config, &outside);
  }
  if (const char* why = lacks(); why != nullptr) {
    note(kFacCtrl, kWarn, "node: no room for a reservation of {} bytes: {}", *size, why);
    return because(Status::kNoMem, why);
  }
  auto fd = open_hold(r, free, O_RDWR | O_CREAT);
  if (!fd) return fd.status();
  // Dies here, or next: a file that no slot names, for the next sweep.
  const Status s = hold(fd->get(), *size);
  fault_point("node.reserve.held");
  if (!ok(s)) {
    unlink_hold(r, free);
    return s;
  }
  uint64_t key = 0;
  while (key == 0 || used_locked(r, key) != 0 || reservation_locked(r, key) != nullptr) {
    key = random_u64();
  }
  free->size = *size;
  free->maker_pid = getpid();
  free->key.store(key, std::memory_order_release);
  fault_point("node.reserve.published");
  return key;
}

Status Reservations::try_resize(uint64_t key, uint64_t asked) {
  const auto size = whole_pages(asked);
  Registry& r = *seat_.registry;
  if (!of_this_user(r)) return Status::kPerm;
  Outside outside = look_outside(r, seat_.config);
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  if (reap_locked(r, lock) > 0) look_again(seat_.config, &outside);
  Reservation_shm* rsv = reservation_locked(r, key);
  if (rsv == nullptr) return Status::kInval;
  if (!size) return Status::kNoMem;
  const uint64_t used = used_locked(r, key), now = promised_rest(rsv->size, used),
                 want = promised_rest(*size, used);
  if (*size < rsv->size && *size < used) return Status::kInval;
  auto fd = open_hold(r, rsv, O_RDWR);
  if (!fd) return fd.status();
  // What it holds beyond `now` is on its way into a segment.
  const uint64_t has = held_by(fd->get());
  if (want > now) {
    const char* why = lacks_room_locked(r, seat_.config, outside, want - now);
    if (why != nullptr) {
      return because(Status::kNoMem, why);
    }
    if (Status s = hold(fd->get(), std::max(want, has + (want - now))); !ok(s)) {
      (void)hold(fd->get(), has);
      return s;
    }
    fault_point("node.reserve.grown");
  }
  rsv->size = *size;
  fault_point("node.reserve.resized");
  if (want < now &&
      ftruncate(fd->get(), static_cast<off_t>(has - std::min(has, now - want))) != 0) {
    note(kFacSeg, kWarn, "node: a reservation does not let go of its memory");
  }
  return Status::kOk;
}

Status Reservations::remove(uint64_t key) {
  Registry& r = *seat_.registry;
  if (!of_this_user(r)) return Status::kPerm;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  Reservation_shm* rsv = reservation_locked(r, key);
  if (rsv == nullptr) return Status::kInval;
  clear_reservation_locked(r, lock, rsv);
  return Status::kOk;
}

Result<ReservationInfo> Reservations::find(uint64_t key) {
  Registry& r = *seat_.registry;
  if (!of_this_user(r)) return Status::kPerm;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  reap_locked(r, lock);  // what the dead have used is used no more
  const Reservation_shm* rsv = reservation_locked(r, key);
  if (rsv == nullptr) return Status::kInval;
  return ReservationInfo{key, rsv->size, used_locked(r, key), static_cast<pid_t>(rsv->maker_pid)};
}

std::vector<ReservationInfo> Reservations::all() {
  std::vector<ReservationInfo> all;
  Registry& r = *seat_.registry;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  for (const Reservation_shm& rsv : r.shm()->reservations) {
    const uint64_t key = rsv.key.load(std::memory_order_acquire);
    if (key == 0) continue;
    all.push_back({key, rsv.size, used_locked(r, key), static_cast<pid_t>(rsv.maker_pid)});
  }
  return all;
}

void Reservations::refill() {
  Registry& r = *seat_.registry;
  if (!any_reservation(r)) return;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (lock) settle_reservations_locked(r, lock);
}

}  // namespace cmi::node

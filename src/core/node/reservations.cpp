// Memory reservations: each has a slot in the registry and a file that holds what is promised and
// not used. What is used is not kept anywhere: it is summed over the segments that name the key.
// So a death between any two steps loses nothing: the next reaper sets each file to what it should
// hold (settle_reservations_locked). Threads: any.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "core/base/fault_point.hpp"
#include "core/node/node_impl.hpp"
#include "core/node/reaper.hpp"

namespace cmi::node {

namespace {
constexpr uint64_t kUnit = 4096;  // bytes of a page

uint32_t slot_of(Registry& r, const Reservation_shm* rsv) {
  return static_cast<uint32_t>(rsv - r.shm()->reservations);
}

// kReconfig: it is not there.
Result<Fd> open_hold(Registry& r, const Reservation_shm* rsv, int flags = O_RDWR) {
  return open_file(r.folder(), hold_file_name(slot_of(r, rsv)).text, flags);
}

uint64_t held_by(int fd) {
  struct stat st {};
  return fstat(fd, &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
}

// The file's end says how much it holds. Where there is not enough, as much as there is.
Status hold(int fd, uint64_t want) {
  constexpr uint64_t kStep = 16 << 20;
  for (uint64_t has = held_by(fd); has < want;) {
    const uint64_t next = std::min(want, has + kStep);
    if (Status s = allocate_file(fd, has, next); !ok(s)) {
      // tmpfs undoes a call that fails, other file systems may not.
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(has),
                static_cast<off_t>(next - has));
      return s;
    }
    if (ftruncate(fd, static_cast<off_t>(next)) != 0) return Status::kNoMem;
    has = next;
  }
  return held_by(fd) == want || ftruncate(fd, static_cast<off_t>(want)) == 0 ? Status::kOk
                                                                             : Status::kNoMem;
}

uint64_t rest(uint64_t size, uint64_t used) { return size - std::min(size, used); }

// Whether some segment is charged for memory that it is still taking: until then the reservation
// holds that for it, beyond what is promised and not used.
bool being_used_locked(Registry& r, uint64_t key) {
  for (uint32_t i = 0; i < r.segments_end(); ++i) {
    const Segment_shm& s = r.shm()->segments[i];
    const auto word = SegmentWord::unpack(s.state.load(std::memory_order_acquire), i);
    if (!word || charged_to(s, key) == 0) continue;
    if (word->state == SegmentState::kMaking || (s.brk != kNoBreak && s.charged > s.brk)) {
      return true;
    }
  }
  return false;
}

// Whole pages; none: more than there can be.
std::optional<uint64_t> whole(uint64_t size) {
  if (size > static_cast<uint64_t>(INT64_MAX) - kUnit) return std::nullopt;
  return (size + kUnit - 1) / kUnit * kUnit;
}

void clear_locked(Registry& r, const Exclusive&, Reservation_shm* rsv) {
  rsv->key.store(0, std::memory_order_release);
  // Dies here: a file that no slot names, for the next sweep.
  fault_point("node.unreserve.cleared");
  unlinkat(r.folder().dir.get(), hold_file_name(slot_of(r, rsv)).text, 0);
  fault_point("node.unreserve.unlinked");
}
}  // namespace

bool of_this_user(const Registry& r) {
  struct stat st {};
  return fstat(r.folder().dir.get(), &st) == 0 && st.st_uid == geteuid();
}

Reservation_shm* reservation_locked(Registry& r, uint64_t key) {
  if (key == 0) return nullptr;
  for (Reservation_shm& rsv : r.shm()->reservations) {
    if (rsv.key.load(std::memory_order_acquire) == key) return &rsv;
  }
  return nullptr;
}

bool any_reservation(const Registry& r) {
  const auto& all = r.shm()->reservations;
  return std::any_of(std::begin(all), std::end(all), [](const Reservation_shm& rsv) {
    return rsv.key.load(std::memory_order_acquire) != 0;
  });
}

uint64_t used_locked(Registry& r, uint64_t key) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < r.segments_end(); ++i) {
    const Segment_shm& s = r.shm()->segments[i];
    if (!SegmentWord::unpack(s.state.load(std::memory_order_acquire), i)) continue;
    if (__builtin_add_overflow(sum, charged_to(s, key), &sum)) return UINT64_MAX;
  }
  return sum;
}

void settle_reservations_locked(Registry& r, const Exclusive& lock) {
  for (Reservation_shm& rsv : r.shm()->reservations) {
    const uint64_t key = rsv.key.load(std::memory_order_acquire);
    if (key == 0) continue;
    auto fd = open_hold(r, &rsv);
    // A key comes after its file and goes before it: no member has written one without.
    if (fd.status() == Status::kReconfig || rsv.size % kUnit != 0 || !whole(rsv.size)) {
      clear_locked(r, lock, &rsv);
      continue;
    }
    const uint64_t want = rest(rsv.size, used_locked(r, key));
    if (fd && held_by(fd->get()) > want && being_used_locked(r, key)) continue;
    if (!fd || !ok(hold(fd->get(), want))) {
      note(kFacCtrl, kInfo, "node: a reservation is short of memory that is not free yet");
    }
  }
}

void release_locked(Registry& r, const Exclusive&, uint64_t key, uint64_t bytes) {
  Reservation_shm* rsv = reservation_locked(r, key);
  if (rsv == nullptr) return;
  auto fd = open_hold(r, rsv);
  if (!fd) return;
  const uint64_t has = held_by(fd->get()), keep = rest(rsv->size, used_locked(r, key));
  if (has <= keep) return;
  if (ftruncate(fd->get(), static_cast<off_t>(has - std::min(bytes, has - keep))) != 0) {
    note(kFacSeg, kWarn, "node: a reservation does not let go of its memory");
  }
}

Result<uint64_t> Node::reserve(uint64_t asked) {
  const auto size = whole(asked);
  if (asked == 0) return Status::kInval;
  if (!size) return Status::kNoMem;
  Registry& r = *impl_->registry;
  if (!of_this_user(r)) return Status::kPerm;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  Reservation_shm* free = nullptr;
  for (Reservation_shm& rsv : r.shm()->reservations) {
    if (free == nullptr && rsv.key.load(std::memory_order_acquire) == 0) free = &rsv;
  }
  if (free != nullptr && !fits_locked(r, *size, impl_->config.mem_max)) reap_locked(r, lock);
  if (free == nullptr || !fits_locked(r, *size, impl_->config.mem_max)) {
    note(kFacCtrl, kWarn, "node: no room for a reservation of {} bytes: {}", *size,
         free != nullptr ? "the limit is reached" : "all slots are taken");
    return Status::kNoMem;
  }
  auto fd = open_hold(r, free, O_RDWR | O_CREAT);
  if (!fd) return fd.status();
  // Dies here, or next: a file that no slot names, for the next sweep.
  const Status s = hold(fd->get(), *size);
  fault_point("node.reserve.held");
  if (!ok(s)) {
    unlinkat(r.folder().dir.get(), hold_file_name(slot_of(r, free)).text, 0);
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

Status Node::resize_reservation(uint64_t key, uint64_t asked) {
  const auto size = whole(asked);
  Registry& r = *impl_->registry;
  if (!of_this_user(r)) return Status::kPerm;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  reap_locked(r, lock);
  Reservation_shm* rsv = reservation_locked(r, key);
  if (rsv == nullptr) return Status::kInval;
  if (!size) return Status::kNoMem;
  const uint64_t used = used_locked(r, key), now = rest(rsv->size, used), want = rest(*size, used);
  if (*size < rsv->size && *size < used) return Status::kInval;
  auto fd = open_hold(r, rsv);
  if (!fd) return fd.status();
  // What it holds beyond `now` is on its way into a segment.
  const uint64_t has = held_by(fd->get());
  if (want > now) {
    if (!fits_locked(r, want - now, impl_->config.mem_max)) return Status::kNoMem;
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

Status Node::delete_reservation(uint64_t key) {
  Registry& r = *impl_->registry;
  if (!of_this_user(r)) return Status::kPerm;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  Reservation_shm* rsv = reservation_locked(r, key);
  if (rsv == nullptr) return Status::kInval;
  clear_locked(r, lock, rsv);
  return Status::kOk;
}

Result<ReservationInfo> Node::find_reservation(uint64_t key) {
  Registry& r = *impl_->registry;
  if (!of_this_user(r)) return Status::kPerm;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  reap_locked(r, lock);  // what the dead have used is used no more
  const Reservation_shm* rsv = reservation_locked(r, key);
  if (rsv == nullptr) return Status::kInval;
  return ReservationInfo{key, rsv->size, used_locked(r, key), static_cast<pid_t>(rsv->maker_pid)};
}

std::vector<ReservationInfo> Node::reservations() {
  std::vector<ReservationInfo> all;
  Registry& r = *impl_->registry;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  for (const Reservation_shm& rsv : r.shm()->reservations) {
    const uint64_t key = rsv.key.load(std::memory_order_acquire);
    if (key == 0) continue;
    all.push_back({key, rsv.size, used_locked(r, key), static_cast<pid_t>(rsv.maker_pid)});
  }
  return all;
}

void Node::refill_reservations() {
  Registry& r = *impl_->registry;
  if (!any_reservation(r)) return;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (lock) settle_reservations_locked(r, lock);
}

Status delete_reservation(const Config& config, uint64_t key) {
  std::unique_ptr<Registry> registry;
  std::optional<Exclusive> lock;
  Status s = Registry::open_locked(config, Registry::Open::kExisting, Deadline::in(kLockWait),
                                   registry, lock);
  if (!ok(s)) return s;
  if (!registry || registry->shm() == nullptr) return Status::kInval;
  Reservation_shm* rsv = reservation_locked(*registry, key);
  if (rsv == nullptr) return Status::kInval;
  clear_locked(*registry, *lock, rsv);
  reap_locked(*registry, *lock);
  if (!needed_locked(*registry, *lock)) remove_folder_locked(*registry, *lock);
  return Status::kOk;
}

}  // namespace cmi::node

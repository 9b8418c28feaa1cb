#include "core/node/reservation_slots.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "core/base/fault_point.hpp"

namespace cmi::node {

namespace {
constexpr uint64_t kUnit = 4096;  // bytes of a page

uint32_t slot_of(Registry& r, const Reservation_shm* rsv) {
  return static_cast<uint32_t>(rsv - r.shm()->reservations);
}
}  // namespace

Result<Fd> open_hold(Registry& r, const Reservation_shm* rsv, int flags) {
  return open_file(r.folder(), hold_file_name(slot_of(r, rsv)).text, flags);
}

void unlink_hold(Registry& r, const Reservation_shm* rsv) {
  unlinkat(r.folder().dir.get(), hold_file_name(slot_of(r, rsv)).text, 0);
}

uint64_t held_by(int fd) {
  struct stat st {};
  return fstat(fd, &st) == 0 ? static_cast<uint64_t>(st.st_size) : 0;
}

// The file's end says how much it holds.
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

uint64_t promised_rest(uint64_t size, uint64_t used) { return size - std::min(size, used); }

namespace {
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

}  // namespace

std::optional<uint64_t> whole_pages(uint64_t size) {
  if (size > static_cast<uint64_t>(INT64_MAX) - kUnit) return std::nullopt;
  return (size + kUnit - 1) / kUnit * kUnit;
}

void clear_reservation_locked(Registry& r, const Exclusive&, Reservation_shm* rsv) {
  rsv->key.store(0, std::memory_order_release);
  // Dies here: a file that no slot names, for the next sweep.
  fault_point("node.unreserve.cleared");
  unlink_hold(r, rsv);
  fault_point("node.unreserve.unlinked");
}

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
    auto fd = open_hold(r, &rsv, O_RDWR);
    // A key comes after its file and goes before it: no member has written one without.
    if (fd.status() == Status::kReconfig || rsv.size % kUnit != 0 || !whole_pages(rsv.size)) {
      clear_reservation_locked(r, lock, &rsv);
      continue;
    }
    const uint64_t want = promised_rest(rsv.size, used_locked(r, key));
    if (fd && held_by(fd->get()) > want && being_used_locked(r, key)) continue;
    if (!fd || !ok(hold(fd->get(), want))) {
      note(kFacCtrl, kInfo, "node: a reservation is short of memory that is not free yet");
    }
  }
}

void release_locked(Registry& r, const Exclusive&, uint64_t key, uint64_t bytes) {
  Reservation_shm* rsv = reservation_locked(r, key);
  if (rsv == nullptr) return;
  auto fd = open_hold(r, rsv, O_RDWR);
  if (!fd) return;
  const uint64_t has = held_by(fd->get()), keep = promised_rest(rsv->size, used_locked(r, key));
  if (has <= keep) return;
  if (ftruncate(fd->get(), static_cast<off_t>(has - std::min(bytes, has - keep))) != 0) {
    note(kFacSeg, kWarn, "node: a reservation does not let go of its memory");
  }
}

}  // namespace cmi::node

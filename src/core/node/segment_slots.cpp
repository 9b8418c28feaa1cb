#include "core/node/segment_slots.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/node/charges.hpp"
#include "core/node/large_pages.hpp"
#include "core/node/other_nodes.hpp"
#include "core/node/proxy_file.hpp"
#include "core/node/reaper.hpp"
#include "core/node/reservation_slots.hpp"

namespace cmi::node {

namespace {
std::optional<uint32_t> free_slot_locked(Registry& r) {
  for (uint32_t i = 0; i < kMaxSegments; ++i) {
    if (r.shm()->segments[i].state.load(std::memory_order_acquire) == 0) return i;
  }
  return std::nullopt;
}
}  // namespace

Result<SegmentWord> SegmentSlots::claim_locked(const Exclusive& lock, const Claim& claim,
                                               Outside outside) {
  Registry& r = *seat_.registry;
  std::optional<uint32_t> index;
  const auto lacks = [&]() -> const char* {
    index = free_slot_locked(r);
    if (!index) return "the node has as many segments as it can";
    return lacks_room_locked(r, seat_.config, outside, claim.charged, claim.reservation);
  };
  const char* why = lacks();
  if (why != nullptr) {
    reap_locked(r, lock);
    look_again(seat_.config, &outside);
    why = lacks();
  }
  if (why != nullptr) {
    note(kFacSeg, kWarn, "node: no room for a segment of {} bytes: {}", claim.size, why);
    return because(Status::kNoMem, why);
  }
  Header_shm& h = r.shm()->header;
  if (*index >= r.segments_end()) h.segments_high.store(*index + 1, std::memory_order_release);
  Segment_shm& s = r.shm()->segments[*index];
  // First, so that an id never comes again, whatever happens to this one.
  s.generation = next_generation(s.generation);
  s.flags = claim.flags;
  s.size = claim.size;
  charge(s, 0, 0);  // nothing of the slot's last segment
  charge(s, claim.charged, claim.reservation);
  s.brk = claim.extensible ? 0 : kNoBreak;
  s.owner_hi = seat_.self.hi;
  s.owner_lo = seat_.self.lo;
  s.owner_pid = getpid();
  SegmentWord word{segment_id(*index, s.generation), claim.kind, SegmentState::kMaking, 0,
                   seat_.slot};
  fault_point("node.create.slot_filled");
  // Dies before: a free slot. After: a slot that nobody sees and that a reaper frees, with its
  // file.
  s.state.store(word.pack(), std::memory_order_release);
  fault_point("node.create.claimed");
  return word;
}

Result<int32_t> SegmentSlots::settle(SegmentWord word, Status made) {
  Word_shm& state = seat_.registry->shm()->segments[index_of(word.id)].state;
  fault_point("node.create.ready");
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (!lock && ok(made)) made = Status::kReconfig;
  if (!ok(made)) {
    // Also without the lock: a slot in the making has no other writer while its owner lives.
    delete_segment_locked(*seat_.registry, lock, word);
    if (lock) settle_reservations_locked(*seat_.registry, lock);
    return made;
  }
  word.state = SegmentState::kLive;
  // Dies before: as if it had never been. After: a live segment whose owner is dead, removed.
  state.store(word.pack(), std::memory_order_release);
  fault_point("node.create.published");
  return word.id;
}

Result<int32_t> SegmentSlots::create_home(uint64_t size, int32_t flags, bool reserve,
                                          bool extensible, uint64_t reservation, Fd* large) {
  return after_the_dead(
      seat_, [&] { return try_create_home(size, flags, reserve, extensible, reservation, large); });
}

Result<int32_t> SegmentSlots::try_create_home(uint64_t size, int32_t flags, bool reserve,
                                              bool extensible, uint64_t reservation, Fd* large) {
  if (size == 0) return Status::kInval;
  if (size > static_cast<uint64_t>(INT64_MAX)) return Status::kNoMem;
  const uint64_t now = extensible ? 0 : large != nullptr ? whole_large_pages(size) : size;
  if (large != nullptr) reservation = 0;
  Outside outside;
  if (reserve && of_machine(SegmentKind::kHome, flags)) {
    outside = look_outside(*seat_.registry, seat_.config);
  }
  Result<SegmentWord> word = Status::kReconfig;
  if (Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait)); lock) {
    Registry& r = *seat_.registry;
    if (reservation_locked(r, reservation) == nullptr) reservation = 0;
    if (reservation != 0) reap_locked(r, lock);  // what the dead have used is used no more
    word = claim_locked(
        lock, {SegmentKind::kHome, size, reserve ? now : 0, flags, extensible, reservation},
        outside);
  }
  if (!word) return word.status();
  Result<Fd> fd = large != nullptr
                      ? make_large_file()
                      : node::open_file(seat_.registry->folder(), segment_file_name(word->id).text,
                                        O_RDWR | O_CREAT | O_EXCL);
  Status made = fd.status();
  fault_point("node.create.file_made");
  if (fd && reserve) made = allocate(*seat_.registry, fd->get(), 0, now, reservation);
  if (ok(made) && ftruncate(fd->get(), static_cast<off_t>(now)) != 0) made = Status::kNoMem;
  fault_point("node.create.file_filled");
  auto id = settle(*word, made);
  if (id && large != nullptr) *large = fd.take();
  return id;
}

Result<int32_t> SegmentSlots::create_proxy(uint64_t size, int32_t flags, Bytes blob,
                                           bool extensible, uint64_t cache) {
  return after_the_dead(seat_,
                        [&] { return try_create_proxy(size, flags, blob, extensible, cache); });
}

Result<int32_t> SegmentSlots::try_create_proxy(uint64_t size, int32_t flags, Bytes blob,
                                               bool extensible, uint64_t cache) {
  if (size == 0 || blob.size() > kMaxBlob) return Status::kInval;
  Outside outside;
  if (of_machine(SegmentKind::kProxy, flags)) {
    outside = look_outside(*seat_.registry, seat_.config);
  }
  Result<SegmentWord> word = Status::kReconfig;
  if (Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait)); lock) {
    // That of an extensible one counts from when its break is known.
    word = claim_locked(
        lock,
        {SegmentKind::kProxy, size, extensible ? 0 : std::min(size, cache), flags, extensible, 0},
        outside);
  }
  if (!word) return word.status();
  Result<Fd> fd = node::open_file(seat_.registry->folder(), segment_file_name(word->id).text,
                                  O_RDWR | O_CREAT | O_EXCL);
  fault_point("node.create.file_made");
  Status made = fd ? write_proxy_file(fd->get(), blob) : fd.status();
  fault_point("node.create.file_filled");
  return settle(*word, made);
}

Result<SegmentInfo> SegmentSlots::find(int32_t id, Nanos wait) {
  Registry& r = *seat_.registry;
  Exclusive lock(r.lock(), wait != 0 ? Deadline::in(wait) : Deadline{});
  if (!lock) return Status::kReconfig;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found) return Status::kInval;
  Living living(r);
  SegmentInfo info;
  info.id = id;
  info.kind = found->word.kind;
  info.size = found->shm->size;
  info.brk = std::min(found->shm->brk, info.size);
  info.flags = found->shm->flags;
  info.marks = found->word.marks;
  info.owner = ContextSlot{found->word.owner};
  info.owner_alive = owner_alive(r, *found, living);
  info.owner_pid = static_cast<pid_t>(found->shm->owner_pid);
  info.removed = found->word.state == SegmentState::kRemoved || !info.owner_alive;
  info.attachments = count_attachments(r, id, living);
  return info;
}

Result<Fd> SegmentSlots::open_file(int32_t id) {
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found || found->word.kind != SegmentKind::kHome) return Status::kInval;
  Result<Fd> fd = node::open_file(seat_.registry->folder(), segment_file_name(id).text, O_RDWR);
  if (!fd) return fd.status() == Status::kReconfig ? Status::kInval : fd.status();
  struct stat st;
  const bool extensible = found->shm->brk != kNoBreak;
  if (fstat(fd->get(), &st) != 0 || static_cast<uint64_t>(st.st_size) > found->shm->size ||
      (!extensible && static_cast<uint64_t>(st.st_size) != found->shm->size)) {
    note(kFacSeg, kError, "node: the file of segment {} has the wrong size", id);
    return Status::kInval;
  }
  return fd;
}

Status SegmentSlots::remove(int32_t id) {
  Registry& r = *seat_.registry;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found) {
    // Ours and gone already: the slot remembers the last one.
    if (id <= 0) return Status::kInval;
    const Segment_shm& s = r.shm()->segments[index_of(id)];
    bool last = s.state.load(std::memory_order_acquire) == 0 && s.generation == generation_of(id) &&
                s.owner_hi == seat_.self.hi && s.owner_lo == seat_.self.lo;
    return last ? Status::kOk : Status::kInval;
  }
  if (!seat_.owns(*found)) return Status::kPerm;
  if (found->word.state == SegmentState::kRemoved) return Status::kOk;
  found->word.state = SegmentState::kRemoved;
  fault_point("node.remove.before_store");
  // Dies after: removed for all to see; deleted by the next reaper when nobody has it attached.
  found->shm->state.store(found->word.pack(), std::memory_order_release);
  fault_point("node.remove.marked");
  Living living(r);
  if (count_attachments(r, id, living) != 0) return Status::kOk;
  delete_segment_locked(r, lock, found->word);
  settle_reservations_locked(r, lock);
  return Status::kOk;
}

Result<Fd> SegmentSlots::anonymous_file(uint64_t size, bool reserve) {
  return after_the_dead(seat_, [&] { return try_anonymous_file(size, reserve); });
}

Result<Fd> SegmentSlots::try_anonymous_file(uint64_t size, bool reserve) {
  if (size > static_cast<uint64_t>(INT64_MAX)) return Status::kNoMem;
  const Folder& folder = seat_.registry->folder();
  Fd fd(openat(folder.dir.get(), ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!fd) {  // a file system without O_TMPFILE; a sweep takes what a crash leaves here
    char name[32];
    std::snprintf(name, sizeof name, "tmp-%016llx", static_cast<unsigned long long>(random_u64()));
    Result<Fd> named = node::open_file(folder, name, O_RDWR | O_CREAT | O_EXCL);
    if (!named) return named.status();
    unlinkat(folder.dir.get(), name, 0);
    fd = named.take();
  }
  if (reserve) {
    if (Status s = allocate_file(fd.get(), 0, size); !ok(s)) return s;
  }
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return Status::kNoMem;
  return fd;
}

uint64_t SegmentSlots::memory_in_use() {
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (lock) reap_locked(*seat_.registry, lock);  // what the dead have used is used no more
  // Without the lock the sum may mix old and new: still the best answer there is.
  return charged_locked(*seat_.registry);
}

uint64_t SegmentSlots::room_on_machine(uint64_t wanted) {
  Registry& r = *seat_.registry;
  const auto room = [&] { return room_beside(r, look_outside(r, seat_.config)); };
  const uint64_t there = room();
  if (there >= wanted) return there;
  return reap_nodes(r.folder().runtime_dir, &r.folder().name) ? room() : there;
}

}  // namespace cmi::node

// What a Node holds, for the files that implement it.
#pragma once

#include <optional>

#include "core/node/registry.hpp"

namespace cmi::node {

struct Node::Impl {
  Config config;
  ContextId self;
  uint32_t slot = 0;
  std::unique_ptr<Registry> registry;
  Fd life;  // a description of its own: it carries the life lock, and nothing else
  Fd bus;
  bool joined = false;

  struct LaterMarks {
    int32_t id;
    uint32_t set, clear;
    std::optional<uint64_t> brk;  // instead: of an import, or where a file at home was cut
  };
  Mutex later_mu;  // leaf; inside the exclusive lock
  std::vector<LaterMarks> later_marks CMI_GUARDED_BY(later_mu);
  std::atomic<bool> marks_left{false};  // stored under later_mu

  Status take_slot_locked(const Exclusive& lock);
  void abandon_slot_locked(const Exclusive& lock);
  void leave();

  // The segment with this id while it exists; making ones exist for nobody. Valid under the lock.
  struct Found {
    Segment_shm* shm;
    SegmentWord word;
  };
  std::optional<Found> find_locked(const Exclusive& lock, int32_t id);
  Status set_marks_locked(const Exclusive& lock, int32_t id, uint32_t set, uint32_t clear);
  void store_break_locked(const Exclusive& lock, int32_t id, uint64_t to);
  void settle_marks_locked(const Exclusive& lock);
  // Of an extensible segment of ours.
  template <class Change>
  Status change_break(int32_t id, uint64_t to, Change change);
  bool owned_by_self(const Found& f) const {
    return f.word.owner == slot && f.shm->owner_hi == self.hi && f.shm->owner_lo == self.lo;
  }
  bool owner_alive(const Found& f, Living& living) const;
  // Claims a slot in state making. kNoMem: none is free, or mem_max would be passed.
  Result<SegmentWord> claim_locked(const Exclusive& lock, SegmentKind kind, uint64_t size,
                                   uint64_t charged, int32_t flags, bool extensible,
                                   uint64_t reservation = 0);
  // Memory for a segment's file, out of its reservation as far as that holds any. Not locked.
  Status allocate(int fd, uint64_t from, uint64_t to, uint64_t reservation);
  // From making to live, or away with it when `made` is an error.
  Result<int32_t> settle(SegmentWord word, Status made);
};

// Bytes that count against mem_max.
uint64_t charged_locked(Registry& r);
// Whether so many more may count, as far as the reservation does not have them.
bool fits_locked(Registry& r, uint64_t charged, uint64_t max, uint64_t reservation = 0);

// reservations.cpp. Reservations are shared by the processes of one effective user, whose the
// node's folder is: one that has become somebody else since it joined has no more to do with them.
bool of_this_user(const Registry& r);
// Null: there is none with this key.
Reservation_shm* reservation_locked(Registry& r, uint64_t key);
uint64_t used_locked(Registry& r, uint64_t key);
// Has each reservation hold what is promised and not used, as far as there is memory.
void settle_reservations_locked(Registry& r, const Exclusive& lock);
// Frees up to `bytes` of what it holds beyond what is promised and not used.
void release_locked(Registry& r, const Exclusive& lock, uint64_t key, uint64_t bytes);
bool any_reservation(const Registry& r);

// The bound, non-blocking socket of a context slot; unlinks what an earlier owner left.
Result<Fd> open_bus(const Folder& folder, uint32_t slot);

// From a process that is no member, to whoever sits in the slot. kReconfig: its queue is full;
// kInval: nobody sits there.
Status send_question(const Folder& folder, uint32_t slot, int pass_fd);
// The same, with an end of a LocalChannel.
Status send_channel(const Folder& folder, uint32_t slot, int pass_fd);

}  // namespace cmi::node

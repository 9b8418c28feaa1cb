// What others may see of a segment: its marks, and the break of an imported one. Callers that must
// not wait, or hold a lock, note a change; it is made once the exclusive lock can be had.
// Owns the changes that are noted. Invariant: they are made in the order in which they were noted,
// each once.
// Threads: any.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "core/base/lock.hpp"
#include "core/base/status.hpp"
#include "core/node/seat.hpp"

namespace cmi::node {

class SegmentMarks {
 public:
  explicit SegmentMarks(const Seat& seat) : seat_(seat) {}

  Status set(int32_t id, uint32_t set, uint32_t clear);
  void note(int32_t id, uint32_t set, uint32_t clear);
  // Of an import the break; of a segment of our own the memory that a cut has freed.
  // `cache`: bytes that the import may keep at most.
  void note_break(int32_t id, uint64_t to, uint64_t cache = UINT64_MAX);
  // Makes what was noted. False: the lock was not had in time, and some are left.
  bool settle(Nanos wait);
  void settle_locked(const Exclusive& lock);

 private:
  struct Change {
    int32_t id;
    uint32_t set, clear;
    std::optional<uint64_t> brk;  // instead of marks
    uint64_t cache = UINT64_MAX;  // with brk
  };
  void note(const Change& change);
  Status set_locked(const Exclusive& lock, int32_t id, uint32_t set, uint32_t clear);
  void store_break_locked(const Exclusive& lock, const Change& change);

  const Seat& seat_;
  Mutex mu_;  // leaf; inside the exclusive lock
  std::vector<Change> noted_ CMI_GUARDED_BY(mu_);
  std::atomic<bool> any_{false};  // stored under mu_
};

}  // namespace cmi::node

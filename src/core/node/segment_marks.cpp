#include "core/node/segment_marks.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"

namespace cmi::node {

Status SegmentMarks::set(int32_t id, uint32_t set, uint32_t clear) {
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  return lock ? set_locked(lock, id, set, clear) : Status::kReconfig;
}

void SegmentMarks::note(int32_t id, uint32_t set, uint32_t clear) {
  note({id, set, clear, std::nullopt, 0});
}

void SegmentMarks::note_break(int32_t id, uint64_t to, uint64_t cache) {
  note({id, 0, 0, to, cache});
}

void SegmentMarks::note(const Change& change) {
  Guard g(mu_);
  noted_.push_back(change);
  any_.store(true, std::memory_order_release);
}

bool SegmentMarks::settle(Nanos wait) {
  if (!any_.load(std::memory_order_acquire)) return true;
  Exclusive lock(seat_.registry->lock(), wait != 0 ? Deadline::in(wait) : Deadline{});
  if (!lock) return false;
  settle_locked(lock);
  return true;
}

void SegmentMarks::settle_locked(const Exclusive& lock) {
  std::vector<Change> changes;
  {
    Guard g(mu_);
    changes.swap(noted_);
    any_.store(false, std::memory_order_relaxed);
  }
  // One that fails is of a segment that has gone meanwhile.
  for (const Change& c : changes) {
    if (c.brk) {
      store_break_locked(lock, c);
    } else {
      (void)set_locked(lock, c.id, c.set, c.clear);
    }
  }
}

Status SegmentMarks::set_locked(const Exclusive& lock, int32_t id, uint32_t set, uint32_t clear) {
  if (((set | clear) & ~SegmentWord::kMarkBits) != 0) return Status::kInval;
  auto found = find_locked(*seat_.registry, lock, id);
  if (!found) return Status::kInval;
  found->word.marks = (found->word.marks & ~clear) | set;
  fault_point("node.marks.before_store");
  found->shm->state.store(found->word.pack(), std::memory_order_release);
  fault_point("node.marks.stored");
  return Status::kOk;
}

void SegmentMarks::store_break_locked(const Exclusive& lock, const Change& change) {
  auto found = find_locked(*seat_.registry, lock, change.id);
  const uint64_t to = *change.brk;
  if (!found || found->shm->brk == kNoBreak || !seat_.owns(*found)) return;
  if (found->word.kind == SegmentKind::kHome) {
    charge(*found->shm, std::min(found->shm->charged, to), 0);  // the memory is free
    fault_point("node.break.freed");
    return;
  }
  found->shm->brk = to;
  // What its cache may take. More than fits counts, too: it is the home that decides.
  charge(*found->shm, std::min(to, change.cache), 0);
}

}  // namespace cmi::node

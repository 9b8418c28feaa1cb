// The segments of this node in this process, by id, and those that this process owns by uid, the
// name that importers use. Look-ups take the table's own lock, a leaf; the
// locks of a segment that was found are taken afterwards (segment_lock.hpp).
//
// Segments enter and leave the table under HomeCore::mu, so what is found under that lock stays in
// the table until it is released.
#pragma once

#include <map>
#include <unordered_map>

#include "core/base/lock.hpp"
#include "core/memory/home/lock_order.hpp"
#include "core/memory/home/segment.hpp"

namespace cmi::memory {

inline constexpr uint32_t kMaxExports = 1024;

class SegmentTable {
 public:
  // Into the table, in place of a removed one that had this id. Its owner's uid is not 0.
  void insert(const SegmentPtr& segment);
  SegmentPtr add(const SegmentFacts& facts);  // a new one
  // Under the segment's own locks as well, unless it has neither memory nor views.
  void erase(int32_t id);
  // Null: there is none.
  SegmentPtr find(int32_t id);
  SegmentPtr find_uid(uint64_t uid);
  // Null: there is none, or it is another process's.
  SegmentPtr find_owned(int32_t id) {
    SegmentPtr s = find(id);
    return s != nullptr && s->owned ? s : nullptr;
  }
  // In ascending order, one at a time: others may come and go in between. Null: there is no more.
  SegmentPtr first() { return after(INT32_MIN); }
  SegmentPtr after(int32_t id);
  // Of each that there is; `visit` takes no lock that stands before HomeCore::mu.
  template <class Visit>
  void each(Visit visit) {
    for (SegmentPtr s = first(); s != nullptr; s = after(s->id)) visit(*s);
  }
  // Under HomeCore::mu.
  uint32_t exports();  // that are in force
  size_t tokens();     // of all segments

 private:
  void erase_locked(int32_t id) CMI_REQUIRES(mu_);

  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_rounds);
  std::map<int32_t, SegmentPtr> segments_ CMI_GUARDED_BY(mu_);
  std::unordered_map<uint64_t, SegmentPtr> by_uid_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory

// The segments of this node in this process, by id, and those that this process owns by uid, the
// name that importers use. The lock of the home guards them.
#pragma once

#include <map>
#include <unordered_map>

#include "core/memory/home/segment.hpp"

namespace cmi::memory {

inline constexpr uint32_t kMaxExports = 1024;

class SegmentTable {
 public:
  // A new segment, in place of a removed one that had this id. Its owner's uid is not 0.
  Segment& add(const SegmentFacts& facts);
  void erase(int32_t id);
  // Null: there is none.
  Segment* find(int32_t id);
  Segment* find_uid(uint64_t uid);
  // Null: there is none, or it is another process's.
  Segment* find_owned(int32_t id) {
    Segment* s = find(id);
    return s != nullptr && s->owned ? s : nullptr;
  }
  uint32_t exports() const;  // that are in force
  size_t tokens() const;     // of all segments
  auto begin() { return segments_.begin(); }
  auto end() { return segments_.end(); }
  auto begin() const { return segments_.begin(); }
  auto end() const { return segments_.end(); }

 private:
  std::map<int32_t, Segment> segments_;
  std::unordered_map<uint64_t, Segment*> by_uid_;
};

}  // namespace cmi::memory

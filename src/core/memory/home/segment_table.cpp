#include "core/memory/home/segment_table.hpp"

#include <algorithm>

namespace cmi::memory {

Segment& SegmentTable::add(const SegmentFacts& facts) {
  erase(facts.id);
  Segment& s = segments_[facts.id];
  static_cast<SegmentFacts&>(s) = facts;
  if (facts.uid != 0) by_uid_[facts.uid] = &s;
  return s;
}

void SegmentTable::erase(int32_t id) {
  const auto it = segments_.find(id);
  if (it == segments_.end()) return;
  by_uid_.erase(it->second.uid);
  segments_.erase(it);
}

Segment* SegmentTable::find(int32_t id) {
  const auto it = segments_.find(id);
  return it == segments_.end() ? nullptr : &it->second;
}

Segment* SegmentTable::find_uid(uint64_t uid) {
  const auto it = by_uid_.find(uid);
  return it == by_uid_.end() ? nullptr : it->second;
}

uint32_t SegmentTable::exports() const {
  return static_cast<uint32_t>(std::count_if(segments_.begin(), segments_.end(), [](auto& e) {
    return e.second.exported.any && !e.second.removed;
  }));
}

size_t SegmentTable::tokens() const {
  size_t all = 0;
  for (const auto& [id, s] : segments_) all += s.tokens.size();
  return all;
}

}  // namespace cmi::memory

#include "core/memory/home/segment_table.hpp"

#include <utility>

namespace cmi::memory {

void SegmentTable::insert(const SegmentPtr& segment) {
  Guard g(mu_);
  erase_locked(segment->id);
  segments_[segment->id] = segment;
  if (segment->uid != 0) by_uid_[segment->uid] = segment;
}

SegmentPtr SegmentTable::add(const SegmentFacts& facts) {
  auto s = std::make_shared<Segment>();
  static_cast<SegmentFacts&>(*s) = facts;
  insert(s);
  return s;
}

void SegmentTable::erase(int32_t id) {
  Guard g(mu_);
  erase_locked(id);
}

void SegmentTable::erase_locked(int32_t id) {
  const auto it = segments_.find(id);
  if (it == segments_.end()) return;
  it->second->erased = true;
  by_uid_.erase(it->second->uid);
  segments_.erase(it);
}

SegmentPtr SegmentTable::find(int32_t id) {
  Guard g(mu_);
  const auto it = segments_.find(id);
  return it == segments_.end() ? nullptr : it->second;
}

SegmentPtr SegmentTable::find_uid(uint64_t uid) {
  Guard g(mu_);
  const auto it = by_uid_.find(uid);
  return it == by_uid_.end() ? nullptr : it->second;
}

SegmentPtr SegmentTable::after(int32_t id) {
  Guard g(mu_);
  const auto it = segments_.upper_bound(id);
  return it == segments_.end() ? nullptr : it->second;
}

uint32_t SegmentTable::exports() {
  uint32_t all = 0;
  each([&](const Segment& s) { all += s.exported.any && !s.removed ? 1 : 0; });
  return all;
}

size_t SegmentTable::tokens() {
  size_t all = 0;
  each([&](const Segment& s) { all += s.tokens.size(); });
  return all;
}

}  // namespace cmi::memory

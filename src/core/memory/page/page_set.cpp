// Ranges joined and cut.
#include "core/memory/page/page_set.hpp"

#include <algorithm>

namespace cmi::memory {

void PageSet::add(PageRange pages) {
  if (pages.count == 0) return;
  uint32_t first = pages.first, end = pages.first + pages.count;
  auto it = ends_.upper_bound(first);
  if (it != ends_.begin() && std::prev(it)->second >= first) --it;
  while (it != ends_.end() && it->first <= end) {
    first = std::min(first, it->first);
    end = std::max(end, it->second);
    it = ends_.erase(it);
  }
  ends_.emplace(first, end);
}

void PageSet::remove(PageRange pages) {
  const uint32_t end = pages.first + pages.count;
  for (const PageRange& r : in(pages)) {
    const auto it = std::prev(ends_.upper_bound(r.first));
    const uint32_t was_first = it->first, was_end = it->second;
    ends_.erase(it);
    if (was_first < pages.first) ends_.emplace(was_first, pages.first);
    if (was_end > end) ends_.emplace(end, was_end);
  }
}

bool PageSet::contains(uint32_t page) const {
  const auto it = ends_.upper_bound(page);
  return it != ends_.begin() && std::prev(it)->second > page;
}

PageRange PageSet::first_in(PageRange range) const {
  const uint32_t end = range.first + range.count;
  auto it = ends_.upper_bound(range.first);
  if (it != ends_.begin() && std::prev(it)->second > range.first) --it;
  if (range.count == 0 || it == ends_.end() || it->first >= end) return {range.first, 0};
  const uint32_t first = std::max(it->first, range.first);
  return {first, std::min(it->second, end) - first};
}

std::vector<PageRange> PageSet::in(PageRange range) const {
  std::vector<PageRange> found;
  const uint32_t end = range.first + range.count;
  for (PageRange r = first_in(range); r.count > 0;
       r = first_in({r.first + r.count, end - (r.first + r.count)})) {
    found.push_back(r);
  }
  return found;
}

std::vector<PageRange> PageSet::missing(const std::vector<PageRange>& ranges) const {
  if (empty()) return ranges;
  std::vector<PageRange> out;
  for (const PageRange& range : ranges) {
    uint32_t at = range.first;
    for (const PageRange& r : in(range)) {
      if (r.first > at) out.push_back({at, r.first - at});
      at = r.first + r.count;
    }
    const uint32_t end = range.first + range.count;
    if (end > at) out.push_back({at, end - at});
  }
  return out;
}

std::vector<PageRange> each_once(std::vector<PageRange> ranges) {
  const auto out_of_order = [](const PageRange& a, const PageRange& b) {
    return uint64_t{a.first} + a.count > b.first;
  };
  if (std::adjacent_find(ranges.begin(), ranges.end(), out_of_order) == ranges.end()) return ranges;
  PageSet set;
  for (const PageRange& r : ranges) set.add(r);
  return set.all();
}

}  // namespace cmi::memory

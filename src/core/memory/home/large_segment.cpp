#include "core/memory/home/large_segment.hpp"

#include <algorithm>

#include "core/memory/page/directory.hpp"
#include "core/node/large_pages.hpp"

namespace cmi::memory {

// All pages of a large page have the same sharers: those of its region.
static_assert(kRegionPages * kPageSize % node::kLargePage == 0);

PageRange outward(PageRange pages, size_t page_size) {
  const auto per = static_cast<uint32_t>(page_size / kPageSize);
  const uint32_t first = pages.first / per * per;
  const uint64_t end = uint64_t{pages.first} + pages.count;
  return {first, static_cast<uint32_t>((end + per - 1) / per * per - first)};
}

// Up to the segment's end; what comes to overlap is one range.
std::vector<PageRange> outward(const Segment& s, const std::vector<PageRange>& pages) {
  if (s.page_size() == kPageSize) return pages;
  const auto end = s.pages();
  PageSet whole;
  for (const PageRange& r : pages) {
    const PageRange out = outward(r, s.page_size());
    whole.add({out.first, std::min(out.count, end - out.first)});
  }
  return whole.all();
}

}  // namespace cmi::memory

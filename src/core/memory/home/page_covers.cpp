#include "core/memory/home/page_covers.hpp"

#include <sys/mman.h>

#include "core/base/fault_point.hpp"
#include "core/memory/home/large_segment.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/segment/map_file.hpp"

namespace cmi::memory {

bool PageCovers::cover(HomeView& v, PageRange pages) {
  pages = outward(pages, v.page);
  const size_t offset = size_t{pages.first} * kPageSize, len = size_t{pages.count} * kPageSize;
  // At the same offset as the segment's: neighbours become one mapping.
  void* p = fault_point_fails("cover_no_memory") && len < v.len
                ? MAP_FAILED
                : mmap(v.addr + offset, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       files_.hole.get(), static_cast<off_t>(offset));
  if (p == MAP_FAILED) return false;
  madvise(p, len, MADV_DONTFORK);
  // Protecting covered pages again would fail, and with it what stands beside them.
  if (v.view->stores != nullptr) v.view->stores->forget(pages);
  return true;
}

bool PageCovers::cover(Segment& s, const std::vector<PageRange>& pages) {
  bool good = true;
  for (auto& v : s.views) {
    if (v.leaving) continue;
    if (v.adopted && !adopted_.look(s, v)) {
      good = false;
      continue;
    }
    for (const PageRange& r : v.here(pages)) good = cover(v, r) && good;
  }
  return good;
}

bool PageCovers::uncover(Segment& s, HomeView& v, PageRange pages) {
  pages = outward(pages, v.page);
  const size_t offset = size_t{pages.first} * kPageSize, len = size_t{pages.count} * kPageSize;
  std::byte* const at = v.addr + offset;
  if (!segment::map_home_over(s.file.get(), at, len, offset, v.page)) return false;
  madvise(at, len, MADV_DONTFORK);
  if (!v.read_only && !v.armed) return true;
  // What is stored before this goes with the invalidation round of the recovered pages.
  Userfault& watch = v.read_only ? tracker_.guarded() : tracker_.tracker();
  if (!ok(watch.add(at, len))) return false;
  watch.protect(at, len, v.page);
  return true;
}

bool PageCovers::uncover(Segment& s, PageRange pages) {
  for (auto& v : s.views) {
    if (v.leaving) continue;
    bool good = !v.adopted || adopted_.look(s, v);
    for (const PageRange& r : v.here({pages})) good = good && uncover(s, v, r);
    if (good) continue;
    (void)cover(s, {pages});
    return false;
  }
  note_uncovered();
  return true;
}

}  // namespace cmi::memory

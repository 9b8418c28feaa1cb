#include "core/memory/home/store_tracker.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/large_segment.hpp"
#include "core/memory/vm/store_log.hpp"

namespace cmi::memory {

namespace {
constexpr int kScanBatch = 64;
// A view of up to this size is protected as a whole when it is armed, in some 10 ms.
constexpr uint64_t kProtectedAtOnce = uint64_t{1} << 30;

void add_range(std::vector<PageRange>* out, uint64_t first, uint64_t count) {
  if (!out->empty() && out->back().first + out->back().count == first) {
    out->back().count += static_cast<uint32_t>(count);
  } else {
    out->push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(count)});
  }
}

// A view of this process, or of another one; `size`: of the segment, `page`: of its memory.
struct Scanned {
  int pagemap;
  uint64_t addr;
  uint64_t size, page;
};

// False when the pages of that process cannot be asked for any more. Looks at whole pages of the
// memory, and finds whole ones, which may be more than was asked for.
bool scan_view(const Scanned& v, const std::vector<PageRange>& ranges,
               std::vector<PageRange>* out) {
  WrittenRange found[kScanBatch];
  for (const PageRange& r : ranges) {
    const uint64_t from = uint64_t{r.first} * kPageSize, to = from + uint64_t{r.count} * kPageSize;
    uint64_t at = v.addr + from / v.page * v.page;
    const uint64_t end = v.addr + (to + v.page - 1) / v.page * v.page;
    while (at < end) {
      uint64_t next = end;
      const int n = scan_written(v.pagemap, at, end - at, found, kScanBatch, &next);
      if (n < 0) return false;
      for (int i = 0; i < n; ++i) {
        const uint64_t first = found[i].start - v.addr, past = found[i].end - v.addr;
        add_range(out, first / kPageSize, (std::min(past, v.size) - first) / kPageSize);
      }
      if (next <= at) break;
      at = next;
    }
  }
  return true;
}

void protect_view(const Scanned& v, const std::vector<PageRange>& ranges) {
  for (const PageRange& r : ranges) {
    (void)forget_written(v.pagemap, v.addr + uint64_t{r.first} * kPageSize,
                         uint64_t{r.count} * kPageSize);
  }
}

// False when the process has ended: its pages cannot be looked at any more.
bool has_pages(int pagemap, uint64_t addr) {
  uint64_t entry;
  return ::pread(pagemap, &entry, sizeof entry,
                 static_cast<off_t>(addr / kPageSize * sizeof entry)) == sizeof entry;
}

// Those of the ranges that this view surely does not have covered.
std::vector<PageRange> not_covered(const Segment& s, const ForeignView& v,
                                   const std::vector<PageRange>& ranges) {
  const PageSet* const covered = s.flux.watchers.covered(v.slot);
  return covered != nullptr ? covered->missing(ranges) : ranges;  // null: client-consistent
}
}  // namespace

Status StoreTracker::open() {
  const char* why = nullptr;
  auto guarded = Userfault::open(Userfault::Kind::kGuarded, &why);
  if (!guarded) {
    alert(kFacIni, "{}", why);
    return guarded.status();
  }
  guarded_ = guarded.take();
  if (Userfault::features().async_tracking) {
    auto tracked = Userfault::open(Userfault::Kind::kTracked, &why);
    if (tracked.status() == Status::kNoMem) return Status::kNoMem;
    if (tracked) tracked_ = tracked.take();
  }
  if (!tracked_) {
    trace(kFacIni, kInfo,
          "this kernel does not note stores by itself (6.7 does): the first store to a page on the "
          "home node faults, and system calls cannot write to segments that others import");
  }
  return Status::kOk;
}

bool StoreTracker::by_region(const Segment& s) const {
  return by_kernel() && s.page_size() == kPageSize && s.size > kProtectedAtOnce;
}

void StoreTracker::arm(const Segment& s, HomeView& v, const std::vector<PageRange>& held) {
  if (v.read_only || v.armed) return;
  if (!ok(tracker().add(v.addr, v.mapped()))) return;
  if (by_region(s)) {
    protect_view({files_.pagemap.get(), reinterpret_cast<uint64_t>(v.addr), s.size, v.page},
                 s.flux.pages.missing(held));
  } else {
    tracker().protect(v.addr, v.mapped(), v.page);
  }
  v.armed = true;
}

void StoreTracker::arm(Segment& s, const std::vector<PageRange>& held) {
  for (auto& v : s.views) arm(s, v, held);
}

void StoreTracker::protect(const ForeignView& v, const std::vector<PageRange>& pages) {
  protect_view({v.pagemap.get(), v.addr, v.len, kPageSize}, pages);
}

// False: the scan broke off, and not all that it had found is in *out.
bool StoreTracker::scan_own(Segment& s, HomeView& v, const std::vector<PageRange>& ranges,
                            std::vector<PageRange>* out) {
  const Scanned own{files_.pagemap.get(), reinterpret_cast<uint64_t>(v.addr), s.size, v.page};
  if (!v.adopted) {
    scan_view(own, ranges, out);
    return true;
  }
  if (scan_view(own, v.here(ranges), out)) return true;
  (void)adopted_.look(s, v);  // the client has mapped something else there
  return false;
}

// False: the process has ended.
bool StoreTracker::scan_foreign(Segment& s, const ForeignView& v,
                                const std::vector<PageRange>& ranges,
                                std::vector<PageRange>* written) {
  const Scanned foreign{v.pagemap.get(), v.addr, s.size, s.page_size()};
  std::vector<PageRange> left = outward(s, not_covered(s, v, ranges));
  // Of a process that has ended, or is about to, a scan finds nothing and says so: had it pages
  // still when that was over, it had them all the while.
  if (scan_view(foreign, left, written)) return has_pages(v.pagemap.get(), v.addr);
  if (mutated("mutate_view_with_holes_forgotten")) return false;
  return scan_with_holes(s, v, std::move(left), written);
}

// A process that found no memory to single out the pages in flux has covered more than those: no
// mapping of the file is there, which the kernel says of the whole range. Such pages are looked
// for, and count as covered: they are published when the process has them back.
bool StoreTracker::scan_with_holes(Segment& s, const ForeignView& v, std::vector<PageRange> left,
                                   std::vector<PageRange>* written) {
  const Scanned foreign{v.pagemap.get(), v.addr, s.size, s.page_size()};
  const auto least = static_cast<uint32_t>(foreign.page / kPageSize);
  PageSet holes;
  while (!left.empty()) {
    const PageRange r = left.back();
    left.pop_back();
    if (scan_view(foreign, {r}, written)) continue;
    if (!has_pages(v.pagemap.get(), v.addr) || !node_.members().alive(v.slot, v.process))
      return false;
    if (r.count <= least) {
      holes.add(r);
    } else {
      const uint32_t half = std::max(r.count / 2 / least, 1U) * least;
      left.push_back({r.first, half});
      left.push_back({r.first + half, r.count - half});
    }
  }
  s.flux.watchers.also_covered(v.slot, holes);
  return has_pages(v.pagemap.get(), v.addr);
}

void StoreTracker::scan_views(Segment& s, const std::vector<PageRange>& ranges,
                              std::vector<PageRange>* written) {
  // What is covered is no view's: it is published when it has been recovered.
  const auto open = s.flux.pages.missing(ranges);
  for (auto& v : s.views) {
    if (mutated("mutate_late_arming")) arm(s, v, ranges);
    if (!v.armed && !v.read_only) {
      written->insert(written->end(), ranges.begin(), ranges.end());  // nothing is known of it
    } else if (v.armed && !tracked_) {
      const auto stored = v.view->stores->take();
      written->insert(written->end(), stored.begin(), stored.end());
    } else if (v.armed && !scan_own(s, v, open, written)) {
      // What the kernel had noted before it came upon what is not ours is gone with the error.
      const auto here = v.here(ranges);
      written->insert(written->end(), here.begin(), here.end());
    }
  }
}

StoreTracker::Found StoreTracker::scan(Segment& s, const std::vector<PageRange>& ranges) {
  Found found;
  if (ranges.empty()) return found;
  std::vector<PageRange>& written = found.pages;
  scan_views(s, ranges, &written);
  for (auto it = s.foreign.begin(); it != s.foreign.end();) {
    // Without tracking, they tell their stores themselves, as long as they live. A process may live
    // on when its context has ended; what lies at the address then is not the segment.
    if (node_.members().member(it->slot, it->process) &&
        (tracked_ ? scan_foreign(s, *it, ranges, &written)
                  : has_pages(it->pagemap.get(), it->addr))) {
      ++it;
      continue;
    }
    // The process is gone, and with it what the kernel knew of its stores (rule 17).
    found.writer_ended = found.writer_ended || !mutated("mutate_dead_writer_forgotten");
    it = s.foreign.erase(it);
  }
  if (written.size() > 1) {
    std::sort(written.begin(), written.end(),
              [](const PageRange& a, const PageRange& b) { return a.first < b.first; });
  }
  return found;
}

void StoreTracker::forget_own(Segment& s, HomeView& v, const std::vector<PageRange>& ranges) {
  if (by_region(s) && !v.adopted) {
    // A quarter less than a scan that protects, where no page table is there yet.
    for (const PageRange& r : ranges) {
      tracked_.protect(v.addr + size_t{r.first} * kPageSize, size_t{r.count} * kPageSize);
    }
    return;
  }
  std::vector<PageRange> ignored;
  scan_own(s, v, ranges, &ignored);
}

void StoreTracker::forget(Segment& s, const std::vector<PageRange>& ranges) {
  if (!tracked_) return;  // what was noted is published once for nothing
  const auto open = s.flux.pages.missing(ranges);
  for (auto& v : s.views) {
    if (v.armed) forget_own(s, v, open);
  }
  for (auto& f : s.foreign) {
    if (!node_.members().member(f.slot, f.process)) continue;
    const auto left = not_covered(s, f, ranges);
    if (by_region(s)) {
      protect(f, left);
      continue;
    }
    std::vector<PageRange> ignored;
    scan_view({f.pagemap.get(), f.addr, s.size, s.page_size()}, left, &ignored);
  }
}

// An access that the kernel was just serving when the file was cut may have left its page without
// its protection, which outlives the cut in tmpfs (hugetlbfs drops it): once the file has grown
// again, a store there would go unseen, or through a read-only view. Where the kernel notes stores
// by itself such a page counts as stored to, so nothing is lost; and in another process than the
// owner this may come late, when what was noted since must not be forgotten. Of a view that is
// protected region by region, most is not.
void StoreTracker::watch_again(Segment& s, uint64_t from) {
  for (HomeView& v : s.views) {
    const bool kernel_notes = v.armed && v.view->stores == nullptr;
    if (from >= v.len || !(v.read_only || v.armed)) continue;
    if (kernel_notes && (!s.owned || by_region(s))) continue;
    if (v.view->stores != nullptr && s.owned) {
      v.view->stores->forget({static_cast<uint32_t>(from / kPageSize), kNoPage});
    }
    (kernel_notes ? tracked_ : guarded_).protect(v.addr + from, v.len - from, v.page);
  }
}

}  // namespace cmi::memory

// Covering pages in flux in this process's views of a segment of this node, and giving them back:
// CMI_SEG_CHECK and CMI_SEG_RECO.
//
// A covered page is mapped from an empty file: who touches it gets SIGBUS, and with it CONSIST.
// That takes no userfaultfd, needs no page to be watched beforehand, and reaches loads and stores
// alike. The library's own accesses go through service views, which stay as they are.
#include <sys/mman.h>

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/segment/map_file.hpp"

namespace cmi::memory {

bool Home::cover(HomeView& v, PageRange pages) {
  pages = outward(pages, v.page);
  const size_t offset = size_t{pages.first} * kPageSize, len = size_t{pages.count} * kPageSize;
  // At the same offset as the segment's: neighbours become one mapping.
  void* p = fault_point_fails("cover_no_memory") && len < v.len
                ? MAP_FAILED
                : mmap(v.addr + offset, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       hole_.get(), static_cast<off_t>(offset));
  if (p == MAP_FAILED) return false;
  madvise(p, len, MADV_DONTFORK);
  // Protecting covered pages again would fail, and with it what stands beside them.
  if (v.view->stores != nullptr) v.view->stores->forget(pages);
  return true;
}

bool Home::cover(Segment& s, const std::vector<PageRange>& pages) {
  bool good = true;
  for (auto& v : s.views) {
    if (v.leaving) continue;
    if (v.adopted && !look_at_adopted(s, v)) {
      good = false;
      continue;
    }
    for (const PageRange& r : v.here(pages)) good = cover(v, r) && good;
  }
  return good;
}

bool Home::uncover(Segment& s, HomeView& v, PageRange pages) {
  pages = outward(pages, v.page);
  const size_t offset = size_t{pages.first} * kPageSize, len = size_t{pages.count} * kPageSize;
  std::byte* const at = v.addr + offset;
  if (!segment::map_home_over(s.file.get(), at, len, offset, v.page)) return false;
  madvise(at, len, MADV_DONTFORK);
  if (!v.read_only && !v.armed) return true;
  // What is stored before this goes with the invalidation round of the recovered pages.
  Userfault& watch = v.read_only || !tracked_ ? guarded_ : tracked_;
  if (!ok(watch.add(at, len))) return false;
  watch.protect(at, len, v.page);
  return true;
}

// False: all of it stays covered.
bool Home::uncover(Segment& s, PageRange pages) {
  for (auto& v : s.views) {
    if (v.leaving) continue;
    bool good = !v.adopted || look_at_adopted(s, v);
    for (const PageRange& r : v.here({pages})) good = good && uncover(s, v, r);
    if (good) continue;
    (void)cover(s, {pages});
    return false;
  }
  uncovered_.fetch_add(1, std::memory_order_release);
  return true;
}

bool Home::any_in_flux(int32_t id) {
  Guard g(mu_);
  Segment* s = find(id);
  return s != nullptr && !s->in_flux.empty();
}

bool Home::in_flux(int32_t id, size_t offset) {
  Guard g(mu_);
  Segment* s = find(id);
  return s != nullptr && s->in_flux.contains(static_cast<uint32_t>(offset / kPageSize));
}

bool Home::in_flux(const View& view, const std::byte* addr) {
  return in_flux(view.segment, view.offset + static_cast<size_t>(addr - view.addr));
}

Status Home::recovery_range(int32_t id, const std::byte* addr, size_t size, Segment** segment,
                            HomeView** view, PageRange* pages) {
  Segment* s = find(id);
  if (s == nullptr) return Status::kInval;
  if (!s->owned) return Status::kPerm;
  const auto v = std::find_if(s->views.begin(), s->views.end(), [&](const HomeView& w) {
    return !w.leaving && addr >= w.addr && addr < w.addr + w.len;
  });
  if (v == s->views.end() || size == 0 || size > kMaxRecovery) return Status::kInval;
  const auto offset = static_cast<size_t>(addr - v->addr);
  if (offset % kPageSize != 0 || size % kPageSize != 0 || size > v->len - offset) {
    return Status::kInval;
  }
  *segment = s;
  *view = &*v;
  *pages = {static_cast<uint32_t>(offset / kPageSize), static_cast<uint32_t>(size / kPageSize)};
  return Status::kOk;
}

Status Home::check_in_flux(int32_t id, std::byte** addr, size_t* size) {
  Guard g(mu_);
  Segment* s = nullptr;
  HomeView* v = nullptr;
  PageRange pages;
  if (Status st = recovery_range(id, *addr, *size, &s, &v, &pages); !ok(st)) return st;
  // What is told can be recovered, which takes whole pages of the memory.
  const PageRange lowest = s->in_flux.first_in(outward(*s, {pages}).front());
  *size = std::min(size_t{lowest.count} * kPageSize, kMaxRecovery);
  if (lowest.count > 0) *addr = v->addr + size_t{lowest.first} * kPageSize;
  return Status::kOk;
}

Status Home::recover(int32_t id, std::byte* addr, size_t size, Deadline deadline) {
  Status status = Status::kOk;
  std::shared_ptr<InvalidationRound> known = std::make_shared<InvalidationRound>(), published;
  known->waiting = 1;
  known->done.begin();
  Finished done;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    HomeView* v = nullptr;
    PageRange pages;
    if (Status st = recovery_range(id, addr, size, &s, &v, &pages); !ok(st)) return st;
    const PageRange whole = outward(*s, {pages}).front();
    if (whole.first != pages.first || whole.count != pages.count) {
      return because(Status::kInval, "large pages are recovered as a whole");
    }
    std::vector<PageRange> back = s->in_flux.in(pages);
    for (size_t i = 0; i < back.size(); ++i) {
      if (!uncover(*s, back[i])) {
        status = Status::kNoMem;
        back.resize(i);
        break;
      }
      s->in_flux.remove(back[i]);
    }
    if (!back.empty()) {
      // Importers ask before they access what was in flux; nobody has a page of it.
      published = publish_scan(*s, back);
      flux_changed(*s, known);
    }
    settle(known, &done);
  }
  run(done);
  bool good = published == nullptr || wait(*published, deadline);
  good = wait(*known, deadline) && good;
  if (!good) trace(kFacSeg, kWarn, "CMI_SEG_RECO: somebody has not heard of it yet");
  return status;
}

}  // namespace cmi::memory

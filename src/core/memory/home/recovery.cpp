#include "core/memory/home/recovery.hpp"

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/log.hpp"
#include "core/memory/home/large_segment.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/node_bus/await.hpp"

namespace cmi::memory {

bool Recovery::any_in_flux(int32_t id) {
  const SegmentLock s(home_, id, SegmentLock::kViews);
  return s && !s->flux.pages.empty();
}

bool Recovery::in_flux(int32_t id, size_t offset) {
  const SegmentLock s(home_, id, SegmentLock::kViews);
  return s && s->flux.pages.contains(static_cast<uint32_t>(offset / kPageSize));
}

bool Recovery::in_flux(const View& view, const std::byte* addr) {
  return in_flux(view.segment, view.offset + static_cast<size_t>(addr - view.addr));
}

Status Recovery::recovery_range(Segment* s, const std::byte* addr, size_t size, HomeView** view,
                                PageRange* pages) {
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
  *view = &*v;
  *pages = {static_cast<uint32_t>(offset / kPageSize), static_cast<uint32_t>(size / kPageSize)};
  return Status::kOk;
}

Status Recovery::check_in_flux(int32_t id, std::byte** addr, size_t* size) {
  const SegmentLock s(home_, id, SegmentLock::kViews);
  HomeView* v = nullptr;
  PageRange pages;
  if (Status st = recovery_range(s.get(), *addr, *size, &v, &pages); !ok(st)) return st;
  // What is reported can be recovered, which takes whole pages of the memory.
  const PageRange lowest = s->flux.pages.first_in(outward(*s, {pages}).front());
  *size = std::min(size_t{lowest.count} * kPageSize, kMaxRecovery);
  if (lowest.count > 0) *addr = v->addr + size_t{lowest.first} * kPageSize;
  return Status::kOk;
}

Status Recovery::recover(int32_t id, std::byte* addr, size_t size, Deadline deadline) {
  Status status = Status::kOk;
  const RoundPtr known = begin_round();
  RoundPtr published;
  Finished done;
  {
    const SegmentLock s(home_, id, SegmentLock::kBoth);
    HomeView* v = nullptr;
    PageRange pages;
    if (Status st = recovery_range(s.get(), addr, size, &v, &pages); !ok(st)) return st;
    const PageRange whole = outward(*s, {pages}).front();
    if (whole.first != pages.first || whole.count != pages.count) {
      return because(Status::kInval, "large pages are recovered as a whole");
    }
    std::vector<PageRange> back = s->flux.pages.in(pages);
    for (size_t i = 0; i < back.size(); ++i) {
      if (!home_.covers.uncover(*s, back[i])) {
        status = Status::kNoMem;
        back.resize(i);
        break;
      }
    }
    Guard g(home_.mu);
    for (const PageRange& r : back) s->flux.pages.remove(r);
    if (!back.empty()) {
      // Importers ask before they access what was in flux; nobody has a page of it.
      published = home_.rounds.publish_stores(*s, back);
      home_.flux.changed(*s, known);
    }
    home_.rounds.settle(known, &done);
  }
  run(done);
  bool good = published == nullptr || await(published->done, home_.parts.server, deadline);
  good = await(known->done, home_.parts.server, deadline) && good;
  if (!good) trace(kFacSeg, kWarn, "CMI_SEG_RECO: somebody has not heard of it yet");
  return status;
}

}  // namespace cmi::memory

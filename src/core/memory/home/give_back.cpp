// Memory of the client's own that was a segment is given back: private memory again.
#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/memory/home/home_views.hpp"
#include "core/memory/home/private_memory.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

// Maps private memory with the segment's content over what is left of the view. The copying takes
// its time, and is done without the lock, which the threads that serve importers need.
Status HomeViews::give_back(int32_t id, const View& view, bool leave_broken) {
  const std::byte* content = nullptr;
  bool locked = false;
  // As long as the segment has a view it is there, and its service view.
  const auto entry = [&](Segment& s) {
    return &*std::find_if(s.views.begin(), s.views.end(),
                          [&](const HomeView& v) { return v.view.get() == &view; });
  };
  const auto left = [&]() -> Result<std::vector<PageRange>> {
    const SegmentLock s(home_, id, SegmentLock::kViews);
    HomeView* const v = entry(*s);
    v->leaving = true;
    content = s->service.data();
    locked = v->locked;
    if (!home_.adopted.look(*s, *v)) return Status::kNoMem;
    return v->gone.missing(whole(v->len));
  };
  const auto copy_and_move = [&]() -> Status {
    auto pages = left();
    if (!pages) return pages.status();
    Mapping copy;
    PageSet broken;
    if (Status s = private_copy(content, view.len, *pages, &copy, &broken); !ok(s)) return s;
    if (!broken.empty() && !leave_broken) {
      return because(Status::kHw, "some of the memory is broken");
    }
    fault_point("give_back_copied");
    pages = left();  // the client may have freed some meanwhile
    if (!pages) return pages.status();
    return move_pages(copy, view.addr, broken.missing(*pages), locked);
  };
  const Status status = copy_and_move();
  const SegmentLock s(home_, id, SegmentLock::kViews);
  HomeView* const v = entry(*s);
  if (ok(status)) {
    s->views.erase(s->views.begin() + (v - s->views.data()));
    return status;
  }
  v->leaving = false;  // still the segment's
  if (!s->flux.pages.empty()) (void)home_.covers.cover(*s, s->flux.pages.all());
  return status;
}

}  // namespace cmi::memory

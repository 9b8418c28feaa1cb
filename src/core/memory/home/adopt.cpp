// seg_getva: memory of the client's own becomes a segment.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home/home_views.hpp"
#include "core/memory/home/private_memory.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/segment/mappings.hpp"

namespace cmi::memory {

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // 5.14
#endif

namespace {
// By system calls, which fail where a load of ours would raise a signal.
bool copy_into(int file, const std::byte* from, size_t len) {
  size_t done = 0;
  while (done < len) {
    const ssize_t n = ::pwrite(file, from + done, len - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}
}  // namespace

// False: it is not known what is left of memory that became a segment there before.
bool HomeViews::look_at_adopted(const std::byte* at, size_t size) {
  for (const auto& view : home_.parts.views.within(at, size)) {
    if (!view->adopted) continue;
    const SegmentLock s(home_, view->segment, SegmentLock::kViews);
    if (!s) continue;
    for (auto& v : s->views) {
      if (!v.adopted || v.addr >= at + size || at >= v.addr + v.len) continue;
      if (!home_.adopted.look(*s, v)) return false;
    }
  }
  return true;
}

// The memory becomes the segment's first view, while it is still being moved.
Status HomeViews::enter_adopted(int32_t id, const std::shared_ptr<View>& view, int* file,
                                const std::byte** content) {
  const SegmentPtr own = home_.segments.find_owned(id);
  // A part that was freed may become a segment again.
  if (own != nullptr && !look_at_adopted(view->addr, own->size)) return Status::kNoMem;
  const SegmentLock s(home_, id, SegmentLock::kViews);
  if (!s || !s->owned || !s->views.empty()) return Status::kInval;
  *file = s->file.get();
  *content = s->service.data();
  std::byte* const at = view->addr;
  view->len = s->size;
  view->segment = id;
  view->adopted = true;
  if (!home_.tracker.by_kernel()) {
    view->stores = std::make_shared<StoreLog>(home_.tracker.guarded(), at, s->size, kPageSize);
  }
  if (!home_.parts.views.insert_if_free(view)) return Status::kInval;
  HomeView v;
  v.addr = at;
  v.len = s->size;
  v.view = view;
  v.adopted = v.moving = v.armed = true;
  s->views.push_back(v);
  return Status::kOk;
}

Status HomeViews::adopt(int32_t id, void* va) {
  int file = -1;
  const std::byte* content = nullptr;
  bool locked = false;
  auto view = std::make_shared<View>();
  view->addr = static_cast<std::byte*>(va);
  if (Status st = enter_adopted(id, view, &file, &content); !ok(st)) return st;
  const size_t size = view->len;
  Status status = segment::own_memory(va, size, &locked);
  if (ok(status)) status = move_onto(file, content, view->addr, size);
  if (ok(status) && locked && mlock(va, size) != 0) {
    trace(kFacSeg, kWarn, "seg_getva: {} bytes at {} are not locked any more", size, va);
  }
  const SegmentLock s(home_, id, SegmentLock::kViews);
  s->views.front().moving = false;
  s->views.front().locked = locked;
  if (!ok(status)) {
    s->views.clear();
    home_.parts.views.erase(view);
  }
  // A thread that faulted meanwhile tries again; see Engine::try_home_access.
  home_.covers.note_uncovered();
  return status;
}

// Stores by other threads wait in the fault handler meanwhile (being_moved).
Status HomeViews::move_onto(int file, const std::byte* content, std::byte* at, size_t size) {
  // Only pages that are there can be protected.
  if (madvise(at, size, MADV_POPULATE_READ) != 0) return Status::kNoMem;
  if (Status s = home_.tracker.guarded().add(at, size); !ok(s)) return s;
  Status status = home_.tracker.guarded().protect(at, size) ? Status::kOk : Status::kNoMem;
  fault_point("adopt_before_copy");
  if (ok(status) && !copy_into(file, at, size)) status = Status::kNoMem;
  if (ok(status) &&
      mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    status = Status::kNoMem;
  }
  if (!ok(status)) {
    home_.tracker.guarded().remove(at, size);
    return status;
  }
  fault_point("adopt_moved");
  madvise(at, size, MADV_DONTFORK);
  // At once and never again: a later registration could take in what the client maps here.
  Userfault& tracker = home_.tracker.tracker();
  if (Status s = tracker.add(at, size); !ok(s)) {
    Mapping copy;
    PageSet broken;
    if (ok(private_copy(content, size, whole(size), &copy, &broken)) && broken.empty()) {
      (void)move_pages(copy, at, whole(size), false);
    }
    return s;
  }
  tracker.protect(at, size);
  return Status::kOk;
}

bool HomeViews::being_moved(const View& view) {
  const SegmentLock s(home_, view.segment, SegmentLock::kViews);
  return s && std::any_of(s->views.begin(), s->views.end(),
                          [&](const HomeView& v) { return v.view.get() == &view && v.moving; });
}

bool HomeViews::still_adopted(Segment& s, HomeView& v, size_t offset) {
  const auto page = static_cast<uint32_t>(offset / kPageSize);
  if (v.moving || v.leaving) return false;
  const bool watched = home_.tracker.by_kernel() &&
                       home_.tracker.tracker().watches(v.addr + size_t{page} * kPageSize);
  return (watched || home_.adopted.look(s, v)) && !v.gone.contains(page);
}

void HomeViews::stop_watching_adopted() {
  if (home_.tracker.by_kernel()) return;
  for (SegmentPtr s = home_.segments.first(); s != nullptr; s = home_.segments.after(s->id)) {
    const SegmentLock locked(home_, s, SegmentLock::kViews);
    for (auto& v : s->views) {
      if (v.adopted && !v.moving) home_.tracker.guarded().remove(v.addr, v.len);
    }
  }
}

}  // namespace cmi::memory

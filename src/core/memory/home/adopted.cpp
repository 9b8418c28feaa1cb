// seg_getva: memory of the client's becomes a segment in place, and is given back. The range is
// moved onto the segment's file: copied while nobody can store to it, then mapped over. Importers
// and the fabric only ever see the file. So what the client maps there later, having freed this
// memory, can be reached by no remote node; but neither may we take it for ours: it is not scanned,
// protected, covered or unmapped. What is left of a view is known from the mappings themselves
// (look_at_adopted); who registers with a userfaultfd loses that with the mapping, so tracking
// never strays.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/vm/guarded_copy.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/segment/mappings.hpp"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // 5.7
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // 5.14
#endif

namespace cmi::memory {

namespace {

std::vector<PageRange> whole(size_t size) { return {{0, static_cast<uint32_t>(size / kPageSize)}}; }

PageRange pages_of(const segment::Part& part) {
  return {static_cast<uint32_t>(part.begin / kPageSize),
          static_cast<uint32_t>((part.end - part.begin) / kPageSize)};
}

bool all_zero(const std::byte* page) {
  uint64_t word;
  for (size_t i = 0; i < kPageSize; i += sizeof word) {
    std::memcpy(&word, page + i, sizeof word);
    if (word != 0) return false;
  }
  return true;
}

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

// Fresh private memory with those pages of the content. Broken ones are left out.
Status private_copy(const std::byte* content, size_t size, const std::vector<PageRange>& pages,
                    Mapping* copy, PageSet* broken) {
  void* fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return Status::kNoMem;
  *copy = Mapping(fresh, size);
  for (const PageRange& r : pages) {
    for (uint32_t page = r.first; page < r.first + r.count; ++page) {
      const std::byte* from = content + size_t{page} * kPageSize;
      std::byte* to = copy->data() + size_t{page} * kPageSize;
      const bool intact = unless_broken(from, kPageSize, [&] {
        if (!all_zero(from)) std::memcpy(to, from, kPageSize);
      });
      if (!intact) broken->add({page, 1});
    }
  }
  return Status::kOk;
}

// Moves those pages of the copy to `at`. It stays mapped as a whole until the caller unmaps it:
// into a hole another thread's mmap() would map, and that be unmapped with it.
Status move_pages(const Mapping& copy, std::byte* at, const std::vector<PageRange>& pages,
                  bool locked) {
  const auto for_each = [&](const auto& act) {
    for (const PageRange& r : pages) {
      if (!act(size_t{r.first} * kPageSize, size_t{r.count} * kPageSize)) return false;
    }
    return true;
  };
  const bool moved = for_each([&](size_t offset, size_t n) {
    return mremap(copy.data() + offset, n, n, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                  at + offset) != MAP_FAILED;
  });
  fault_point("give_back_moved");
  if (!moved) return Status::kNoMem;
  const bool good =
      !locked || for_each([&](size_t offset, size_t n) { return mlock(at + offset, n) == 0; });
  if (!good) trace(kFacSeg, kWarn, "memory of a segment is given back, and not locked any more");
  return Status::kOk;
}

}  // namespace

Status Home::adopt(int32_t id, void* va) {
  auto* const at = static_cast<std::byte*>(va);
  size_t size = 0;
  int file = -1;
  const std::byte* content = nullptr;
  bool locked = false;
  auto view = std::make_shared<View>();
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || !s->owned || !s->views.empty()) return Status::kInval;
    size = s->size;
    file = s->file.get();
    content = s->service.data();
    for (auto& [other, seg] : segments_) {  // a part that was freed may become a segment again
      for (auto& v : seg.views) {
        if (!v.adopted || v.addr >= at + size || at >= v.addr + v.len) continue;
        if (!look_at_adopted(seg, v)) return Status::kNoMem;
      }
    }
    view->addr = at;
    view->len = size;
    view->segment = id;
    view->adopted = true;
    if (!tracked_) view->stores = std::make_shared<StoreLog>(guarded_, at, size, kPageSize);
    if (!parts_.views.insert_if_free(view)) return Status::kInval;
    HomeView v;
    v.addr = at;
    v.len = size;
    v.view = view;
    v.adopted = v.moving = v.armed = true;
    s->views.push_back(v);
  }
  Status status = segment::own_memory(va, size, &locked);
  if (ok(status)) status = move_onto(file, content, at, size);
  if (ok(status) && locked && mlock(va, size) != 0) {
    trace(kFacSeg, kWarn, "seg_getva: {} bytes at {} are not locked any more", size, va);
  }
  Guard g(mu_);
  Segment* s = find(id);
  s->views.front().moving = false;
  s->views.front().locked = locked;
  if (!ok(status)) {
    s->views.clear();
    parts_.views.erase(view);
  }
  // Who faulted meanwhile tries again; see Engine::try_home_access.
  uncovered_.fetch_add(1, std::memory_order_release);
  return status;
}

// Stores by other threads wait in the fault handler meanwhile (being_moved).
Status Home::move_onto(int file, const std::byte* content, std::byte* at, size_t size) {
  // Only pages that are there can be protected.
  if (madvise(at, size, MADV_POPULATE_READ) != 0) return Status::kNoMem;
  if (Status s = guarded_.add(at, size); !ok(s)) return s;
  Status status = guarded_.protect(at, size) ? Status::kOk : Status::kNoMem;
  fault_point("adopt_before_copy");
  if (ok(status) && !copy_into(file, at, size)) status = Status::kNoMem;
  if (ok(status) &&
      mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    status = Status::kNoMem;
  }
  if (!ok(status)) {
    guarded_.remove(at, size);
    return status;
  }
  fault_point("adopt_moved");
  madvise(at, size, MADV_DONTFORK);
  // At once and never again: a later registration could take in what the client maps here.
  Userfault& tracker = tracked_ ? tracked_ : guarded_;
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

bool Home::being_moved(const View& view) {
  Guard g(mu_);
  Segment* s = find(view.segment);
  return s != nullptr && std::any_of(s->views.begin(), s->views.end(), [&](const HomeView& v) {
           return v.view.get() == &view && v.moving;
         });
}

// Finds out which pages of an adopted view the client has unmapped or mapped something else over.
bool Home::look_at_adopted(Segment& s, HomeView& v) {
  if (v.moving) return true;
  if (fault_point_fails("adopted_unseen")) return false;
  if (!segment::maps_readable(maps_)) maps_ = segment::open_maps();
  auto ours = segment::still_mapped(
      maps_.get(), v.addr, v.len, {segment::file_id(s.file.get()), segment::file_id(hole_.get())});
  if (!ours) return false;
  PageSet gone;
  gone.add({0, static_cast<uint32_t>(v.len / kPageSize)});
  for (const auto& part : *ours) gone.remove(pages_of(part));
  for (const PageRange& r : v.gone.missing(gone.all())) {
    v.gone.add(r);
    parts_.views.cut(v.view, v.addr + size_t{r.first} * kPageSize, size_t{r.count} * kPageSize);
  }
  return true;
}

// Another view has been mapped there.
void Home::mapped_over(const std::byte* addr, size_t len) {
  for (auto& [id, s] : segments_) {
    for (auto& v : s.views) {
      // Where that fails, the view table knows all the same; a scan looks again.
      if (v.adopted && v.addr < addr + len && addr < v.addr + v.len) (void)look_at_adopted(s, v);
    }
  }
}

bool Home::still_adopted(Segment& s, HomeView& v, size_t offset) {
  const auto page = static_cast<uint32_t>(offset / kPageSize);
  if (v.moving || v.leaving) return false;
  const bool watched = tracked_ && tracked_.watches(v.addr + size_t{page} * kPageSize);
  return (watched || look_at_adopted(s, v)) && !v.gone.contains(page);
}

// Maps private memory with the segment's content over what is left of the view. The copying takes
// its time, and is done without the lock: who serves importers needs that.
Status Home::give_back(int32_t id, const View& view, bool leave_broken) {
  const std::byte* content = nullptr;
  bool locked = false;
  const auto entry = [&]() CMI_REQUIRES(mu_) -> std::pair<Segment*, HomeView*> {
    Segment* s = find(id);  // as long as it has a view it is there, and its service view
    return {s, &*std::find_if(s->views.begin(), s->views.end(),
                              [&](const HomeView& v) { return v.view.get() == &view; })};
  };
  const auto left = [&]() -> Result<std::vector<PageRange>> {
    Guard g(mu_);
    const auto [s, v] = entry();
    v->leaving = true;
    content = s->service.data();
    locked = v->locked;
    if (!look_at_adopted(*s, *v)) return Status::kNoMem;
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
  Guard g(mu_);
  const auto [s, v] = entry();
  if (ok(status)) {
    s->views.erase(s->views.begin() + (v - s->views.data()));
    return status;
  }
  v->leaving = false;  // still the segment's
  if (!s->in_flux.empty()) (void)cover(*s, s->in_flux.all());
  return status;
}

void Home::stop_watching_adopted() {
  Guard g(mu_);
  if (tracked_) return;
  for (auto& [id, s] : segments_) {
    for (auto& v : s.views) {
      if (v.adopted && !v.moving) guarded_.remove(v.addr, v.len);
    }
  }
}

}  // namespace cmi::memory

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

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home.hpp"
#include "core/memory/store_log.hpp"
#include "core/segment/mappings.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // 5.14
#endif

namespace cmi::memory {

namespace {

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

}  // namespace

Status Home::adopt(int32_t id, void* va) {
  auto* const at = static_cast<std::byte*>(va);
  size_t size = 0;
  int file = -1;
  bool locked = false;
  auto view = std::make_shared<View>();
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || !s->owned || !s->views.empty()) return Status::kInval;
    size = s->size;
    file = s->file.get();
    for (auto& [other, seg] : segments_) {  // a part that was freed may become a segment again
      for (auto& v : seg.views) {
        if (v.adopted && v.addr < at + size && at < v.addr + v.len) look_at_adopted(seg, v);
      }
    }
    view->addr = at;
    view->len = size;
    view->segment = id;
    view->adopted = true;
    if (!tracked_) view->stores = std::make_shared<StoreLog>(guarded_, at);
    if (!parts_.views.insert_if_free(view)) return Status::kInval;
    HomeView v;
    v.addr = at;
    v.len = size;
    v.view = view;
    v.adopted = v.moving = v.armed = true;
    s->views.push_back(v);
  }
  Status status = segment::own_memory(va, size, &locked);
  if (ok(status)) status = move_onto(file, at, size);
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
Status Home::move_onto(int file, std::byte* at, size_t size) {
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
    (void)give_back(file, at, {{0, size}}, size, false);
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
void Home::look_at_adopted(Segment& s, HomeView& v) {
  if (v.moving) return;
  auto ours = segment::still_mapped(
      v.addr, v.len, {segment::file_id(s.file.get()), segment::file_id(hole_.get())});
  if (!ours) return;  // unknown: what was known stays
  PageSet gone;
  gone.add({0, static_cast<uint32_t>(v.len / kPageSize)});
  for (const auto& part : *ours) gone.remove(pages_of(part));
  for (const PageRange& r : v.gone.missing(gone.all())) {
    v.gone.add(r);
    parts_.views.cut(v.view, v.addr + size_t{r.first} * kPageSize, size_t{r.count} * kPageSize);
  }
}

// Another view has been mapped there.
void Home::mapped_over(const std::byte* addr, size_t len) {
  for (auto& [id, s] : segments_) {
    for (auto& v : s.views) {
      if (v.adopted && v.addr < addr + len && addr < v.addr + v.len) look_at_adopted(s, v);
    }
  }
}

bool Home::still_adopted(Segment& s, HomeView& v, size_t offset) {
  const auto page = static_cast<uint32_t>(offset / kPageSize);
  if (v.moving) return false;
  if (!tracked_ || !tracked_.watches(v.addr + size_t{page} * kPageSize)) look_at_adopted(s, v);
  return !v.gone.contains(page);
}

// Maps private memory with the file's content over those parts of the range.
Status Home::give_back(int file, std::byte* at, const std::vector<segment::Part>& parts,
                       size_t size, bool locked) {
  void* fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return Status::kNoMem;
  Mapping made(fresh, size);
  void* content = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  if (content == MAP_FAILED) return Status::kNoMem;
  const Mapping source(content, size);
  for (const auto& part : parts) {
    for (size_t i = part.begin; i < part.end; i += kPageSize) {
      if (!all_zero(source.data() + i)) std::memcpy(made.data() + i, source.data() + i, kPageSize);
    }
  }
  for (const auto& part : parts) {
    const size_t n = part.end - part.begin;
    if (mremap(made.data() + part.begin, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at + part.begin) ==
        MAP_FAILED) {
      return Status::kNoMem;
    }
    if (locked && mlock(at + part.begin, n) != 0) {
      trace(kFacSeg, kWarn, "{} bytes of a segment's memory are not locked any more", n);
    }
  }
  return Status::kOk;
}

Status Home::give_back(Segment& s, HomeView& v) {
  look_at_adopted(s, v);
  std::vector<segment::Part> parts;
  for (const PageRange& r : v.gone.missing({{0, static_cast<uint32_t>(v.len / kPageSize)}})) {
    parts.push_back({size_t{r.first} * kPageSize, (size_t{r.first} + r.count) * kPageSize});
  }
  return give_back(s.file.get(), v.addr, parts, v.len, v.locked);
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

// Giving pages back, and taking memory for others.
#include "core/memory/importer/cache.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/page_moves.hpp"
#include "core/memory/importer/write_back.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kMinCache = 64;  // pages: less would evict what a thread is just about to use
constexpr uint32_t kCacheSweep =
    64;  // pages looked at under their locks, and given back in one call

bool can_go(const Page& p) {
  return p.backed && !p.in_flight &&
         (p.state == PageState::kClean || p.state == PageState::kAbsent);
}
}  // namespace

size_t cache_bytes(size_t size) {
  return std::max<size_t>(size / kPageSize, kMinCache) * kPageSize;
}

void set_cache_size(ImporterCore& core, const std::shared_ptr<Import>& imp, size_t bytes) {
  const size_t pages = cache_bytes(bytes) / kPageSize;
  imp->cache.use.set_size(bytes, pages);
  if (pages >= imp->pages || !imp->cache.ready()) return;
  SignalsBlocked quiet;
  make_room(core, imp, 0, Deadline::in(kSecond));
}

[[gnu::hot]] void make_room(ImporterCore& core, const std::shared_ptr<Import>& owner, uint32_t n,
                            Deadline deadline) {
  Import& imp = *owner;
  const uint32_t limit = imp.cache.use.limit();
  const auto too_many = [&] { return !imp.cache.use.has_room(n); };
  if (limit >= imp.pages || !too_many()) return;
  imp.cache.use.end_reservation();
  // Dirty pages are written back on the first round and clean on the second.
  for (int round = 0; round < 3 && too_many() && !deadline.passed(); ++round) {
    std::vector<uint32_t> dirty;
    for (uint64_t seen = 0; seen < imp.pages && too_many(); seen += kCacheSweep) {
      const uint32_t first =
          imp.cache.use.sweep(kCacheSweep) % imp.pages / kCacheSweep * kCacheSweep;
      const uint32_t empty = (next_touched(imp, first, imp.pages) - first) / kCacheSweep;
      if (empty == 0) {
        evict(core, imp, first, std::min(kCacheSweep, imp.pages - first), &dirty);
      } else {
        imp.cache.use.sweep((empty - 1) * kCacheSweep);
        seen += uint64_t{empty - 1} * kCacheSweep;
      }
    }
    if (dirty.empty()) continue;
    {
      Collector out(core, owner, core.write_backs.begin(owner));
      write_back(core, imp, dirty, out, {deadline});
    }
    await(core, core.write_backs.open(), {deadline});
  }
}

void evict(ImporterCore& core, Import& imp, uint32_t first, uint32_t n,
           std::vector<uint32_t>* dirty) {
  for (uint32_t i = 0; i < n; ++i) imp.page(first + i).lock();
  for (uint32_t i = 0; i < n;) {
    Page& p = imp.page(first + i);
    if (p.state == PageState::kDirty && !p.in_flight) dirty->push_back(first + i);
    uint32_t run = 0;
    while (i + run < n && can_go(imp.page(first + i + run))) ++run;
    if (run == 0) {
      ++i;
      continue;
    }
    // Takes the pages from every mapping of the file, and then their memory.
    fallocate(imp.cache.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(size_t{first + i} * kPageSize),
              static_cast<off_t>(size_t{run} * kPageSize));
    for (uint32_t k = 0; k < run; ++k) {
      Page& q = imp.page(first + i + k);
      ++q.generation;
      q.marker = q.backed = false;
      if (q.state == PageState::kClean) set_state(core, imp, q, PageState::kAbsent);
    }
    imp.cache.use.gave_back(run);
    count(core.parts.stats.pages_evicted, run);
    i += run;
  }
  for (uint32_t i = 0; i < n; ++i) imp.page(first + i).unlock();
  imp.changes.notify();
}

namespace {
[[gnu::hot]] bool allocate_pages(const Import& imp, PageRange pages) {
  if (fault_point_fails("cache_no_memory")) return false;
  while (fallocate(imp.cache.file(), FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(size_t{pages.first} * kPageSize),
                   static_cast<off_t>(size_t{pages.count} * kPageSize)) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}
}  // namespace

[[gnu::hot]] bool back_pages(Import& imp, PageRange pages) {
  if (!imp.cache.use.unreserved()) return true;
  const bool there = allocate_pages(imp, pages);
  if (there) imp.cache.use.note_memory(true);
  return there;
}

}  // namespace cmi::memory

// Claims, grants, and which importers share what.
#include "core/memory/page/directory.hpp"

#include <algorithm>

#include "core/base/mutation.hpp"
#include "core/memory/page/page.hpp"

namespace cmi::memory {

void ImportRegions::claim(uint32_t region, uint32_t epoch) {
  uint64_t was = word(region).load(std::memory_order_relaxed);
  while (!word(region).compare_exchange_weak(was, (was & kEntries) | uint64_t{epoch} << kEpochShift,
                                             std::memory_order_seq_cst)) {
  }
}

void ImportRegions::granted(uint32_t region) {
  word(region).fetch_or(kHeld, std::memory_order_seq_cst);
}

bool ImportRegions::release(uint32_t region, uint32_t* epoch) {
  uint64_t was = word(region).load(std::memory_order_seq_cst);
  do {
    if ((was & kEntries) != 0 && !mutated("mutate_release_early")) return false;
  } while (!word(region).compare_exchange_weak(was, was & ~kHeld, std::memory_order_seq_cst));
  *epoch = static_cast<uint32_t>((was & ~kHeld) >> kEpochShift);
  return true;
}

namespace {
void append(std::vector<PageRange>* out, uint32_t first, uint32_t count) {
  if (!out->empty() && out->back().first + out->back().count == first) {
    out->back().count += count;
  } else {
    out->push_back({first, count});
  }
}

void append_region(std::vector<PageRange>* out, uint32_t region, uint32_t pages) {
  const uint32_t first = region * kRegionPages;
  append(out, first, std::min(kRegionPages, pages - first));
}
}  // namespace

std::vector<PageRange> Directory::acquire(SharedRegions& sharer, uint32_t first, uint32_t count,
                                          uint32_t epoch, uint32_t pages, uint64_t next) {
  std::vector<PageRange> fresh;
  for (uint32_t r = first; r < first + count; ++r) {
    if (!sharer.acquire(r, epoch, next)) continue;
    if (++sharers_[r] == 1) append_region(&fresh, r, pages);
  }
  return fresh;
}

void Directory::release(uint32_t region) {
  auto it = sharers_.find(region);
  if (--it->second == 0) sharers_.erase(it);
}

void Directory::drop(SharedRegions& sharer, uint32_t region, uint32_t epoch) {
  if (sharer.drop(region, epoch)) release(region);
}

void Directory::drop_all(SharedRegions& sharer) {
  sharer.clear([this](uint32_t region) { release(region); });
}

bool Directory::any_but(const SharedRegions* one, const std::vector<PageRange>& ranges) const {
  for (const PageRange& r : ranges) {
    const uint64_t end = uint64_t{r.first} + r.count;
    for (auto it = sharers_.lower_bound(region_of(r.first));
         it != sharers_.end() && uint64_t{it->first} * kRegionPages < end; ++it) {
      if (it->second > (one != nullptr && one->holds(it->first) ? 1U : 0U)) return true;
    }
  }
  return false;
}

std::vector<PageRange> Directory::shared(uint32_t pages) const {
  uint32_t next;
  return shared(pages, 0, UINT32_MAX, &next);
}

std::vector<PageRange> Directory::shared(uint32_t pages, uint32_t from, uint32_t most,
                                         uint32_t* next) const {
  std::vector<PageRange> out;
  auto it = sharers_.lower_bound(region_of(from));
  for (uint32_t left = std::max(most / kRegionPages, 1U); left > 0 && it != sharers_.end();
       --left) {
    append_region(&out, it->first, pages);
    ++it;
  }
  *next = it == sharers_.end() ? kNoPage : it->first * kRegionPages;
  return out;
}

}  // namespace cmi::memory

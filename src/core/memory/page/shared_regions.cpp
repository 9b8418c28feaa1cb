// What is held, entered and released.
#include "core/memory/page/shared_regions.hpp"

#include <algorithm>

#include "core/base/mutation.hpp"

namespace cmi::memory {

bool SharedRegions::acquire(uint32_t region, uint32_t epoch, uint64_t next) {
  const auto [it, fresh] = regions_.try_emplace(region);
  Held& held = it->second;
  if (held.refined != nullptr) --refined_;
  held = {epoch, next, nullptr, true};
  return fresh;
}

bool SharedRegions::drop(uint32_t region, uint32_t epoch) {
  const auto it = regions_.find(region);
  if (it == regions_.end()) return false;
  if (it->second.epoch != epoch && !mutated("mutate_release_any_epoch")) return false;
  if (it->second.refined != nullptr) --refined_;
  regions_.erase(it);
  return true;
}

void SharedRegions::enter(PageRange pages, uint64_t next) {
  for (uint32_t page = pages.first; page < pages.first + pages.count; ++page) {
    const auto it = regions_.find(region_of(page));
    if (it == regions_.end()) continue;
    Held& held = it->second;
    if (held.refined == nullptr) {
      held.entered = next;
    } else {
      held.refined->released.reset(page % kRegionPages);
      held.refined->entered[page % kGroups] = next;
    }
  }
}

void SharedRegions::release(uint32_t page, uint64_t number) {
  const auto it = regions_.find(region_of(page));
  if (it == regions_.end()) return;
  Held& held = it->second;
  const bool late = number < held.entered ||
                    (held.refined != nullptr && number < held.refined->entered[page % kGroups]);
  if (late && !mutated("mutate_release_any_number")) return;
  if (held.refined == nullptr) {
    if (refined_ == kMaxRefined) return;
    held.refined = std::make_unique<Refined>();
    ++refined_;
  }
  held.refined->released.set(page % kRegionPages);
}

bool SharedRegions::sparse(uint32_t region) const {
  const auto it = regions_.find(region);
  return it != regions_.end() && it->second.sparse;
}

void SharedRegions::not_sparse(uint32_t region) {
  const auto it = regions_.find(region);
  if (it != regions_.end()) it->second.sparse = false;
}

bool SharedRegions::may_have(uint32_t page) const {
  const auto it = regions_.find(region_of(page));
  return it != regions_.end() && trim(it->second, {page, 1}).count != 0;
}

PageRange SharedRegions::trim(const Held& held, PageRange pages) {
  if (held.refined == nullptr) return pages;
  const auto& released = held.refined->released;
  while (pages.count > 0 && released.test(pages.first % kRegionPages)) {
    ++pages.first;
    --pages.count;
  }
  while (pages.count > 0 && released.test((pages.first + pages.count - 1) % kRegionPages)) {
    --pages.count;
  }
  return pages;
}

std::vector<PageRange> SharedRegions::of(const std::vector<PageRange>& ranges) const {
  std::vector<PageRange> out;
  for (const PageRange& r : ranges) {
    const uint64_t end = uint64_t{r.first} + r.count;
    for (auto it = regions_.lower_bound(region_of(r.first));
         it != regions_.end() && uint64_t{it->first} * kRegionPages < end; ++it) {
      const uint64_t from = std::max<uint64_t>(r.first, uint64_t{it->first} * kRegionPages);
      const uint64_t to = std::min<uint64_t>(end, (uint64_t{it->first} + 1) * kRegionPages);
      const PageRange part =
          trim(it->second, {static_cast<uint32_t>(from), static_cast<uint32_t>(to - from)});
      if (part.count == 0) continue;
      if (!out.empty() && out.back().first + out.back().count == part.first) {
        out.back().count += part.count;
      } else {
        out.push_back(part);
      }
    }
  }
  return out;
}

}  // namespace cmi::memory

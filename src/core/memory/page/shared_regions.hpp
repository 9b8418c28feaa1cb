// What one sharer of a segment may have of it, at the home (protocol rule 10): the regions that it
// holds, and of each the pages that it has released one by one (rule 28). Pure: no system calls, no
// network. The lock of the owner guards it.
//
// A release comes with the acknowledgement of a notification, and counts if that notification was
// sent after the page was entered last. So it is enough to keep, of what enters, the number of the
// next notification. Numbers ascend and none is given twice, so there is no epoch that wraps.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

inline uint32_t region_of(uint32_t page) { return page / kRegionPages; }
inline uint32_t regions_of(uint64_t pages) {
  return static_cast<uint32_t>((pages + kRegionPages - 1) / kRegionPages);
}

class SharedRegions {
 public:
  // Of one sharer; pages of further ones are not released. 580 bytes each, 1.2 MiB in all.
  static constexpr size_t kMaxRefined = 2048;

  bool empty() const { return regions_.empty(); }
  size_t refined() const { return refined_; }  // regions of which some page was released
  // The region is held under this epoch, with all of its pages. `next`: the number of the next
  // notification. False: it was held before.
  bool acquire(uint32_t region, uint32_t epoch, uint64_t next);
  // False: it is not held under this epoch.
  bool drop(uint32_t region, uint32_t epoch);
  template <class Each>
  void clear(Each&& each) {
    for (const auto& [region, held] : regions_) each(region);
    regions_.clear();
    refined_ = 0;
  }

  // The sharer is about to have these pages again; done before any of them is read.
  void enter(PageRange pages, uint64_t next);
  // The sharer has not had the page when it took in the notification of this number.
  void release(uint32_t page, uint64_t number);
  bool may_have(uint32_t page) const;
  // Whether pages of the region are asked for that may have no memory at home yet: no one that had
  // some was asked for by a message since it is held.
  bool sparse(uint32_t region) const;
  void not_sparse(uint32_t region);
  bool holds(uint32_t region) const { return regions_.contains(region); }
  // Those of the ranges that the sharer may have. Of each range and region one at most, from the
  // first page to the last one that is not released.
  std::vector<PageRange> of(const std::vector<PageRange>& ranges) const;

 private:
  // A page that enters makes earlier notifications void for it and seven others of the region.
  static constexpr uint32_t kGroups = 64;
  struct Refined {
    std::bitset<kRegionPages> released;
    std::array<uint64_t, kGroups> entered{};  // number of the next notification then
  };
  struct Held {
    uint32_t epoch = 0;
    uint64_t entered = 0;  // the same of all pages
    std::unique_ptr<Refined> refined;
    bool sparse = true;
  };
  static PageRange trim(const Held& held, PageRange pages);

  std::map<uint32_t, Held> regions_;
  size_t refined_ = 0;
};

}  // namespace cmi::memory

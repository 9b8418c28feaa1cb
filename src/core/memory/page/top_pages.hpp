// Which pages cost most, of any number of them, in memory that does not grow: the space-saving
// algorithm, over buckets of four. A page that finds its bucket full takes the place of the one
// that has weighed least, and inherits that weight, so that a page that weighs much is never kept
// out; what is counted with it begins at zero. So what is reported of a page has happened, and
// things of before may be missing. Pure; the owner's lock guards it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cmi::memory {

template <class Cost, size_t kEntries>
class TopPages {
 public:
  struct Entry {
    uint32_t page = 0;
    uint64_t weight = 0;     // 0: the entry is free
    uint64_t inherited = 0;  // of the weight: of pages that had the entry before
    Cost cost{};
    uint64_t own_weight() const { return weight - inherited; }
  };

  // What is counted with the page, which has weighed `weight` more by now.
  Cost& add(uint32_t page, uint64_t weight = 1) {
    Entry& e = entry(page);
    if (e.weight == 0 || e.page != page) e = {page, e.weight, e.weight, {}};
    e.weight += weight;
    return e.cost;
  }
  // The same of a page that is known already, else null.
  Cost* find(uint32_t page) {
    Entry& e = entry(page);
    return e.weight != 0 && e.page == page ? &e.cost : nullptr;
  }
  // The heaviest first.
  std::vector<Entry> all() const {
    std::vector<Entry> found;
    for (const Entry& e : entries_) {
      if (e.weight != 0) found.push_back(e);
    }
    std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) {
      return a.own_weight() != b.own_weight() ? a.own_weight() > b.own_weight() : a.page < b.page;
    });
    return found;
  }

 private:
  static constexpr size_t kWays = 4;
  static_assert(kEntries % kWays == 0 && (kEntries & (kEntries - 1)) == 0);

  // The page's own entry, or the one whose place it takes: a free one has weighed least.
  Entry& entry(uint32_t page) {
    // Pages that follow one another lie in different buckets, and so do those at any power of two.
    const uint32_t mixed = page * 0x9e3779b1u;
    Entry* const bucket = &entries_[(mixed >> 16) % (kEntries / kWays) * kWays];
    Entry* least = bucket;
    for (Entry* e = bucket; e < bucket + kWays; ++e) {
      if (e->weight != 0 && e->page == page) return *e;
      if (e->weight < least->weight) least = e;
    }
    return *least;
  }

  std::array<Entry, kEntries> entries_{};
};

}  // namespace cmi::memory

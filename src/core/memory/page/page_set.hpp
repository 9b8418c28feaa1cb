// A set of pages, kept as ranges: size and time go with the ranges, not with the pages. Pure; the
// owner's lock guards it.
#pragma once

#include <map>
#include <vector>

#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

class PageSet {
 public:
  void add(PageRange pages);
  void remove(PageRange pages);
  void clear() { ends_.clear(); }
  bool empty() const { return ends_.empty(); }
  bool contains(uint32_t page) const;
  // Its first pages inside of `range`, as many as follow one another; count 0: it has none there.
  PageRange first_in(PageRange range) const;
  std::vector<PageRange> all() const { return in({0, UINT32_MAX}); }
  std::vector<PageRange> in(PageRange range) const;
  // What of the ranges it does not have; their order is kept.
  std::vector<PageRange> missing(const std::vector<PageRange>& ranges) const;

 private:
  std::map<uint32_t, uint32_t>
      ends_;  // first page, page after the last; neither empty nor touching
};

// The same pages, each once, in ascending order: whoever sends ranges may name a page many times
// over. Such as are so already are left as they are.
std::vector<PageRange> each_once(std::vector<PageRange> ranges);

}  // namespace cmi::memory

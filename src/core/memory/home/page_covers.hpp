// Covering pages in flux in this process's views of a segment of this node, and giving them back.
//
// A covered page is mapped from an empty file: an access to it gets SIGBUS, and with it CONSIST.
// That takes no userfaultfd, needs no page to be watched beforehand, and reaches loads and stores
// alike. The library's own accesses go through service views, which stay as they are.
// Under the segment's `views_mu`; uncovered() without it, too.
#pragma once

#include <atomic>
#include <vector>

#include "core/memory/home/adopted_views.hpp"
#include "core/memory/home/kernel_files.hpp"
#include "core/memory/home/segment.hpp"
#include "core/memory/home/store_tracker.hpp"

namespace cmi::memory {

class PageCovers {
 public:
  PageCovers(const KernelFiles& files, AdoptedViews& adopted, StoreTracker& tracker)
      : files_(files), adopted_(adopted), tracker_(tracker) {}

  // False: not all of it is covered in all views.
  bool cover(Segment& s, const std::vector<PageRange>& pages);
  bool cover(HomeView& v, PageRange pages);
  // False: all of it stays covered.
  bool uncover(Segment& s, PageRange pages);
  // How often pages were uncovered: a fault on a page that is not in flux may have met its cover.
  uint64_t uncovered() const { return uncovered_.load(std::memory_order_acquire); }
  // Faults may have met something else that is over now.
  void note_uncovered() { uncovered_.fetch_add(1, std::memory_order_release); }

 private:
  bool uncover(Segment& s, HomeView& v, PageRange pages);

  const KernelFiles& files_;
  AdoptedViews& adopted_;
  StoreTracker& tracker_;
  std::atomic<uint64_t> uncovered_{0};
};

}  // namespace cmi::memory

// Finds what processes of the home's node have stored to its segments: the kernel tracks the stores
// of this process and of others by their page tables; before Linux 6.7 the first store to a page
// faults, and each process reports its own. What is done with a segment is done under its
// `views_mu`.
#pragma once

#include <vector>

#include "core/memory/home/adopted_views.hpp"
#include "core/memory/home/kernel_files.hpp"
#include "core/memory/home/segment.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/node/node.hpp"

namespace cmi::memory {

class StoreTracker {
 public:
  StoreTracker(const KernelFiles& files, AdoptedViews& adopted, node::Node& node)
      : files_(files), adopted_(adopted), node_(node) {}
  Status open();

  bool by_kernel() const { return static_cast<bool>(tracked_); }
  // What notes stores, and what keeps stores away from read-only views and from memory that moves.
  // Both may be used without a lock.
  Userfault& tracker() { return tracked_ ? tracked_ : guarded_; }
  Userfault& guarded() { return guarded_; }

  // From now on stores through these views are noted. A view stays unarmed where that fails.
  // `held`: the pages that importers may have.
  void arm(const Segment& s, HomeView& v, const std::vector<PageRange>& held);
  void arm(Segment& s, const std::vector<PageRange>& held);
  // Whether views of the segment are protected region by region, as these come to be held: a page
  // table for each region that is. The kernel takes what is not protected for stored to.
  bool by_region(const Segment& s) const;
  // Of a view that is not scanned yet, of such a segment.
  static void protect(const ForeignView& v, const std::vector<PageRange>& pages);
  struct Found {
    std::vector<PageRange> pages;  // ascending; more than was asked for, it may be
    // A process that had a view has ended, and the view was dropped: what it had stored anywhere in
    // the segment is not known (rule 17).
    bool writer_ended = false;
  };
  // The pages of these ranges that this node has stored to since they were looked at last.
  Found scan(Segment& s, const std::vector<PageRange>& ranges);
  // Nobody needs to hear of what was stored to these pages until now.
  void forget(Segment& s, const std::vector<PageRange>& ranges);
  // The file was cut at `from`, in bytes: what lies behind that is protected again.
  void watch_again(Segment& s, uint64_t from);

 private:
  bool scan_own(Segment& s, HomeView& v, const std::vector<PageRange>& ranges,
                std::vector<PageRange>* out);
  void forget_own(Segment& s, HomeView& v, const std::vector<PageRange>& ranges);
  void scan_views(Segment& s, const std::vector<PageRange>& ranges,
                  std::vector<PageRange>* written);
  bool scan_foreign(Segment& s, const ForeignView& v, const std::vector<PageRange>& ranges,
                    std::vector<PageRange>* written);
  bool scan_with_holes(Segment& s, const ForeignView& v, std::vector<PageRange> left,
                       std::vector<PageRange>* written);

  const KernelFiles& files_;
  AdoptedViews& adopted_;
  node::Node& node_;
  Userfault tracked_, guarded_;
};

}  // namespace cmi::memory

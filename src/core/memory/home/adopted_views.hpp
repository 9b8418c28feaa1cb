// Memory of the client's own that has become a segment (home_views: seg_getva). The client may free
// some of it, or map something else there, without a word: what is left of a view is found in the
// mappings of the process. The lock of the home guards it.
#pragma once

#include "core/memory/home/kernel_files.hpp"
#include "core/memory/home/segment_table.hpp"
#include "core/memory/vm/view_table.hpp"

namespace cmi::memory {

class AdoptedViews {
 public:
  AdoptedViews(KernelFiles& files, ViewTable& views) : files_(files), views_(views) {}

  // Finds out which pages of the view the client has unmapped or mapped something else over: they
  // go to v.gone. False: the mappings cannot be read, so nothing may be mapped there.
  bool look(const Segment& s, HomeView& v);
  // The same of all adopted views that overlap with another view, which has been mapped there.
  void mapped_over(SegmentTable& segments, const std::byte* addr, size_t len);

 private:
  KernelFiles& files_;
  ViewTable& views_;
};

}  // namespace cmi::memory

// Memory of the client's own that has become a segment (home_views: seg_getva). The client may free
// some of it, or map something else there, without a word: what is left of a view is found in the
// mappings of the process. A view is looked at under its segment's `views_mu`.
#pragma once

#include "core/memory/home/kernel_files.hpp"
#include "core/memory/home/segment.hpp"
#include "core/memory/vm/view_table.hpp"

namespace cmi::memory {

class AdoptedViews {
 public:
  AdoptedViews(KernelFiles& files, ViewTable& views) : files_(files), views_(views) {}
  AdoptedViews(const AdoptedViews&) = delete;

  // Finds out which pages of the view the client has unmapped or mapped something else over: they
  // go to v.gone. False: the mappings cannot be read, so nothing may be mapped there.
  bool look(const Segment& s, HomeView& v);

 private:
  Mutex maps_mu_ CMI_ACQUIRED_AFTER(lock_order::after_rounds);  // over reading files_.maps
  KernelFiles& files_;
  ViewTable& views_;
};

}  // namespace cmi::memory

// The order of the home's locks, outermost first, as fabric/lock_order.hpp has it for the fabric:
// each mutex is declared between two levels, so that clang (-Wthread-safety-beta) sees any function
// that takes two of them the wrong way round. The levels are never locked and have no definition.
// What each lock guards: doc/design/locking.md.
//
//   breaks    Breaks::resize_mu_
//   memory    Segment::mu
//   views     Segment::views_mu
//   rounds    HomeCore::mu
//   leaves    SegmentTable::mu_, AdoptedViews::maps_mu_
#pragma once

#include "core/base/lock.hpp"

namespace cmi::memory::lock_order {

extern Mutex after_breaks;
extern Mutex after_memory CMI_ACQUIRED_AFTER(after_breaks);
extern Mutex after_views CMI_ACQUIRED_AFTER(after_memory);
extern Mutex after_rounds CMI_ACQUIRED_AFTER(after_views);

}  // namespace cmi::memory::lock_order

// The order of the context's locks, outermost first, as core/memory/importer/lock_order.hpp has it
// for the importer: the levels are never locked and have no definition. What each lock guards:
// doc/design/locking.md.
//
//   lifetime  g_lifetime
//   sizes     CacheSizes::mu_, Reservation::mu_
//   leaves    AttachedViews::mu_, ImportedSegments::mu_, IssuedObjects::mu_, ThreadList::mu_
#pragma once

#include "core/base/lock.hpp"

namespace cmi::context::lock_order {

extern Mutex after_lifetime;
extern Mutex after_sizes CMI_ACQUIRED_AFTER(after_lifetime);

}  // namespace cmi::context::lock_order

// Whether an importer may say that it will store to a page (rule 21), and whether pages may be
// entered for it that it has released (rule 28). Under the lock `mu` of the segment and
// HomeCore::mu.
#pragma once

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

WireStatus may_intend(const Segment& s, const Sharer& h, uint32_t page);
// Where a one-sided read of these pages would be let through.
WireStatus may_enter(const Segment& s, const Sharer& h, PageRange pages);

}  // namespace cmi::memory

// Whether an importer may say that it will store to a page (rule 21). Under the lock `mu` of the
// segment and HomeCore::mu.
#pragma once

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

WireStatus may_intend(const Segment& s, const Sharer& h, uint32_t page);

}  // namespace cmi::memory

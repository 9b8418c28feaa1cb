// Who uses a segment, as its home sees it: the verdict by which a lock passes from an owner that is
// gone to the next. An importer that is not among the sharers has left, or was fenced before it was
// forgotten (ImporterWatch::forget), so that nothing it has under way is applied any more.
#pragma once

#include <cstdint>

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

// Whether no import of the segment and no living process of the node has this name. Under the
// lock `mu` of a segment that this process owns.
bool holder_gone(HomeCore& home, const Segment& s, uint64_t holder);

// The same of any segment of this node. kReconfig: its owner does not answer in time. Waits.
Result<bool> holder_gone(HomeCore& home, int32_t segment, uint64_t holder, Deadline deadline);

}  // namespace cmi::memory

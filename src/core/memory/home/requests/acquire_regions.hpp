// Noting regions for an importer, in the directory (rule 10). Under the lock `mu` of the segment,
// which is kept until what is read there for the importer has been read.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

WireStatus acquire_regions(HomeCore& home, Segment& s, Sharer& h, const AcquireRequest& m)
    CMI_EXCLUDES(home.mu);

}  // namespace cmi::memory

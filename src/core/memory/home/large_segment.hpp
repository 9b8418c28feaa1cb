// Segments of large pages: views, in flux or given back, are changed by whole pages of the memory.
#pragma once

#include <vector>

#include "core/memory/home/segment.hpp"

namespace cmi::memory {

PageRange outward(PageRange pages, size_t page_size);
// Up to the segment's end; what comes to overlap is one range.
std::vector<PageRange> outward(const Segment& s, const std::vector<PageRange>& pages);

}  // namespace cmi::memory

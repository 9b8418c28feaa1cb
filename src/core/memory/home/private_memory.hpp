// Private memory with the content of a segment, to be mapped where the segment was.
#pragma once

#include <vector>

#include "core/base/fd.hpp"
#include "core/base/status.hpp"
#include "core/memory/page/page_set.hpp"

namespace cmi::memory {

inline std::vector<PageRange> whole(size_t size) {
  return {{0, static_cast<uint32_t>(size / kPageSize)}};
}
// Fresh private memory with those pages of the content. Broken ones are left out. kNoMem: there is
// none.
Status private_copy(const std::byte* content, size_t size, const std::vector<PageRange>& pages,
                    Mapping* copy, PageSet* broken);
// Moves those pages of the copy to `at`. It stays mapped as a whole until the caller unmaps it:
// into a hole another thread's mmap() would map, and that be unmapped with it. kNoMem: the kernel
// refused.
Status move_pages(const Mapping& copy, std::byte* at, const std::vector<PageRange>& pages,
                  bool locked);

}  // namespace cmi::memory

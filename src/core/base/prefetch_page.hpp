// Bringing a page to the processor's caches while something else is waited for. A copy into the
// page then does not wait for each of its lines, 1 us of a miss.
#pragma once

#include <cstddef>

#include "core/base/ids.hpp"

namespace cmi {

inline void prefetch_page(const std::byte* page) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < kPageSize; at += kLine) __builtin_prefetch(page + at, 1);
}

// Has the kernel map the page in this process, if it is not mapped yet. The byte that is read is
// not used: the provider may be filling the page already. The page must have memory, or a place for
// it.
__attribute__((no_sanitize("thread"))) inline void touch_page(const std::byte* page) {
  (void)*static_cast<const volatile std::byte*>(page);
}

}  // namespace cmi

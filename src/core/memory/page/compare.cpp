// What is the same for every processor.
#include "core/memory/page/compare.hpp"

#include <cstring>

namespace cmi::memory {

void read_words(const std::byte* page, std::byte* to) {
  for (size_t at = 0; at < kPageSize; at += sizeof(uint64_t)) {
    const auto word =
        __atomic_load_n(reinterpret_cast<const uint64_t*>(page + at), __ATOMIC_RELAXED);
    std::memcpy(to + at, &word, sizeof word);
  }
}

}  // namespace cmi::memory

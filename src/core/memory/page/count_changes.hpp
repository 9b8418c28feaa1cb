// How many bytes of a page have changed, and in how many runs. Inlined into functions for different
// processors.
#pragma once

#include "core/memory/page/compare.hpp"

namespace cmi::memory {

// `changed`: the words of `bits` that are not 0, few where a page was stored to here and there.
[[gnu::always_inline]] inline ChangeCount count_with(const ChangedBits& bits, uint64_t changed) {
  ChangeCount total;
  for (; changed != 0; changed &= changed - 1) {
    const auto b = static_cast<size_t>(__builtin_ctzll(changed));
    const uint64_t word = bits[b];
    const uint64_t before = b == 0 ? 0 : bits[b - 1] >> 63;  // the byte in front differs
    total.bytes += static_cast<size_t>(__builtin_popcountll(word));
    total.runs += static_cast<size_t>(__builtin_popcountll(word & ~(word << 1 | before)));
  }
  return total;
}

}  // namespace cmi::memory

// A name of 40 bits for who uses a segment, short enough for a word that one swap changes: the
// owner in a lock's word, for instance. An importer's comes from its context and the import's
// instance, so that an import which comes after a verdict has another name than the one that has
// ended. That of a process of the home's node comes from its context alone (instance 0).
#pragma once

#include <cstdint>

#include "core/base/ids.hpp"

namespace cmi {

inline constexpr int kHolderBits = 40;
inline constexpr uint64_t kHolderMask = (uint64_t{1} << kHolderBits) - 1;

// Never 0, which stands for nobody. Two users of one segment share a name with odds of 1 to 10^12;
// a living one then hides that the other is gone, and nothing worse.
inline uint64_t holder_of(const ContextId& context, uint32_t instance) {
  // The finaliser of MurmurHash3, over the context's random bits.
  uint64_t x = context.hi ^ (context.lo * 0x9e3779b97f4a7c15) ^ (uint64_t{instance} << 32);
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  const uint64_t name = (x ^ (x >> 33)) & kHolderMask;
  return name != 0 ? name : 1;
}

}  // namespace cmi

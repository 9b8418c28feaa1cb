// The comparison by NEON, which every aarch64 has.
#include <arm_neon.h>

#include "core/memory/page/compare.hpp"
#include "core/memory/page/count_changes.hpp"

namespace cmi::memory {

namespace {

const uint8_t* bytes(const std::byte* at) { return reinterpret_cast<const uint8_t*>(at); }

// All ones for each byte that is equal.
uint8x16_t equal(const std::byte* page, const std::byte* twin) {
  return vceqq_u8(vld1q_u8(bytes(page)), vld1q_u8(bytes(twin)));
}

uint64_t compare_neon(const std::byte* page, const std::byte* twin, ChangedBits& bits) {
  static_assert(kCompareBlocks == 64 && kCompareBlock == 64, "a bit for each block and byte");
  // Each byte keeps the bit of its place among eight; adding neighbours three times joins them.
  const uint8x16_t place = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  uint64_t changed = 0;
  for (size_t b = 0; b < kCompareBlocks; ++b, page += kCompareBlock, twin += kCompareBlock) {
    const uint8x16_t first = vbicq_u8(place, equal(page, twin));
    const uint8x16_t second = vbicq_u8(place, equal(page + 16, twin + 16));
    const uint8x16_t third = vbicq_u8(place, equal(page + 32, twin + 32));
    const uint8x16_t fourth = vbicq_u8(place, equal(page + 48, twin + 48));
    const uint8x16_t halves = vpaddq_u8(vpaddq_u8(first, second), vpaddq_u8(third, fourth));
    bits[b] = vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(halves, halves)), 0);
    changed |= uint64_t{bits[b] != 0} << b;
  }
  return changed;
}

constexpr CompareWay kWays[] = {{"neon", [] { return true; }, compare_neon}};

}  // namespace

std::span<const CompareWay> compare_ways() { return kWays; }

static bool all_differ(const std::byte* page, const std::byte* twin, size_t len) {
  for (size_t at = 0; at < len; at += sizeof(uint8x16_t)) {
    if (vmaxvq_u8(equal(page + at, twin + at)) != 0) return false;
  }
  return true;
}

bool all_differ(const std::byte* page, const std::byte* twin) {
  return all_differ(page, twin, kPageSize);
}

bool all_differ(const std::byte* page, const std::byte* twin, const std::byte* next_page,
                const std::byte* next_twin) {
  for (size_t at = 0; at < kPageSize; at += kCompareBlock) {
    __builtin_prefetch(next_page + at);
    __builtin_prefetch(next_twin + at);
    if (!all_differ(page + at, twin + at, kCompareBlock)) return false;
  }
  return true;
}

uint64_t compare(const std::byte* page, const std::byte* twin, ChangedBits& bits) {
  return compare_neon(page, twin, bits);
}

ChangeCount count_changes(const ChangedBits& bits, uint64_t changed) {
  return count_with(bits, changed);
}

}  // namespace cmi::memory

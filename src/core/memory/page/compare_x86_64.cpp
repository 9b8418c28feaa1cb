// One comparison for each width of vector, and the choice among them.
#include <immintrin.h>

#include "core/memory/page/compare.hpp"
#include "core/memory/page/count_changes.hpp"

namespace cmi::memory {

namespace {

[[gnu::target("avx512bw")]] uint64_t compare_avx512(const std::byte* page, const std::byte* twin,
                                                    ChangedBits& bits) {
  static_assert(kCompareBlocks == 64, "a bit for each block");
#pragma GCC unroll 8
  for (size_t b = 0; b < kCompareBlocks; ++b) {
    const __m512i p = _mm512_loadu_si512(page + b * kCompareBlock);
    const __m512i t = _mm512_loadu_si512(twin + b * kCompareBlock);
    bits[b] = _mm512_cmpneq_epi8_mask(p, t);
  }
  // Once more over the words, eight at a time, takes less than a test of each as it comes.
  uint64_t changed = 0;
#pragma GCC unroll 8
  for (size_t b = 0; b < kCompareBlocks; b += 8) {
    const __m512i words = _mm512_loadu_si512(bits + b);
    changed |= uint64_t{_mm512_test_epi64_mask(words, words)} << b;
  }
  return changed;
}

[[gnu::target("avx2")]] uint64_t compare_avx2(const std::byte* page, const std::byte* twin,
                                              ChangedBits& bits) {
  uint64_t changed = 0;
  for (size_t b = 0; b < kCompareBlocks; ++b) {
    const auto* p = reinterpret_cast<const __m256i*>(page + b * kCompareBlock);
    const auto* t = reinterpret_cast<const __m256i*>(twin + b * kCompareBlock);
    const __m256i low = _mm256_cmpeq_epi8(_mm256_loadu_si256(p), _mm256_loadu_si256(t));
    const __m256i high = _mm256_cmpeq_epi8(_mm256_loadu_si256(p + 1), _mm256_loadu_si256(t + 1));
    const auto low_equal = static_cast<uint32_t>(_mm256_movemask_epi8(low));
    const auto high_equal = static_cast<uint32_t>(_mm256_movemask_epi8(high));
    bits[b] = ~(low_equal | uint64_t{high_equal} << 32);
    changed |= uint64_t{bits[b] != 0} << b;
  }
  return changed;
}

uint64_t compare_sse2(const std::byte* page, const std::byte* twin, ChangedBits& bits) {
  uint64_t changed = 0;
  for (size_t b = 0; b < kCompareBlocks; ++b) {
    uint64_t equal = 0;
    for (size_t i = 0; i < 4; ++i) {
      const auto* p = reinterpret_cast<const __m128i*>(page + b * kCompareBlock) + i;
      const auto* t = reinterpret_cast<const __m128i*>(twin + b * kCompareBlock) + i;
      const __m128i same = _mm_cmpeq_epi8(_mm_loadu_si128(p), _mm_loadu_si128(t));
      equal |= uint64_t{static_cast<uint32_t>(_mm_movemask_epi8(same))} << (16 * i);
    }
    bits[b] = ~equal;
    changed |= uint64_t{bits[b] != 0} << b;
  }
  return changed;
}

[[gnu::target("popcnt")]] ChangeCount count_popcnt(const ChangedBits& bits, uint64_t changed) {
  return count_with(bits, changed);
}

// Widest first. The processor is asked by loads of a word that the compiler's runtime filled in
// before main: fine in a signal handler.
constexpr CompareWay kWays[] = {
    {"avx512bw", [] { return __builtin_cpu_supports("avx512bw") != 0; }, compare_avx512},
    {"avx2", [] { return __builtin_cpu_supports("avx2") != 0; }, compare_avx2},
    {"sse2", [] { return true; }, compare_sse2},
};

}  // namespace

std::span<const CompareWay> compare_ways() { return kWays; }

static bool all_differ(const std::byte* page, const std::byte* twin, size_t len) {
  for (size_t at = 0; at < len; at += sizeof(__m128i)) {
    const __m128i p = _mm_loadu_si128(reinterpret_cast<const __m128i*>(page + at));
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(twin + at));
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(p, t)) != 0) return false;
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
  if (__builtin_cpu_supports("avx512bw")) return compare_avx512(page, twin, bits);
  if (__builtin_cpu_supports("avx2")) return compare_avx2(page, twin, bits);
  return compare_sse2(page, twin, bits);
}

ChangeCount count_changes(const ChangedBits& bits, uint64_t changed) {
  return __builtin_cpu_supports("popcnt") ? count_popcnt(bits, changed) : count_with(bits, changed);
}

}  // namespace cmi::memory

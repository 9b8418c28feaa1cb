// Which bytes of a page differ from its twin: the hot loop under every diff. Pure code: any thread,
// the fault handler too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/ids.hpp"

namespace cmi::memory {

inline constexpr size_t kCompareBlock = 64;  // bytes, one word of bits
inline constexpr size_t kCompareBlocks = kPageSize / kCompareBlock;
using ChangedBits = uint64_t[kCompareBlocks];  // bit i of word b: byte b * 64 + i differs

// Fills `bits`, and returns a bit for each word of them that is not 0. Takes the fastest of those
// below.
uint64_t compare(const std::byte* page, const std::byte* twin, ChangedBits& bits);

// Whether every byte differs. Mostly decided by the first few.
bool all_differ(const std::byte* page, const std::byte* twin);

// Copies a page that others may be storing to: each aligned word of 8 bytes is read once, whole.
void read_words(const std::byte* page, std::byte* to);

// Only where the processor has what the name says; every x86-64 has sse2.
uint64_t compare_avx512(const std::byte* page, const std::byte* twin, ChangedBits& bits);
uint64_t compare_avx2(const std::byte* page, const std::byte* twin, ChangedBits& bits);
uint64_t compare_sse2(const std::byte* page, const std::byte* twin, ChangedBits& bits);

}  // namespace cmi::memory

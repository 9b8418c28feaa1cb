// Which bytes of a page differ from its twin: the hot loop under every diff. Pure code: any thread,
// the fault handler too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/ids.hpp"

namespace cmi::memory {

inline constexpr size_t kCompareBlock = 64;  // bytes, one word of bits
inline constexpr size_t kCompareBlocks = kPageSize / kCompareBlock;
using ChangedBits = uint64_t[kCompareBlocks];  // bit i of word b: byte b * 64 + i differs

// Fills `bits`, and returns a bit for each word of them that is not 0. Takes the fastest way
// that the processor has.
uint64_t compare(const std::byte* page, const std::byte* twin, ChangedBits& bits);

// Whether every byte differs. Mostly decided by the first few.
bool all_differ(const std::byte* page, const std::byte* twin);
// The same. `next_page` and `next_twin` are compared next: their lines are asked for meanwhile.
bool all_differ(const std::byte* page, const std::byte* twin, const std::byte* next_page,
                const std::byte* next_twin);

// Copies a page that others may be storing to: each aligned word of 8 bytes is read once, whole.
void read_words(const std::byte* page, std::byte* to);

struct ChangeCount {
  size_t bytes = 0;
  size_t runs = 0;
};
// `changed` is what compare() has returned with the bits.
ChangeCount count_changes(const ChangedBits& bits, uint64_t changed);

// What compare() chooses from, the best first: for tests.
struct CompareWay {
  const char* name;
  bool (*possible)();  // on this processor
  uint64_t (*compare)(const std::byte* page, const std::byte* twin, ChangedBits& bits);
};
std::span<const CompareWay> compare_ways();

}  // namespace cmi::memory

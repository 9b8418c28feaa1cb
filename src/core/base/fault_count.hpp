// What CMI_FAULT_COUNT names: a file to count in how often each fault point is passed, set or not,
// so that a test knows what its program comes past. Points that are passed before cmi_ini has read
// the environment count for nothing. Any thread counts, signal handlers too.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cmi {

// The file is an array of these; several may have the same name. Free ones have none.
struct FaultCount {
  std::array<char, 56> name;
  std::atomic<uint64_t> passed;
};
inline constexpr size_t kFaultCounts = 512;

}  // namespace cmi

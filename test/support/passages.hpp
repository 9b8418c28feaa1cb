// What a process came past: the file that CMI_FAULT_COUNT named for it (core/base/fault_count.hpp),
// read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "core/base/fault_count.hpp"

namespace cmi::test {

// How often each fault point was passed, of those that were. Nothing where there is no file.
using Passages = std::map<std::string, uint64_t>;

inline Passages read_passages(const std::string& path) {
  Passages all;
  std::ifstream file(path, std::ios::binary);
  std::array<char, sizeof(FaultCount)> bytes{};
  while (file.read(bytes.data(), bytes.size())) {
    uint64_t count = 0;
    std::memcpy(&count, bytes.data() + offsetof(FaultCount, passed), sizeof count);
    if (count != 0) all[bytes.data()] += count;
  }
  return all;
}

}  // namespace cmi::test

// What program_home and the programs that import its segment share: a file that each maps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cmi::test {

struct ProgramExport {
  alignas(8) std::byte handle[1024], token[1024];
  uint64_t size;
  std::atomic<uint64_t> taken{0}, blocks{0};  // bytes of the segment, and how many blocks they are
};

}  // namespace cmi::test

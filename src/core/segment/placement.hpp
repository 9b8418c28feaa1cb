// What this machine has for memory, and where a segment's memory is to lie in it. The one user of
// hwloc. Any thread, but not the fault handler: the first call loads the topology.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cmi::segment {

struct Machine {
  uint64_t ram_bytes = 0;  // of the whole machine, whatever this process may use of it
  uint64_t page_size = 0;
};

// Found out at the first call, the same ever after.
const Machine& machine();

// Asks the kernel to take pages of this range that are not there yet from the calling thread's NUMA
// node, or from others when that one is full. `addr` is page aligned. Best effort, no error:
// nothing happens with one NUMA node or where the kernel refuses.
void place_memory(void* addr, size_t len);

}  // namespace cmi::segment

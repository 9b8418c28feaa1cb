// What the machine has of memory, and what of it is free: for the whole machine, or for the control
// group that the process lies in, whichever is less. Reads /proc and /sys; any thread; no state.
#pragma once

#include <string>

#include "core/node/node_types.hpp"

namespace cmi::node {

MachineMemory machine_memory();
// The same of the files below this folder, which stands for /.
MachineMemory machine_memory_below(const std::string& root);

// Memory that is left to others, whatever segments are made: of the whole, and of what is free.
inline uint64_t most_of_all_nodes(const MachineMemory& m) {
  return m.total == UINT64_MAX ? UINT64_MAX : m.total - m.total / 8;
}
inline uint64_t usable_of_free(const MachineMemory& m) {
  if (m.free == UINT64_MAX || m.total == UINT64_MAX) return m.free;
  return m.free > m.total / 32 ? m.free - m.total / 32 : 0;
}

}  // namespace cmi::node

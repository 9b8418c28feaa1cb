// What this machine has for memory, and where a segment's memory is to lie in it. The one user of
// hwloc. Any thread, but not the fault handler: the first call loads the topology.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct hwloc_topology;
struct hwloc_bitmap_s;

namespace cmi::segment {

struct Machine {
  uint64_t ram_bytes = 0;  // of the whole machine, whatever this process may use of it
  uint64_t page_size = 0;
};

// Found out at the first call, the same ever after.
const Machine& machine();

// Asks the kernel to take pages of this range that are not there yet from the NUMA node that the
// fabric's device is near to, as the system names it ("eth0", "mlx5_0"), or for one that is near to
// none, or not known, from the calling thread's; from others when that one is full. `addr` is page
// aligned. Best effort, no error: nothing happens with one NUMA node or where the kernel refuses.
void place_memory(void* addr, size_t len, const std::string& device);

// The machine as hwloc sees it at this moment, or as its variables (HWLOC_XMLFILE) describe another
// one. Immutable: any thread.
class Topology {
 public:
  Topology();
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  // NUMA nodes for this device's memory, by the kernel's numbers; empty: there is nothing to
  // choose.
  std::vector<unsigned> nodes_for(const std::string& device) const;
  void place(void* addr, size_t len, const std::string& device) const;

 private:
  bool find_nodes(const std::string& device, hwloc_bitmap_s* nodes) const;

  hwloc_topology* topology_ = nullptr;  // nullptr: none, or not this machine's
  bool choice_ = false;                 // several NUMA nodes; devices are known
};

}  // namespace cmi::segment

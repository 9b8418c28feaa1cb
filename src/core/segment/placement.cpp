// The machine as hwloc sees it, reduced to what is used: NUMA nodes and page sizes.
#include "core/segment/placement.hpp"

#include <hwloc.h>
#include <unistd.h>

#include "core/base/log.hpp"

namespace cmi::segment {

namespace {

// NUMA nodes and processors alone: no caches, devices, distances or processor kinds, and not the
// backend that moves the calling thread over all processors.
hwloc_topology_t load_topology() {
  hwloc_topology_t t = nullptr;
  if (hwloc_topology_init(&t) != 0) return nullptr;
#if HWLOC_API_VERSION >= 0x00020800
  hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                                  HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
#endif
  hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  // A topology from a file or a description, by one of hwloc's own variables, is another machine's.
  if (hwloc_topology_load(t) != 0 || hwloc_topology_is_thissystem(t) == 0) {
    hwloc_topology_destroy(t);
    return nullptr;
  }
  return t;
}

uint64_t system_value(int name) {
  const long v = sysconf(name);
  return v > 0 ? static_cast<uint64_t>(v) : 0;
}

struct Found {
  Machine machine;
  hwloc_topology_t topology = nullptr;  // for placing; nullptr where there is nothing to choose

  Found() {
    machine.page_size = system_value(_SC_PAGESIZE);
    // Not the sum of the nodes' memory: that leaves out nodes closed to this process, and in a
    // virtual machine that gets its memory as it needs it (seen with Linux 6.18) it grows as one
    // looks, while all contexts of a node have to agree.
    machine.ram_bytes = system_value(_SC_PHYS_PAGES) * machine.page_size;
    hwloc_topology_t t = load_topology();
    if (t != nullptr) {
      if (hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE) > 1) {
        topology = t;
      } else {
        hwloc_topology_destroy(t);
      }
    }
  }
};

// Made once and kept to the end: placing may be asked for until the last thread ends.
const Found& found() {
  static const Found* const only = new Found;
  return *only;
}

}  // namespace

const Machine& machine() { return found().machine; }

void place_memory(void* addr, size_t len) {
  hwloc_topology_t t = found().topology;
  if (t == nullptr || len == 0) return;
  hwloc_bitmap_t here = hwloc_bitmap_alloc();
  if (here == nullptr) return;
  // BIND without STRICT is a preference on Linux: with that node full, others serve.
  if (hwloc_get_last_cpu_location(t, here, HWLOC_CPUBIND_THREAD) == 0 &&
      hwloc_set_area_membind(t, addr, len, here, HWLOC_MEMBIND_BIND, 0) != 0) {
    trace(kFacSeg, kInfo, "memory of a segment is placed by the kernel: {} bytes not bound", len);
  }
  hwloc_bitmap_free(here);
}

}  // namespace cmi::segment

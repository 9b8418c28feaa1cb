// The machine as hwloc sees it, reduced to what is used: NUMA nodes, and where there is a choice of
// them, devices.
#include "core/segment/placement.hpp"

#include <hwloc.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "core/base/log.hpp"

namespace cmi::segment {

namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_s* b) const { hwloc_bitmap_free(b); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// hwloc writes to the client's standard error where there is no /sys, unless this variable hides
// that. Read once, in the first topology; like every setenv it races with other threads' getenv.
class QuietHwloc {
 public:
  QuietHwloc() {
    if (set_) ::setenv(kName, "2", 1);
  }
  ~QuietHwloc() {
    if (set_) ::unsetenv(kName);
  }
  QuietHwloc(const QuietHwloc&) = delete;
  QuietHwloc& operator=(const QuietHwloc&) = delete;

 private:
  static constexpr const char* kName = "HWLOC_HIDE_ERRORS";
  const bool set_ = std::getenv(kName) == nullptr;
};

// NUMA nodes and processors alone: no caches, distances or processor kinds, and not the backend
// that moves the calling thread over all processors. Devices take time: only if they are wanted.
hwloc_topology_t load_topology(bool devices) {
  const QuietHwloc quiet;
  hwloc_topology_t t = nullptr;
  if (hwloc_topology_init(&t) != 0) return nullptr;
#if HWLOC_API_VERSION >= 0x00020800
  hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                                  HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
#endif
  hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (devices) {
    // A device is near to what it hangs on, which must be there.
    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    hwloc_topology_set_type_filter(t, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    hwloc_topology_set_type_filter(t, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  }
  // Nor those that would look for devices by loading drivers or asking an X server in the client.
  for (const char* component : {"x86", "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero"}) {
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  // A topology from a file or a description, by one of hwloc's own variables, is another machine's
  // unless HWLOC_THISSYSTEM says that it is this one's.
  if (hwloc_topology_load(t) != 0 || hwloc_topology_is_thissystem(t) == 0) {
    hwloc_topology_destroy(t);
    return nullptr;
  }
  return t;
}

// What the device hangs on, or nullptr.
hwloc_obj_t parent_of(hwloc_topology_t t, const std::string& device) {
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_osdev(t, o)) != nullptr;) {
    if (o->name != nullptr && device == o->name) return hwloc_get_non_io_ancestor_obj(t, o);
  }
  return nullptr;
}

uint64_t system_value(int name) {
  const long v = sysconf(name);
  return v > 0 ? static_cast<uint64_t>(v) : 0;
}

struct Found {
  Topology topology;
  Machine machine;

  Found() {
    machine.page_size = system_value(_SC_PAGESIZE);
    // Not the sum of the nodes' memory: that leaves out nodes closed to this process, and in a
    // virtual machine that gets its memory as it needs it (seen with Linux 6.18) it grows as one
    // looks, while all contexts of a node have to agree.
    machine.ram_bytes = system_value(_SC_PHYS_PAGES) * machine.page_size;
  }
};

// Made once and kept to the end: placing may be asked for until the last thread ends.
const Found& found() {
  static const Found* const only = new Found;
  return *only;
}

}  // namespace

Topology::Topology() : topology_(load_topology(false)) {
  if (topology_ == nullptr) return;
  choice_ = hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_NUMANODE) > 1;
  if (!choice_) return;
  if (hwloc_topology_t with_devices = load_topology(true); with_devices != nullptr) {
    hwloc_topology_destroy(topology_);
    topology_ = with_devices;
  }
}

Topology::~Topology() {
  if (topology_ != nullptr) hwloc_topology_destroy(topology_);
}

bool Topology::find_nodes(const std::string& device, hwloc_bitmap_s* nodes) const {
  if (!choice_) return false;
  hwloc_obj_t at = parent_of(topology_, device);
  // A verbs provider adds the kind of endpoint to the name.
  const size_t end = device.rfind('-');
  if (at == nullptr && end != std::string::npos) at = parent_of(topology_, device.substr(0, end));
  if (at != nullptr && at->nodeset != nullptr && hwloc_bitmap_iszero(at->nodeset) == 0 &&
      hwloc_bitmap_isequal(at->nodeset, hwloc_topology_get_topology_nodeset(topology_)) == 0) {
    return hwloc_bitmap_copy(nodes, at->nodeset) == 0;
  }
  const Bitmap here(hwloc_bitmap_alloc());
  if (here == nullptr ||
      hwloc_get_last_cpu_location(topology_, here.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return false;
  }
  hwloc_cpuset_to_nodeset(topology_, here.get(), nodes);
  return hwloc_bitmap_iszero(nodes) == 0;
}

std::vector<unsigned> Topology::nodes_for(const std::string& device) const {
  std::vector<unsigned> all;
  const Bitmap nodes(hwloc_bitmap_alloc());
  if (nodes == nullptr || !find_nodes(device, nodes.get())) return all;
  for (int i = hwloc_bitmap_first(nodes.get()); i >= 0; i = hwloc_bitmap_next(nodes.get(), i)) {
    all.push_back(static_cast<unsigned>(i));
  }
  return all;
}

void Topology::place(void* addr, size_t len, const std::string& device) const {
  if (!choice_ || len == 0) return;
  const Bitmap nodes(hwloc_bitmap_alloc());
  if (nodes == nullptr || !find_nodes(device, nodes.get())) return;
  // BIND without STRICT is a preference on Linux: with that node full, others serve.
  if (hwloc_set_area_membind(topology_, addr, len, nodes.get(), HWLOC_MEMBIND_BIND,
                             HWLOC_MEMBIND_BYNODESET) != 0) {
    trace(kFacSeg, kInfo, "memory of a segment is placed by the kernel: {} bytes not bound", len);
  }
}

const Machine& machine() { return found().machine; }

void place_memory(void* addr, size_t len, const std::string& device) {
  found().topology.place(addr, len, device);
}

}  // namespace cmi::segment

// What the machine is said to be, compared with what the system says elsewhere; and where memory
// is placed, on a described machine of two NUMA nodes.
#include "core/segment/placement.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstring>

#include "core/base/fd.hpp"
#include "support/described_machine.hpp"
#include "support/skip.hpp"

namespace cmi::test::placement_test {

namespace {

// The policy of a mapping's memory, as the kernel has it.
struct Policy {
  int mode = -1;  // 0: none; -1: it cannot be had
  uint64_t nodes = 0;
};
Policy policy_at(void* addr) {
  constexpr unsigned long kOfAddress = 2;  // MPOL_F_ADDR
  Policy p;
  uint64_t nodes[16] = {};
  if (::syscall(SYS_get_mempolicy, &p.mode, nodes, sizeof nodes * 8, addr, kOfAddress) != 0) {
    return {};
  }
  p.nodes = nodes[0];
  return p;
}

using Nodes = std::vector<unsigned>;

}  // namespace

TEST_CASE("the_machine_has_the_memory_and_pages_that_the_kernel_reports") {
  const segment::Machine& m = segment::machine();
  struct sysinfo info;
  REQUIRE(sysinfo(&info) == 0);
  CHECK(m.ram_bytes == uint64_t{info.totalram} * info.mem_unit);
  CHECK(m.page_size == static_cast<uint64_t>(getpagesize()));
  CHECK(&segment::machine() == &m);
}

TEST_CASE("placed_memory_keeps_its_content_and_can_be_used") {
  constexpr size_t kSize = 64 << 10;
  Fd file(memfd_create("placed", MFD_CLOEXEC));
  REQUIRE(file);
  REQUIRE(ftruncate(file.get(), kSize) == 0);
  void* p = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  REQUIRE(p != MAP_FAILED);
  Mapping mapping(p, kSize);
  std::memset(mapping.data(), 1, kSize / 2);
  segment::place_memory(mapping.data(), kSize, "lo");
  std::memset(mapping.data() + kSize / 2, 2, kSize / 2);
  CHECK(mapping.data()[0] == std::byte{1});
  CHECK(mapping.data()[kSize - 1] == std::byte{2});
  segment::place_memory(mapping.data(), 0, "lo");
}

TEST_CASE("memory_goes_to_the_numa_node_that_the_device_is_near_to") {
  const test::DescribedMachine two("eth3", "eth7");
  const segment::Topology machine;
  CHECK(machine.nodes_for("eth3") == Nodes{0});
  CHECK(machine.nodes_for("eth7") == Nodes{1});
  CHECK(machine.nodes_for("eth7-dgram") == Nodes{1});  // as verbs says it
}

TEST_CASE("memory_goes_to_the_threads_numa_node_where_no_device_is_near_to_one") {
  cpu_set_t former, first;
  REQUIRE(sched_getaffinity(0, sizeof former, &former) == 0);
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  if (sched_setaffinity(0, sizeof first, &first) != 0) {
    return test::skip("processor 0 is not for this process");
  }
  const test::DescribedMachine two("eth3", "eth7");
  const segment::Topology machine;
  for (const char* device : {"lo", "eth33", "eth", ""}) {
    CAPTURE(device);
    CHECK(machine.nodes_for(device) == Nodes{0});
  }
  REQUIRE(sched_setaffinity(0, sizeof former, &former) == 0);
}

TEST_CASE("the_kernel_is_told_where_memory_is_to_lie") {
  constexpr size_t kSize = 64 << 10;
  Fd file(memfd_create("placed", MFD_CLOEXEC));
  REQUIRE(file);
  REQUIRE(ftruncate(file.get(), kSize) == 0);
  void* p = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  REQUIRE(p != MAP_FAILED);
  Mapping mapping(p, kSize);
  if (policy_at(p).mode != 0) return test::skip("the kernel has no memory policies here");
  const test::DescribedMachine two("eth3", "eth7");
  const segment::Topology machine;
  // Node 1 may be no node of the real machine: then the kernel refuses, and nothing is changed.
  machine.place(p, kSize, "eth7");
  CHECK((policy_at(p).nodes & 1) == 0);
  machine.place(p, kSize, "eth3");
  CHECK(policy_at(p).nodes == 1);
  CHECK(policy_at(p).mode != 0);
}

TEST_CASE("a_machine_that_is_described_and_not_said_to_be_this_one_places_nothing") {
  const test::DescribedMachine two("eth3", "eth7");
  ::unsetenv("HWLOC_THISSYSTEM");
  const segment::Topology machine;
  CHECK(machine.nodes_for("eth7").empty());
}

}  // namespace cmi::test::placement_test

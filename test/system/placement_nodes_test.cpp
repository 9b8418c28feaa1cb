// Where the memory of segments lies: on a machine that is described to have two NUMA nodes.
#include <doctest/doctest.h>

#include <array>
#include <fstream>
#include <string>

#include "support/described_machine.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::placement_nodes_test {

namespace {

using Policy = std::array<char, 64>;

// What the kernel was told of a segment's memory, in the words of /proc/self/numa_maps.
constexpr auto policy_of_segments = [] {
  Policy found{};
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/seg-") == std::string::npos) continue;
    const size_t at = line.find(' ') + 1;
    const std::string policy = line.substr(at, line.find(" file=", at) - at);
    if (found[0] == '\0' || policy != "default") policy.copy(found.data(), found.size() - 1);
  }
  return found;
};

std::string policy_with(const std::string& near_first, const std::string& near_second) {
  const DescribedMachine two(near_first, near_second);
  Cluster cluster;
  Process& home = cluster.spawn("home", {{"CMI_ADDRESS", "127.0.0.1"}});
  REQUIRE(seg_get(home, 16 * kPage).ok());
  return home.run(policy_of_segments).data();
}

TEST_SUITE("placement") {
  TEST_CASE("the_memory_of_a_segment_is_placed_near_the_fabrics_device") {
    if (!std::ifstream("/proc/self/numa_maps")) return skip("the kernel has no memory policies");
    // Loopback is what carries it here. The process runs where it likes.
    const std::string first = policy_with("lo", "other");
    CHECK(first.find("prefer") == 0);
    CHECK(first.back() == '0');
    // The real machine may have no second node: then the kernel refuses, and chooses itself.
    const std::string second = policy_with("other", "lo");
    CHECK((second == "default" || second.back() == '1'));
  }
}

}  // namespace

}  // namespace cmi::test::placement_nodes_test

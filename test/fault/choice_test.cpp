// Addresses between machines: what is chosen, and what is said where no choice can work.
#include <doctest/doctest.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>

#include "fabric/ofi/info.hpp"
#include "fault/network.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::choice_test {

namespace {

std::string text_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST_SUITE("choice") {
  TEST_CASE("importing_from_a_home_that_listens_on_loopback_only_says_so") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    const std::string said = cluster.scratch() + "/said";
    Process& home = cluster.spawn("home", {{"CMI_ADDRESS", "127.0.0.1"}});
    Process& peer = cluster.spawn("peer", {{"CMI_TRACE_FILE", said}});
    const Export exported = export_segment(home);
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_INVAL));
    CHECK(text_of(said).find("listens on loopback only") != std::string::npos);
  }

  TEST_CASE("a_process_on_loopback_is_told_that_a_home_elsewhere_cannot_answer_it") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    const std::string said = cluster.scratch() + "/said";
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_ADDRESS", "127.0.0.1"}, {"CMI_TRACE_FILE", said}});
    const Export exported = export_segment(home);
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_INVAL));
    CHECK(text_of(said).find("this process listens on loopback only") != std::string::npos);
  }

  TEST_CASE("nodes_that_take_their_address_by_auto_share_a_segment") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    Process& home = cluster.spawn("home", {{"CMI_ADDRESS", "auto"}});
    Process& peer = cluster.spawn("peer", {{"CMI_ADDRESS", "auto"}});
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    CHECK(publish(peer, import.at, 5));
    CHECK(load(home, exported.at).value == 5);
  }

  TEST_CASE("nodes_at_addresses_of_ipv6_share_a_segment") {
    Cluster cluster;
    Process& home = cluster.spawn_bare("home", {{"CMI_ADDRESS", "::1"}});
    if (!ini(home).ok()) return skip("this machine has no ::1");
    Process& peer = cluster.spawn("peer", {{"CMI_ADDRESS", "::1"}});
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    CHECK(publish(peer, import.at, 5));
    CHECK(load(home, exported.at).value == 5);
    const std::string said = cluster.scratch() + "/said";
    Process& other = cluster.spawn("other", {{"CMI_TRACE_FILE", said}});
    CHECK(seg_imp(other, exported.handle).failed(CMI_ERR_INVAL));
    CHECK(text_of(said).find("IPv6") != std::string::npos);
  }

  TEST_CASE("a_provider_that_is_refused_fails_cmi_ini_with_the_reason") {
    using Name = std::array<char, 8>;
    for (const Name name : {Name{"shm"}, Name{"udp"}}) {
      std::string provider = name.data();
      if (provider == "shm") provider = "ofi:shm";  // by its own name it is the machine's memory
      CAPTURE(provider);
      Cluster cluster;
      const std::string said = cluster.scratch() + "/said";
      Process& process =
          cluster.spawn_bare("node", {{"CMI_PROVIDER", provider}, {"CMI_TRACE_FILE", said}});
      CHECK(ini(process).failed(CMI_ERR_NOTSUPP));
      const std::string text = text_of(said);
      // Where this libfabric has none of that name, it cannot be said of any.
      const bool unknown = process.run(
          [](Name of) {
            const auto* lib = fabric::ofi::libfabric();
            return lib == nullptr || fabric::ofi::candidates(of.data(), "127.0.0.1", *lib).empty();
          },
          name);
      const bool absent = text.find("no usable libfabric provider") != std::string::npos;
      CHECK(((absent && unknown) || text.find("is not used: ") != std::string::npos));
    }
  }
}

}  // namespace

}  // namespace cmi::test::choice_test

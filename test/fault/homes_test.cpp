// Homes that are reached by several ways: more than one address, more than one provider. Each
// importer takes the best that it has as well, and to the coherence it is all one.
//
// CMI_TEST_WAYS, a list like CMI_PROVIDER, has the cases for several providers use these: on a
// machine with a device (test/verbs), the device's and TCP.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "fault/network.hpp"
#include "fault/patience.hpp"
#include "support/skip.hpp"
#include "support/slow.hpp"
#include "system/calls.hpp"

namespace cmi::test::homes_test {

namespace {

// What a process has traced: its variables, and whether it has said something.
struct Said {
  Said(Cluster& cluster, const std::string& name) : path(cluster.scratch() + "/" + name) {}
  Env with(Env env) const {
    env.emplace_back("CMI_TRACE_FILE", path);
    env.emplace_back("CMI_TRACE", "mem,ini,seg:info");
    return env;
  }
  bool says(const std::string& words, const std::string& then = "") const {
    std::ifstream lines(path);
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find(words);
      if (at != std::string::npos && line.find(then, at) != std::string::npos) return true;
    }
    return false;
  }
  // A link of it has been up to this address.
  bool linked(const std::string& host) const {
    return says("is reached over ", " at " + host + ":");
  }
  std::string path;
};

// Everybody sees what each stores, wherever it came from.
void share(const std::vector<std::pair<Process*, uint64_t>>& views) {
  uint64_t value = 0;
  for (const auto& [writer, there] : views) {
    ++value;
    CHECK(publish(*writer, there, value));
    CHECK(publish(*writer, there + kPage + 8 * value, value));
    for (const auto& [reader, here] : views) {
      CHECK(load(*reader, here).value == value);
      for (uint64_t k = 1; k <= value; ++k) CHECK(load(*reader, here + kPage + 8 * k).value == k);
    }
  }
}

// Adds 1 to a word so many times; how many swaps that took, 0 after a failure.
Pending<uint64_t> start_counting(Process& process, uint64_t at, uint64_t times) {
  return process.start(
      [](uint64_t address, uint64_t count) {
        uint64_t swaps = 0, guess = 0;
        for (uint64_t done = 0; done < count; ++swaps) {
          uint64_t old = 0;
          if (CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(address), guess,
                                         guess + 1, &old) != 0) {
            return uint64_t{0};
          }
          done += old == guess ? 1 : 0;
          guess = old == guess ? guess + 1 : old;
        }
        return swaps;
      },
      at, times);
}

// What a home with several providers has here.
std::string ways() {
  const char* asked = std::getenv("CMI_TEST_WAYS");
  return asked != nullptr ? asked : "net,tcp;ofi_rxm,sockets";
}

std::vector<std::string> each_of(const std::string& list) {
  std::vector<std::string> items;
  std::istringstream in(list);
  for (std::string item; std::getline(in, item, ',');) items.push_back(item);
  return items;
}

TEST_SUITE("homes") {
  TEST_CASE(
      "a_home_at_two_addresses_is_reached_over_loopback_here_and_over_the_network_elsewhere") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    net.join_beside("neighbour", "home");
    const Said near(cluster, "near"), far(cluster, "far");
    // Whichever comes first in its list.
    Process& home = cluster.spawn("home", {{"CMI_ADDRESS", "eth0,127.0.0.1"}});
    Process& neighbour = cluster.spawn("neighbour", near.with({{"CMI_ADDRESS", "eth0,127.0.0.1"}}));
    Process& peer = cluster.spawn("peer", far.with({{"CMI_ADDRESS", "127.0.0.1,eth0"}}));
    const Export exported = export_segment(home);
    const Import here = import_segment(neighbour, exported);
    const Import there = import_segment(peer, exported);
    share({{&home, exported.at}, {&neighbour, here.at}, {&peer, there.at}});
    CHECK(near.linked("127.0.0.1"));
    CHECK(far.linked("10.77.0.1"));
    CHECK_FALSE(far.linked("127.0.0.1"));
    CHECK_FALSE(near.linked("10.77.0.1"));
  }

  TEST_CASE("with_address_auto_a_process_on_loopback_and_one_on_another_machine_share_a_segment") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    net.join_beside("neighbour", "home");
    const Said near(cluster, "near"), far(cluster, "far");
    Process& home = cluster.spawn("home", {{"CMI_ADDRESS", "auto"}});
    Process& neighbour = cluster.spawn("neighbour", near.with({}));
    Process& peer = cluster.spawn("peer", far.with({{"CMI_ADDRESS", "auto"}}));
    const Export exported = export_segment(home);
    const Import here = import_segment(neighbour, exported);
    const Import there = import_segment(peer, exported);
    share({{&home, exported.at}, {&neighbour, here.at}, {&peer, there.at}});
    CHECK(near.linked("127.0.0.1"));
    CHECK(far.linked("10.77.0.1"));
  }

  TEST_CASE("an_address_that_does_not_answer_gives_way_to_the_next_and_the_trace_says_so") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    for (const char* node : {"home", "peer"}) {
      net.join(node);
      net.add_cable(node);
    }
    const Said said(cluster, "said");
    Process& home = cluster.spawn("home", {{"CMI_ADDRESS", "eth0,eth1"}});
    Process& peer = cluster.spawn("peer", said.with({{"CMI_ADDRESS", "eth0,eth1"}}));
    const Export exported = export_segment(home);
    net.pull("home");
    const Import import = import_segment(peer, exported);
    share({{&home, exported.at}, {&peer, import.at}});
    CHECK(said.says("does not answer at 10.77.0.1:"));
    CHECK(said.linked("10.78.0.1"));
    CHECK_FALSE(said.linked("10.77.0.1"));
  }

  TEST_CASE("an_import_goes_on_by_the_other_cable_when_one_is_pulled") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    for (const char* node : {"home", "peer"}) {
      net.join(node);
      net.add_cable(node);
    }
    const Said said(cluster, "said");
    Process& home = cluster.spawn("home", {{"CMI_ADDRESS", "eth0,eth1"}});
    Process& peer = cluster.spawn("peer", said.with({{"CMI_ADDRESS", "eth0,eth1"}}));
    const Export exported = export_consistent(home, 16 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at, 5));
    REQUIRE(load(peer, import.at).value == 5);
    REQUIRE(said.linked("10.77.0.1"));
    REQUIRE_FALSE(said.linked("10.78.0.1"));
    REQUIRE(store(peer, import.at + kPage, 7).cause() == Fault::kNone);
    net.pull("home");
    Board board(cluster);
    CHECK(start_patient_load(peer, board, import.at + 2 * kPage).get().value == 0);
    CHECK(start_patient_barrier(peer, board).get().ok());
    CHECK(load(home, exported.at + kPage).value == 7);
    share({{&home, exported.at}, {&peer, import.at}});
    CHECK(said.linked("10.78.0.1"));
  }

  // Nothing that the importer does finds it out: it has no operation under way, and what its home
  // has to tell it goes to where nobody hears it.
  TEST_CASE("an_idle_importer_finds_another_way_when_its_own_goes") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    for (const char* node : {"home", "peer"}) {
      net.join(node);
      net.add_cable(node);
    }
    const Said said(cluster, "said");
    Process& home = cluster.spawn("home", {{"CMI_ADDRESS", "eth0,eth1"}});
    Process& peer = cluster.spawn("peer", said.with({{"CMI_ADDRESS", "eth0,eth1"}}));
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at, 5));
    REQUIRE(load(peer, import.at).value == 5);
    REQUIRE(said.linked("10.77.0.1"));
    REQUIRE_FALSE(said.linked("10.78.0.1"));
    net.pull("home");
    const Deadline deadline = Deadline::in(slowness() * 20 * kSecond);
    while (!said.linked("10.78.0.1") && !deadline.passed()) ::usleep(20000);
    CHECK(said.linked("10.78.0.1"));
    CHECK(publish(home, exported.at, 6));
    CHECK(load(peer, import.at).value == 6);
    CHECK_FALSE(said.says("stores were lost"));
  }

  TEST_CASE("importers_with_a_provider_each_share_a_segment_of_a_home_that_has_them_all") {
    Cluster cluster;
    Process& home = cluster.spawn_bare("home", {{"CMI_PROVIDER", ways()}});
    if (!ini(home).ok()) return skip("not all of the providers open here");
    const Export exported = export_segment(home);
    std::vector<std::pair<Process*, uint64_t>> views{{&home, exported.at}};
    for (const std::string& p : each_of(ways())) {
      const Said said(cluster, p);
      Process& peer = cluster.spawn(p, said.with({{"CMI_PROVIDER", p}}));
      const Import import = import_segment(peer, exported);
      CHECK(said.says("is reached over " + p + " at"));
      views.emplace_back(&peer, import.at);
    }
    share(views);
    // By messages that came by each provider, and by a process at home.
    constexpr uint64_t kTimes = 100;
    const uint64_t word = 8 * kPage;
    std::vector<Pending<uint64_t>> counting;
    for (auto& [process, at] : views)
      counting.push_back(start_counting(*process, at + word, kTimes));
    for (auto& c : counting) CHECK(c.get(100) >= kTimes);
    for (auto& [process, at] : views)
      CHECK(load(*process, at + word).value == views.size() * kTimes);
    // A key is void whichever fabric it was given on.
    REQUIRE(tok_del(home, exported.token).ok());
    for (size_t k = 1; k < views.size(); ++k) {
      CHECK(load(*views[k].first, views[k].second + 9 * kPage).cause() == CMI_ERROR_TOKEN);
    }
  }

  TEST_CASE("an_importer_that_is_killed_holds_up_none_that_came_by_another_provider") {
    Cluster cluster;
    Process& home = cluster.spawn_bare("home", {{"CMI_PROVIDER", ways()}});
    if (!ini(home).ok()) return skip("not all of the providers open here");
    const Export exported = export_segment(home);
    std::vector<std::pair<Process*, uint64_t>> views{{&home, exported.at}};
    std::vector<std::string> providers = each_of(ways());
    providers.resize(2);
    for (const std::string& p : providers) {
      Process& peer = cluster.spawn(p, {{"CMI_PROVIDER", p}});
      views.emplace_back(&peer, import_segment(peer, exported).at);
    }
    uint64_t value = 0;
    const auto all_hear_of_each = [&] {
      for (const auto& [writer, there] : views) {
        CHECK(publish(*writer, there, ++value));
        for (const auto& [reader, here] : views) CHECK(load(*reader, here).value == value);
      }
    };
    all_hear_of_each();
    uint64_t page = 8;  // another for each: what the dead stored to stays in flux
    for (const std::string& p : providers) {
      CAPTURE(p);
      Process& victim = cluster.spawn("victim of " + p, {{"CMI_PROVIDER", p}});
      const Import import = import_segment(victim, exported);
      REQUIRE(load(victim, import.at).value != 0);  // it is told of what is published
      REQUIRE(store(victim, import.at + page++ * kPage, 7).cause() == Fault::kNone);
      victim.kill();
      all_hear_of_each();
    }
  }

  TEST_CASE("an_importer_with_several_providers_takes_the_first_of_its_own_that_the_home_has") {
    Cluster cluster;
    const Said said(cluster, "said");
    Process& home = cluster.spawn_bare("home", {{"CMI_PROVIDER", "tcp;ofi_rxm,sockets"}});
    if (!ini(home).ok()) return skip("not both providers open here");
    Process& peer =
        cluster.spawn_bare("peer", said.with({{"CMI_PROVIDER", "net,sockets,tcp;ofi_rxm"}}));
    if (!ini(peer).ok()) return skip("not all three providers open here");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    share({{&home, exported.at}, {&peer, import.at}});
    CHECK(said.says("is reached over sockets at"));
  }

  TEST_CASE("cmi_ini_fails_when_one_of_a_list_of_providers_or_addresses_cannot_be_had") {
    const Env bad = {{"CMI_PROVIDER", "tcp,nothing-of-the-kind"},
                     {"CMI_PROVIDER", "udp,tcp"},
                     {"CMI_ADDRESS", "127.0.0.1,192.0.2.1"},
                     {"CMI_ADDRESS",
                      "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5,127.0.0.6,"
                      "127.0.0.7,127.0.0.8,127.0.0.9"}};
    for (const auto& [variable, list] : bad) {
      CAPTURE(list);
      Cluster cluster;
      const Answer answer = ini(cluster.spawn_bare("node", {{variable, list}}));
      CHECK(answer.failed(variable == "CMI_PROVIDER" ? CMI_ERR_NOTSUPP : CMI_ERR_INVAL));
    }
  }

  TEST_CASE("a_killed_home_of_several_ways_is_found_dead_by_each_of_its_importers") {
    Cluster cluster;
    Process& home = cluster.spawn_bare("home", {{"CMI_PROVIDER", ways()}});
    if (!ini(home).ok()) return skip("not all of the providers open here");
    Process& first = cluster.spawn("first", {{"CMI_PROVIDER", ways()}});
    Process& second = cluster.spawn("second", {{"CMI_PROVIDER", each_of(ways()).at(1)}});
    const Export exported = export_segment(home);
    const Import here = import_segment(first, exported), there = import_segment(second, exported);
    REQUIRE(load(first, here.at).value == 0);
    REQUIRE(load(second, there.at).value == 0);
    home.kill();
    // Where its pages are mapped no access waits for it: the closed connection tells of its end.
    const auto end = [](Process& importer, uint64_t at) {
      const Deadline deadline = Deadline::in(kSeconds * kSecond);
      int cause = load(importer, at).cause();
      while (mapped() && cause == Fault::kNone && !deadline.passed()) {
        cause = load(importer, at).cause();
      }
      return cause;
    };
    CHECK(end(first, here.at + 4 * kPage) == CMI_ERROR_SINVAL);
    CHECK(end(second, there.at + 4 * kPage) == CMI_ERROR_SINVAL);
  }

  TEST_CASE("a_home_of_two_networks_is_reached_over_the_one_that_its_importer_has_too") {
    for (const char* addresses : {"eth0,eth1", "eth1,eth0"}) {
      CAPTURE(addresses);
      Cluster cluster;
      Network net(cluster);
      if (!net.here()) return skip(net.reason());
      for (const char* node : {"home", "peer"}) {
        net.join(node);
        net.add_cable(node);
      }
      const Said said(cluster, "said");
      Process& home = cluster.spawn("home", {{"CMI_ADDRESS", addresses}});
      Process& peer = cluster.spawn("peer", said.with({{"CMI_ADDRESS", "eth1"}}));
      const Export exported = export_segment(home);
      const Import import = import_segment(peer, exported);
      share({{&home, exported.at}, {&peer, import.at}});
      CHECK(said.linked("10.78.0.1"));
      CHECK_FALSE(said.linked("10.77.0.1"));
      CHECK_FALSE(said.says("does not answer"));
    }
  }
}

}  // namespace

}  // namespace cmi::test::homes_test

// Which of several listeners an importer goes to, and from which of its own; told from their
// addresses.
#include "fabric/routes.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/wait.h>

#include "fabric/far_node.hpp"
#include "fabric/own_network.hpp"
#include "fabric/reach.hpp"
#include "fabric/world.hpp"
#include "support/skip.hpp"

namespace cmi::test::routes_test {
namespace {

using fabric::ListenerAddress;
using fabric::SameMachine;
using Pairs = std::vector<std::pair<size_t, size_t>>;

ListenerAddress at(const std::string& provider, const std::string& host, uint16_t port = 7) {
  sockaddr_in in = {};
  sockaddr_in6 in6 = {};
  in.sin_family = AF_INET;
  in6.sin6_family = AF_INET6;
  in.sin_port = in6.sin6_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) == 1) {
    const auto bytes = std::as_bytes(std::span(&in, 1));
    return {provider, {bytes.begin(), bytes.end()}};
  }
  REQUIRE(inet_pton(AF_INET6, host.c_str(), &in6.sin6_addr) == 1);
  const auto bytes = std::as_bytes(std::span(&in6, 1));
  return {provider, {bytes.begin(), bytes.end()}};
}

Pairs routes(const std::vector<ListenerAddress>& ours, const std::vector<ListenerAddress>& theirs,
             SameMachine same, std::string* reason = nullptr) {
  const char* why = nullptr;
  Pairs found = fabric::routes_between(ours, theirs, same, &why);
  if (reason != nullptr) *reason = why;
  return found;
}

// An address of this machine that is not loopback; empty: it has none.
std::string outward_address() {
  ifaddrs* list = nullptr;
  REQUIRE(getifaddrs(&list) == 0);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    const auto& in = *reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    if (fabric::is_loopback(std::as_bytes(std::span(&in, 1)))) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    return text;
  }
  return "";
}

TEST_CASE("on_one_machine_loopback_comes_before_all_else") {
  const std::vector<ListenerAddress> both{at("verbs;ofi_rxm", "198.51.100.1"),
                                          at("net", "198.51.100.1"), at("net", "127.0.0.1")};
  const Pairs found = routes(both, both, SameMachine::kYes);
  REQUIRE(!found.empty());
  CHECK(found[0] == std::pair<size_t, size_t>(2, 2));
}

TEST_CASE("elsewhere_the_first_of_our_own_providers_that_the_home_has_is_taken") {
  const std::vector<ListenerAddress> ours{at("verbs;ofi_rxm", "198.51.100.1"),
                                          at("net", "198.51.100.1"), at("sockets", "198.51.100.1")};
  const std::vector<ListenerAddress> theirs{at("sockets", "198.51.100.2"),
                                            at("net", "198.51.100.2"), at("shm", "198.51.100.2")};
  CHECK(routes(ours, theirs, SameMachine::kNo) == Pairs{{1, 1}, {2, 0}});
}

TEST_CASE("a_listener_on_another_machines_loopback_is_no_way") {
  const std::vector<ListenerAddress> ours{at("net", "127.0.0.1"), at("net", "198.51.100.1")};
  std::string why;
  CHECK(routes(ours, {at("net", "127.0.0.1")}, SameMachine::kNo, &why).empty());
  CHECK(why.find("listens on loopback only") != std::string::npos);
  // From our loopback nothing leads to another machine, either.
  CHECK(routes(ours, {at("net", "127.0.0.1"), at("net", "198.51.100.2")}, SameMachine::kNo) ==
        Pairs{{1, 1}});
}

TEST_CASE("an_address_that_this_machine_has_too_is_no_way_to_another") {
  // All of 127/8 is this machine's; one that is not loopback is only found by looking.
  const std::string own = outward_address();
  if (own.empty()) return skip("this machine has no address but loopback");
  const std::vector<ListenerAddress> ours{at("net", own)};
  std::string why;
  CHECK(routes(ours, {at("net", own, 8)}, SameMachine::kNo, &why).empty());
  CHECK(why.find("meets itself") != std::string::npos);
  CHECK(routes(ours, {at("net", own, 8), at("net", "198.51.100.2")}, SameMachine::kNo) ==
        Pairs{{0, 1}});
  CHECK(routes(ours, {at("net", own, 8)}, SameMachine::kYes) == Pairs{{0, 0}});
  CHECK(routes(ours, {at("net", own, 8)}, SameMachine::kUnknown) == Pairs{{0, 0}});
}

TEST_CASE("what_is_no_address_of_the_provider_is_no_way") {
  const std::vector<ListenerAddress> ours{at("net", "198.51.100.1"), at("net", "2001:db8::1")};
  ListenerAddress short_one = at("net", "198.51.100.2"), no_family = short_one,
                  long_one = short_one;
  short_one.blob.resize(7);
  long_one.blob.resize(17);
  no_family.blob[0] = no_family.blob[1] = std::byte{0};
  for (const ListenerAddress& listener :
       {short_one, no_family, long_one, at("net", "198.51.100.2", 0), at("net", "0.0.0.0"),
        at("net", "::"), ListenerAddress{"net", {}},
        ListenerAddress{"net", {16, std::byte{0x41}}}}) {
    CAPTURE(fabric::listener_text(listener.blob));
    std::string why;
    CHECK(routes(ours, {listener}, SameMachine::kNo, &why).empty());
    CHECK(why.find("address") != std::string::npos);
    CHECK(routes(ours, {listener, at("net", "198.51.100.3")}, SameMachine::kNo) == Pairs{{0, 1}});
  }
}

TEST_CASE("where_the_machine_is_not_known_loopback_is_tried_last") {
  const std::vector<ListenerAddress> ours{at("net", "127.0.0.1"), at("net", "198.51.100.1")};
  const Pairs found =
      routes(ours, {at("net", "127.0.0.1"), at("net", "198.51.100.2")}, SameMachine::kUnknown);
  REQUIRE(found.size() == 3);
  CHECK(found[0] == std::pair<size_t, size_t>(1, 1));
}

TEST_CASE("addresses_of_two_families_make_no_way") {
  std::string why;
  CHECK(routes({at("net", "198.51.100.1")}, {at("net", "2001:db8::1")}, SameMachine::kNo, &why)
            .empty());
  CHECK(why.find("IPv6") != std::string::npos);
  CHECK(routes({at("net", "198.51.100.1"), at("net", "2001:db8::2")},
               {at("net", "2001:db8::1"), at("net", "198.51.100.3")}, SameMachine::kNo)
            .size() == 2);
}

TEST_CASE("a_provider_that_only_one_side_has_makes_no_way") {
  std::string why;
  CHECK(routes({at("net", "127.0.0.1")}, {at("sockets", "127.0.0.1")}, SameMachine::kYes, &why)
            .empty());
  CHECK(why.find("provider") != std::string::npos);
  CHECK(routes({}, {at("sockets", "127.0.0.1")}, SameMachine::kYes).empty());
  CHECK(routes({at("net", "127.0.0.1")}, {}, SameMachine::kYes).empty());
}

TEST_CASE("an_address_of_this_machine_is_nearer_than_one_over_others") {
  CHECK(fabric::distance(at("", "127.0.0.1").blob, at("", "127.0.0.9").blob) ==
        fabric::Distance::kDirect);
  CHECK(fabric::distance(at("", "127.0.0.1").blob, at("", "198.51.100.9").blob) !=
        fabric::Distance::kDirect);
  CHECK(fabric::distance(at("", "127.0.0.1").blob, at("", "2001:db8::1").blob) ==
        fabric::Distance::kUnknown);
  const std::vector<std::byte> other(16, std::byte{0x41});
  CHECK(fabric::distance(other, at("", "127.0.0.1").blob) == fabric::Distance::kUnknown);
}

// A network of its own: one interface, from which another subnet is reached over a neighbour, and a
// second interface.
TEST_CASE("child_ranks_addresses_by_the_way_that_leads_there" * doctest::skip()) {
  if (const char* why = enter_own_network(); why != nullptr) return skip(why);
  if (!add_interface("first", "10.8.0.1/24") || !add_interface("second", "10.9.0.1/24") ||
      !run_ip("route add 10.7.0.0/24 via 10.8.0.2 dev first")) {
    return skip("ip makes no interfaces here");
  }
  using fabric::Distance;
  const ListenerAddress own = at("net", "10.8.0.1"), near = at("net", "10.8.0.2"),
                        routed = at("net", "10.7.0.2"), beside = at("net", "10.9.0.2"),
                        nowhere = at("net", "192.0.2.1");
  CHECK(fabric::distance(own.blob, near.blob) == Distance::kDirect);
  CHECK(fabric::distance(own.blob, routed.blob) == Distance::kRouted);
  CHECK(fabric::distance(own.blob, beside.blob) == Distance::kUnknown);
  CHECK(fabric::distance(own.blob, nowhere.blob) == Distance::kNoWay);
  CHECK(routes({own}, {nowhere, beside, routed, near}, SameMachine::kNo) ==
        Pairs{{0, 3}, {0, 2}, {0, 1}, {0, 0}});
  // Each from the interface that both have.
  const ListenerAddress second = at("net", "10.9.0.1");
  CHECK(routes({second}, {near, beside}, SameMachine::kNo) == Pairs{{0, 1}, {0, 0}});
  CHECK(routes({own, second}, {beside, near}, SameMachine::kNo).front() ==
        std::pair<size_t, size_t>(0, 1));
  // What leads nowhere comes last, whichever provider comes first.
  CHECK(routes({own, at("tcp;ofi_rxm", "10.8.0.1")}, {nowhere, at("tcp;ofi_rxm", "10.8.0.2")},
               SameMachine::kNo) == Pairs{{1, 1}, {0, 0}});
}

TEST_CASE("an_address_in_the_same_subnet_comes_before_one_that_is_routed_and_no_way_is_the_last") {
  const pid_t pid = spawn_case("child_ranks_addresses_by_the_way_that_leads_there", "", -1);
  REQUIRE(pid > 0);
  int status = 0;
  CHECK(eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }, 2 * kPatience));
  CHECK(WIFEXITED(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkippedStatus)
    return skip("no network namespaces, or no ip, here");
  CHECK(status == 0);
}

}  // namespace
}  // namespace cmi::test::routes_test

// Who can reach whom, told from their addresses alone; and which address "auto" takes.
#include "fabric/reach.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/wait.h>

#include <cstdlib>

#include "fabric/far_node.hpp"
#include "fabric/own_network.hpp"
#include "fabric/world.hpp"
#include "support/skip.hpp"

namespace cmi::test::reach_test {
namespace {

std::vector<std::byte> listener(const std::string& host) {
  std::vector<std::byte> out;
  sockaddr_in in = {};
  sockaddr_in6 in6 = {};
  in.sin_family = AF_INET;
  in6.sin6_family = AF_INET6;
  in.sin_port = in6.sin6_port = htons(7);
  const auto* bytes = reinterpret_cast<const std::byte*>(&in);
  size_t len = sizeof in;
  if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) != 1) {
    REQUIRE(inet_pton(AF_INET6, host.c_str(), &in6.sin6_addr) == 1);
    bytes = reinterpret_cast<const std::byte*>(&in6);
    len = sizeof in6;
  }
  out.assign(bytes, bytes + len);
  return out;
}

bool out_of_reach(const std::string& own, const std::string& theirs) {
  return fabric::why_out_of_reach(listener(own), listener(theirs)) != nullptr;
}

TEST_CASE("a_listener_on_loopback_is_told_from_others") {
  CHECK(fabric::is_loopback(listener("127.0.0.1")));
  CHECK(fabric::is_loopback(listener("127.9.9.9")));
  CHECK(fabric::is_loopback(listener("::1")));
  CHECK(!fabric::is_loopback(listener("10.0.0.1")));
  CHECK(!fabric::is_loopback(listener("2001:db8::1")));
  CHECK(!fabric::is_loopback({}));
  CHECK(!fabric::is_loopback(Bytes(listener("127.0.0.1")).first(15)));
}

TEST_CASE("who_listens_on_loopback_does_not_import_from_another_machine") {
  CHECK(out_of_reach("127.0.0.1", "192.0.2.1"));
  CHECK(out_of_reach("::1", "2001:db8::1"));
  CHECK(!out_of_reach("127.0.0.1", "127.0.0.5"));
  CHECK(!out_of_reach("192.0.2.1", "127.0.0.1"));  // it may be this machine's
  CHECK(!out_of_reach("192.0.2.1", "192.0.2.2"));
}

TEST_CASE("ipv4_and_ipv6_do_not_reach_each_other") {
  CHECK(out_of_reach("127.0.0.1", "::1"));
  CHECK(out_of_reach("2001:db8::1", "192.0.2.1"));
}

TEST_CASE("nothing_is_said_of_addresses_that_are_none_of_the_internets") {
  const std::vector<std::byte> other(16, std::byte{0x41});
  CHECK(fabric::why_out_of_reach(other, listener("192.0.2.1")) == nullptr);
  CHECK(fabric::why_out_of_reach(listener("127.0.0.1"), other) == nullptr);
  CHECK(fabric::why_out_of_reach({}, {}) == nullptr);
}

TEST_CASE("a_refused_connection_proves_that_a_listener_is_gone_where_listeners_are_of_tcp") {
  std::vector<std::byte> at = listener("127.0.0.1");
  socklen_t len = sizeof(sockaddr_in);
  auto* address = reinterpret_cast<sockaddr*>(at.data());
  reinterpret_cast<sockaddr_in*>(address)->sin_port = 0;
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(listener.get(), address, len) == 0);
  REQUIRE(listen(listener.get(), 1) == 0);
  REQUIRE(getsockname(listener.get(), address, &len) == 0);
  CHECK(fabric::probe_listener({"net", at}, kPatience) == fabric::Reach::kListening);
  CHECK(fabric::probe_listener({"verbs;ofi_rxm", at}, kPatience) == fabric::Reach::kListening);
  listener.reset();
  CHECK(fabric::probe_listener({"tcp;ofi_rxm", at}, kPatience) == fabric::Reach::kRefused);
  // The port of a listener over verbs is another's, or nobody's, for TCP.
  CHECK(fabric::probe_listener({"verbs;ofi_rxm", at}, kPatience) == fabric::Reach::kListening);
}

// A network of its own: an interface that leads nowhere, listed first, and one with the way out.
TEST_CASE("child_takes_auto_between_two_interfaces" * doctest::skip()) {
  if (const char* why = enter_own_network(); why != nullptr) return skip(why);
  if (!add_interface("first", "10.9.0.1/24") || !add_interface("second", "10.8.0.1/24")) {
    return skip("ip makes no interfaces here");
  }
  const auto taken = [] {
    auto f = fabric::open_fabric({"", "auto"});
    REQUIRE(f);
    Inbox inbox;
    auto ep = (*f)->open_endpoint(inbox);
    REQUIRE(ep);
    sockaddr_in in = {};
    std::memcpy(&in, (*ep)->address().data(), sizeof in);
    char text[INET_ADDRSTRLEN] = {};
    return std::string(inet_ntop(AF_INET, &in.sin_addr, text, sizeof text));
  };
  CHECK(taken() == "10.9.0.1");  // nothing leads anywhere: the first
  REQUIRE(run_ip("route add default via 10.8.0.254 dev second"));
  CHECK(taken() == "10.8.0.1");
}

TEST_CASE("auto_takes_the_interface_that_leads_to_other_machines") {
  const pid_t pid = spawn_case("child_takes_auto_between_two_interfaces", "", -1);
  REQUIRE(pid > 0);
  int status = 0;
  CHECK(eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }, 2 * kPatience));
  CHECK(WIFEXITED(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkippedStatus)
    return skip("no network namespaces, or no ip, or no provider here");
  CHECK(status == 0);
}

}  // namespace
}  // namespace cmi::test::reach_test

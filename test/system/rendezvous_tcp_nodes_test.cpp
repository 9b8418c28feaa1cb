// Processes of two nodes that find each other's segments over tcp.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "system/rendezvous.hpp"

namespace cmi::test::rendezvous_tcp_nodes_test {

namespace {

constexpr uint32_t kWhile = 30000;  // ms

bool bind_to(int fd, uint16_t port, uint16_t* bound = nullptr) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&at), length) != 0) return false;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) return false;
  if (bound != nullptr) *bound = ntohs(at.sin_port);
  return true;
}

// One that was free a moment ago.
uint16_t free_port() {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  uint16_t port = 0;
  REQUIRE(bind_to(fd.get(), 0, &port));
  return port;
}

// Whether nobody listens there.
bool is_free(uint16_t port) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return bind_to(fd.get(), port);
}

Text at_port(uint16_t port, const std::string& rest = {}) {
  return text_of("tcp://127.0.0.1:" + std::to_string(port) + rest);
}

}  // namespace

TEST_SUITE("api") {
  TEST_CASE("a_segment_that_is_offered_over_tcp_is_found_imported_and_read") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Text where = at_port(free_port());
    const Found none = find(peer, where, 0);
    CHECK(none.seg == CMI_SEG_INVALID);
    CHECK(none.error == CMI_ERR_RECONFIG);
    CHECK(none.says("nobody listens there"));
    REQUIRE(offer(home, where, 81).ok());
    REQUIRE(offer(home, where, 82, "other").ok());
    CHECK(find(peer, where, 0).word == 81);
    CHECK(find(peer, where, 0, "other").word == 82);
    CHECK(find(home, where, 0).seg != CMI_SEG_INVALID);  // of its own context, too
    const Found unknown = find(peer, where, 1, "third");
    CHECK(unknown.error == CMI_ERR_RECONFIG);
    CHECK(unknown.says("nobody offers it yet"));
  }

  TEST_CASE("who_comes_first_waits_for_a_listener_and_passes_over_a_home_that_is_gone") {
    Cluster cluster;
    Process& first = cluster.spawn("first");
    Process& second = cluster.spawn("second");
    Process& peer = cluster.spawn("peer");
    const Text where = at_port(free_port());
    const auto wait = [](Text place) {
      return int64_t{cmi_ofi_find(ctxt(), place.data(), "table", kWhile)};
    };
    auto waiting = peer.start(wait, where);
    REQUIRE(offer(first, where, 83).ok());
    CHECK(waiting.get() != CMI_SEG_INVALID);
    first.kill();
    waiting = peer.start(wait, where);
    REQUIRE(offer(second, where, 84).ok());
    CHECK(waiting.get() != CMI_SEG_INVALID);
    CHECK(find(peer, where, kWhile).word == 84);
  }

  TEST_CASE("a_wrong_secret_finds_nothing_and_is_named") {
    Meeting meeting;
    const std::string folder = meeting.path.data();
    std::ofstream(folder + "/right") << "right\n";
    std::ofstream(folder + "/wrong") << "wrong\n";
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& knows = cluster.spawn("knows", {{"CMI_SECRET", "right"}});
    const uint16_t port = free_port();
    REQUIRE(offer(home, at_port(port, "?secret=" + folder + "/right"), 85).ok());
    CHECK(find(peer, at_port(port, "?secret=" + folder + "/right"), 0).word == 85);
    CHECK(find(knows, at_port(port), 0).word == 85);
    const Found wrong = find(peer, at_port(port, "?secret=" + folder + "/wrong"), kWhile);
    CHECK(wrong.error == CMI_ERR_PERM);
    CHECK(wrong.says("the secret is not the one of the offer"));
    const Found without = find(peer, at_port(port), kWhile);
    CHECK(without.error == CMI_ERR_PERM);
    CHECK(without.says("the offer wants a secret, and none is given"));
    const Found missing = find(peer, at_port(port, "?secret=" + folder + "/none"), kWhile);
    CHECK(missing.error == CMI_ERR_INVAL);
    CHECK(missing.says("there is no file with the secret"));
    const Offered other = offer(home, at_port(port), 86, "other");
    CHECK(other.error == CMI_ERR_INVAL);
    CHECK(other.says("with another secret"));
  }

  TEST_CASE("an_offer_over_tcp_says_why_it_cannot_be") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const uint16_t port = free_port();
    const Fd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind_to(taken.get(), port));
    REQUIRE(::listen(taken.get(), 1) == 0);
    const Offered in_use = offer(home, at_port(port), 87);
    CHECK(in_use.error == CMI_ERR_INVAL);
    CHECK(in_use.says("another socket is at this port"));
    const Offered nowhere = offer(home, text_of("tcp://no..host:7400"), 87);
    CHECK(nowhere.error == CMI_ERR_INVAL);
    CHECK(nowhere.says("there is no such host"));
    const Found no_host = find(home, text_of("tcp://no..host:7400"), kWhile);
    CHECK(no_host.error == CMI_ERR_INVAL);
    CHECK(no_host.says("there is no such host"));
    // What listens there does not answer.
    const Found silent = find(home, at_port(port), 0);
    CHECK(silent.error == CMI_ERR_RECONFIG);
    CHECK(silent.says("what listens there does not answer"));
  }

  TEST_CASE("the_listener_goes_with_its_last_offer_and_with_its_context") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const uint16_t port = free_port();
    REQUIRE(offer(home, at_port(port), 88).ok());
    CHECK_FALSE(is_free(port));
    const auto take_back = [](Text where) {
      return cmi_ofi_offer(ctxt(), where.data(), "table", nullptr, nullptr);
    };
    CHECK(home.run(take_back, at_port(port)) == 0);
    CHECK(is_free(port));
    REQUIRE(offer(home, at_port(port), 89).ok());
    CHECK(fini(home).ok());
    CHECK(is_free(port));
    Process& exits = cluster.spawn("exits");
    REQUIRE(offer(exits, at_port(port), 90).ok());
    exits.end();
    CHECK(is_free(port));
  }

  TEST_CASE("a_child_of_who_offers_keeps_neither_port_nor_offer") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const uint16_t port = free_port();
    REQUIRE(offer(home, at_port(port), 91).ok());
    const pid_t child = home.run([] {
      const pid_t pid = ::fork();
      if (pid != 0) return pid;
      ::execl("/bin/sleep", "sleep", "300", nullptr);
      ::_exit(1);
    });
    const pid_t bare = home.run([] {
      const pid_t pid = ::fork();
      if (pid != 0) return pid;
      for (;;) ::pause();
    });
    CHECK(find(peer, at_port(port), kWhile).word == 91);
    CHECK(fini(home).ok());
    CHECK(is_free(port));
    for (const pid_t pid : {child, bare}) {
      CHECK(home.run(
          [](pid_t ended) {
            ::kill(ended, SIGKILL);
            return ::waitpid(ended, nullptr, 0) == ended;
          },
          pid));
    }
  }
}

}  // namespace cmi::test::rendezvous_tcp_nodes_test

// Contract: many peers at once, of whom one misbehaves, and children that know nothing of fabrics.
#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>

#include "fabric/world.hpp"
#include "support/sanitized.hpp"
#include "support/skip.hpp"

TEST_SUITE_BEGIN("fault");

namespace cmi::test::recovery_test {
namespace {

constexpr size_t kPeers = 50;

CMI_CONTRACT(fifty_peers_are_served_while_one_of_them_is_refused_and_one_leaves, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPeers * 64);
  std::vector<std::unique_ptr<Client>> clients;
  const auto all_read = [&] {
    for (size_t i = 0; i < clients.size(); ++i) {
      if (clients[i] == nullptr) continue;
      uint64_t word = 0;
      *server.as<uint64_t>(i * 64) += i + 1;
      const uint64_t there_now = *server.as<uint64_t>(i * 64);
      REQUIRE(clients[i]->read(&word, 8, server.region->key(), i * 64) == Cause::kOk);
      REQUIRE(word == there_now);
    }
  };
  for (size_t i = 0; i < kPeers; ++i) {
    clients.push_back(std::make_unique<Client>(*here, server.endpoint->address()));
  }
  all_read();
  RemoteKey wrong = server.region->key();
  wrong.key ^= 2;
  uint64_t word = 0;
  CHECK(clients[7]->read(&word, 8, wrong, 0, kSecond) != Cause::kOk);
  CHECK(word == 0);
  clients[7].reset();
  clients[30].reset();
  all_read();
}

// net of libfabric 1.17 keeps a pointer to the endpoint with each connection that it has accepted,
// and follows it when the connection's other end says what it wants.
CMI_CONTRACT(connections_that_are_under_way_when_their_endpoint_closes_harm_nobody, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  Client client(*here, server.endpoint->address());
  uint64_t word = 0;
  REQUIRE(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
  mallopt(M_PERTURB, 0xa5);  // what is freed is of no use to anybody
  Inbox inbox;
  auto closing = there->open_endpoint(inbox);
  REQUIRE(closing);
  std::vector<std::unique_ptr<Client>> coming;
  for (size_t i = 0; i < kPeers / 2; ++i) {
    coming.push_back(std::make_unique<Client>(*here, (*closing)->address()));
    Client& c = *coming.back();
    c.ops.push_back(std::make_unique<Op>());
    // Begins to connect. What it wants it says once it is polled.
    (void)c.endpoint->send(*c.ops.back(), c.peer, &word, sizeof word);
  }
  for (int i = 0; i < 1000; ++i) (*closing)->poll();  // who has come is let in
  { const auto closed = closing.take(); }
  for (int i = 0; i < 100; ++i) {
    for (auto& c : coming) c->endpoint->poll();
  }
  *server.as<uint64_t>() = 7;
  CHECK(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
  CHECK(word == 7);
  coming.clear();
  mallopt(M_PERTURB, 0);
}

int end_of(pid_t child) {
  int status = -1;
  CHECK(eventually([&] { return waitpid(child, &status, WNOHANG) == child; }));
  return status;
}

CMI_CONTRACT(children_of_a_fork_that_exit_or_exec_disturb_nothing, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  Client client(*here, server.endpoint->address());
  for (uint64_t round = 1; round <= 4; ++round) {
    *server.as<uint64_t>() = round;
    uint64_t word = 0;
    REQUIRE(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
    CHECK(word == round);
    const pid_t child = fork();
    if (child == 0) {
      if (round % 2 == 0) execl("/bin/true", "true", static_cast<char*>(nullptr));
      // In good order, with all that libraries have registered for that. (What only threads of the
      // parent's knew of is a leak to a sanitizer then.)
      if (round == 3 && !kSanitized) std::exit(0);
      _exit(0);
    }
    REQUIRE(child > 0);
    const int end = end_of(child);
    CHECK(end == 0);
    if (end == -1) kill(child, SIGKILL);
    CHECK(client.write(&round, 8, server.region->key(), 8) == Cause::kOk);
    CHECK(*server.as<volatile uint64_t>(8) == round);
  }
}

// One that nobody has at the moment.
uint16_t free_port() {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t len = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  REQUIRE(bind(fd.get(), address, len) == 0);
  REQUIRE(getsockname(fd.get(), address, &len) == 0);
  return ntohs(at.sin_port);
}

CMI_CONTRACT(a_peer_that_is_restarted_at_the_same_address_is_reached_and_old_keys_open_nothing,
             world) {
  if (!world.real()) return skip("addresses of the fakes are used once");
  const uint16_t port = free_port();
  auto here = world.open();
  auto former = world.far_at(port);
  const std::vector<std::byte> address(former->address().begin(), former->address().end());
  const RemoteKey old_key = former->key();
  Client before(*here, address);
  uint64_t word = 0;
  REQUIRE(before.read(&word, 8, old_key, 0) == Cause::kOk);
  former->kill();
  CHECK(before.read(&word, 8, old_key, 0, kGlance) != Cause::kOk);
  auto next = world.far_at(port);
  REQUIRE(std::ranges::equal(next->address(), address));
  std::memset(next->memory(), 0x33, kFarBytes);
  // Whoever knew the former one, by its endpoint of before and by a new one.
  const uint64_t evil = 0x9999999999999999;
  CHECK(before.write(&evil, 8, old_key, 0, kGlance) != Cause::kOk);
  {
    Client rogue(*here, address);
    CHECK(rogue.write(&evil, 8, old_key, 0, kGlance) != Cause::kOk);
  }
  for (size_t i = 0; i < kFarBytes; ++i) REQUIRE(next->memory()[i] == std::byte{0x33});
  Client after(*here, address);
  REQUIRE(after.write(&evil, 8, next->key(), 16) == Cause::kOk);
  CHECK(after.read(&word, 8, next->key(), 16) == Cause::kOk);
  CHECK(word == evil);
}

}  // namespace
}  // namespace cmi::test::recovery_test

TEST_SUITE_END();

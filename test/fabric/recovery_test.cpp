// Contract: many peers at once, of whom one misbehaves, and children that know nothing of fabrics.
#include <sys/wait.h>

#include "fabric/world.hpp"
#include "support/skip.hpp"

TEST_SUITE_BEGIN("fault");

namespace cmi::test {
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
      _exit(0);
    }
    REQUIRE(child > 0);
    CHECK(end_of(child) == 0);
    CHECK(client.write(&round, 8, server.region->key(), 8) == Cause::kOk);
    CHECK(*server.as<volatile uint64_t>(8) == round);
  }
}

}  // namespace
}  // namespace cmi::test

TEST_SUITE_END();

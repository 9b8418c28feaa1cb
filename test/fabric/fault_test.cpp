// Contract: peers that stop, die or never were; and that a destroyed endpoint leaves no trace.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "fabric/world.hpp"
#include "support/skip.hpp"

TEST_SUITE_BEGIN("fault");

namespace cmi::test::fault_test {
namespace {

CMI_CONTRACT(a_stopped_peer_costs_the_deadline_and_completes_when_it_goes_on, world) {
  auto far = world.far();
  auto here = world.open();
  std::memset(far->memory(), 5, 64);
  Client client(*here, far->address());
  uint64_t word = 0;
  REQUIRE(client.read(&word, 8, far->key(), 0) == Cause::kOk);
  far->stop();
  if (world.one_sided()) {
    CHECK(client.read(&word, 8, far->key(), 8) == Cause::kOk);
    CHECK(word == 0x0505050505050505);
    return;
  }
  const Nanos start = now();
  CHECK(client.read(&word, 8, far->key(), 8, kGlance) == Cause::kTimeout);
  CHECK(now() - start < kGlance + 2 * kSecond);
  REQUIRE(client.ops.size() == 1);
  CHECK(client.ops[0]->in_flight());
  far->resume();
  CHECK(client.endpoint->wait(*client.ops[0], Deadline::in(kPatience)) == Cause::kOk);
  CHECK(!client.endpoint->broken());
}

CMI_CONTRACT(nothing_is_written_to_a_buffer_after_its_endpoint_is_gone, world) {
  if (world.one_sided()) return skip("reads from a stopped node end: there is none to hold back");
  auto far = world.far();
  auto here = world.open();
  std::memset(far->memory(), 5, kFarBytes);
  std::vector<std::byte> buffer(kFarBytes, std::byte{1});
  {
    Client client(*here, far->address());
    uint64_t word = 0;
    REQUIRE(client.read(&word, 8, far->key(), 0) == Cause::kOk);
    far->stop();
    CHECK(client.read(buffer.data(), kFarBytes, far->key(), 0, kGlance) == Cause::kTimeout);
  }
  std::fill(buffer.begin(), buffer.end(), std::byte{2});
  far->resume();
  Client other(*here, far->address());
  // Proof that the far node works again, and several chances to do wrong.
  for (int i = 0; i < 20; ++i) {
    uint64_t word = 0;
    REQUIRE(other.read(&word, 8, far->key(), 0) == Cause::kOk);
    CHECK(word == 0x0505050505050505);
  }
  CHECK(buffer == std::vector<std::byte>(kFarBytes, std::byte{2}));
}

CMI_CONTRACT(a_killed_peer_neither_hangs_a_wait_nor_the_endpoints_end, world) {
  auto far = world.far();
  auto here = world.open();
  std::vector<std::byte> buffer(kFarBytes);
  {
    Client client(*here, far->address());
    REQUIRE(client.read(buffer.data(), 8, far->key(), 0) == Cause::kOk);
    // In flight at the moment of death: reads that a stopped peer has not answered. Where they need
    // no peer, they have succeeded.
    far->stop();
    std::vector<std::unique_ptr<Op>> ops;
    for (size_t i = 0; i < 10; ++i) {
      ops.push_back(std::make_unique<Op>());
      const Post p = client.endpoint->read(*ops.back(), client.peer, &buffer[i * kPageSize],
                                           kPageSize, far->key(), 0);
      if (p != Post::kPosted) ops.pop_back();
    }
    REQUIRE(!ops.empty());
    far->kill();
    const Nanos start = now();
    const Deadline deadline = Deadline::in(kSecond);
    for (auto& op : ops) {
      const Cause c = client.endpoint->wait(*op, deadline);
      if (!world.one_sided()) CHECK(c != Cause::kOk);
    }
    // Whatever is posted now does not succeed, and does not hang.
    CHECK(client.read(buffer.data(), 8, far->key(), 0, kGlance) != Cause::kOk);
    CHECK(client.write(buffer.data(), 8, far->key(), 0, kGlance) != Cause::kOk);
    CHECK(client.send(buffer.data(), 8, kGlance) != Cause::kOk);
    CHECK(now() - start < 5 * kSecond);
    client.ops.insert(client.ops.end(), std::make_move_iterator(ops.begin()),
                      std::make_move_iterator(ops.end()));
    const Nanos end = now();
    client.endpoint.reset();
    CHECK(now() - end < kSecond);
  }
}

CMI_CONTRACT(a_dead_peer_does_not_disturb_traffic_with_another, world) {
  auto far = world.far();
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  Client client(*here, far->address());
  auto live = client.endpoint->add_peer(server.endpoint->address());
  REQUIRE(live);
  uint64_t word = 0;
  REQUIRE(client.read(&word, 8, far->key(), 0) == Cause::kOk);
  far->kill();
  CHECK(client.read(&word, 8, far->key(), 0, kGlance) != Cause::kOk);
  *server.as<uint64_t>() = 11;
  CHECK(client.run(
            [&](Op& op) {
              return client.endpoint->read(op, *live, &word, 8, server.region->key(), 0);
            },
            kPatience) == Cause::kOk);
  CHECK(word == 11);
}

CMI_CONTRACT(an_endpoint_that_is_gone_takes_nothing, world) {
  auto there = world.open(), here = world.open();
  std::vector<std::byte> address;
  RemoteKey key;
  {
    Server server(*there, kPageSize);
    const Bytes a = server.endpoint->address();
    address.assign(a.begin(), a.end());
    key = server.region->key();
  }
  Client client(*here, address);
  uint64_t word = 0;
  const Nanos start = now();
  CHECK(client.read(&word, 8, key, 0, kGlance) != Cause::kOk);
  CHECK(client.send(&word, 8, kGlance) != Cause::kOk);
  CHECK(now() - start < 5 * kSecond);
}

// True when, within patience, the descriptor let a sleep pass undisturbed.
bool sleeps_at_last(Endpoint& ep) {
  return eventually([&] {
    while (ep.poll() > 0) {
    }
    pollfd p{ep.wait_fd(), POLLIN, 0};
    return ep.may_sleep() && ::poll(&p, 1, 20) == 0;
  });
}

CMI_CONTRACT(the_descriptor_is_quiet_again_when_the_traffic_is_over, world) {
  auto there = world.open(), here = world.open();
  if (!there->traits().wait_fd) return skip("the implementation has no descriptor to sleep on");
  Server server(*there, kPageSize);
  Client client(*here, server.endpoint->address());
  uint64_t word = 0;
  for (int i = 0; i < 50; ++i) {
    CHECK(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
    CHECK(client.write(&word, 8, server.region->key(), 0) == Cause::kOk);
    CHECK(client.send(&word, 8) == Cause::kOk);
  }
  CHECK(eventually([&] { return server.inbox.count() == 50; }));
  server.poller.reset();
  CHECK(sleeps_at_last(*server.endpoint));
  CHECK(sleeps_at_last(*client.endpoint));
}

// A target that looks at its endpoint only when the descriptor says so.
class Sleeper {
 public:
  explicit Sleeper(Endpoint& ep)
      : thread_([this, &ep] {
          while (!stop_.load()) {
            while (ep.poll() > 0) {
            }
            if (!ep.may_sleep()) continue;
            pollfd p{ep.wait_fd(), POLLIN, 0};
            if (::poll(&p, 1, 3000) == 0 && !stop_.load()) ++missed_;
          }
        }) {}
  // Something must wake it: the next message does.
  void stop_at_next_message() { stop_.store(true); }
  void join() { thread_.join(); }
  int missed() const { return missed_.load(); }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> missed_{0};
  std::thread thread_;
};

void read_from_and_send_to_a_sleeper(Fabric& here, Server& server) {
  Sleeper sleeper(*server.endpoint);
  Client client(here, server.endpoint->address());
  int good = 0;
  uint64_t word = 0;
  for (int i = 0; i < 100; ++i) {
    if (client.read(&word, 8, server.region->key(), 0) == Cause::kOk) ++good;
    if (client.send(&word, 8) == Cause::kOk) ++good;
    // Long enough for the target to have gone to sleep again, most of the time.
    if (i % 10 == 0) eventually([&] { return false; }, 2 * kMilli);
  }
  CHECK(good == 200);
  CHECK(eventually([&] { return server.inbox.count() == 100; }));
  sleeper.stop_at_next_message();
  client.send(&word, 8, kGlance);  // ends well only where it is still taken off the wire
  sleeper.join();
  CHECK(sleeper.missed() == 0);
}

CMI_CONTRACT(traffic_wakes_a_target_that_sleeps_on_its_descriptor, world) {
  auto there = world.open(), here = world.open();
  if (!there->traits().wait_fd) return skip("the implementation has no descriptor to sleep on");
  Server server(*there, kPageSize);
  server.poller.reset();
  read_from_and_send_to_a_sleeper(*here, server);
}

CMI_CONTRACT(a_sleeper_is_woken_also_while_another_endpoint_of_its_fabric_is_polled, world) {
  auto there = world.open(), here = world.open();
  if (!there->traits().wait_fd) return skip("the implementation has no descriptor to sleep on");
  Server server(*there, kPageSize), busy(*there, kPageSize);
  server.poller.reset();
  std::atomic<bool> stop{false};
  std::thread spinner([&] {
    while (!stop.load()) {
      busy.endpoint->poll();
      std::this_thread::yield();
    }
  });
  read_from_and_send_to_a_sleeper(*here, server);
  stop.store(true);
  spinner.join();
}

CMI_CONTRACT(garbage_sent_to_its_socket_does_an_endpoint_no_harm, world) {
  if (world.kind() == Kind::kSockets) return skip("sockets is harmed by it: doc/providers.md");
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  const Bytes address = server.endpoint->address();
  sockaddr_in to;
  std::memcpy(&to, address.data(), std::min(sizeof to, address.size()));
  if (address.size() != sizeof to || to.sin_family != AF_INET || world.one_sided())
    return skip("the address of an endpoint is no socket's");
  std::memset(server.memory.data(), 0x33, kPageSize);
  const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  for (int round = 0; round < 30; ++round) {
    Fd s(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(s.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    std::vector<std::byte> junk = pattern(static_cast<size_t>(round) * round * 97, 1000 + round);
    if (round % 3 == 1) std::memset(junk.data(), round % 2 == 0 ? 0xff : 0, junk.size());
    if (round % 5 == 4) {
      junk.resize(http.size());
      std::memcpy(junk.data(), http.data(), http.size());
    }
    if (!junk.empty()) send(s.get(), junk.data(), junk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // Some are closed at once, some with a reset, some stay open for a while.
    if (round % 4 == 2) {
      linger hard{1, 0};
      setsockopt(s.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    if (round % 4 == 3) {
      shutdown(s.get(), SHUT_WR);
      pollfd p{s.get(), POLLIN, 0};
      ::poll(&p, 1, 50);
    }
    Client client(*here, server.endpoint->address());
    uint64_t word = 0;
    REQUIRE(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
    REQUIRE(word == 0x3333333333333333);
  }
  CHECK(server.inbox.count() == 0);
  for (size_t i = 0; i < kPageSize; ++i) REQUIRE(server.memory.data()[i] == std::byte{0x33});
}

}  // namespace
}  // namespace cmi::test::fault_test

TEST_SUITE_END();

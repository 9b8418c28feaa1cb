// Operations that are longer than the provider's: made of many, and over as one.
#include "fabric/split.hpp"

#include "fabric/world.hpp"

namespace cmi::test::split_test {
namespace {

using fabric::FakeModes;
using fabric::FakeNet;

constexpr size_t kMost = 3000, kBytes = 1 << 20;  // far more parts than a queue holds

struct Two {
  explicit Two(FakeModes modes = {}) {
    modes.max_rma = kMost;
    net = FakeNet::make(modes);
    there = fabric::with_whole_operations(net->open());
    here = fabric::with_whole_operations(net->open());
    server = std::make_unique<Server>(*there, kBytes);
    client = std::make_unique<Client>(*here, server->endpoint->address());
  }
  ~Two() { client.reset(); }
  RemoteKey key() { return server->region->key(); }
  std::shared_ptr<FakeNet> net;
  std::unique_ptr<Fabric> there, here;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
};

TEST_CASE("long_reads_and_writes_are_made_of_the_providers_short_ones") {
  for (bool ordered : {true, false}) {
    FakeModes modes;
    modes.ordered = ordered;
    Two two(modes);
    CHECK(two.here->traits().max_rma == fabric::kWholeRma);
    for (size_t len : {size_t{1}, kMost - 1, kMost, kMost + 1, 2 * kMost, kBytes - 11}) {
      CAPTURE(len);
      const std::vector<std::byte> out = pattern(len, len);
      std::vector<std::byte> in(len + 1, std::byte{0x55});
      std::memset(two.server->memory.data(), 0xee, kBytes);
      REQUIRE(two.client->write(out.data(), len, two.key(), 5) == Cause::kOk);
      CHECK(std::memcmp(two.server->memory.data() + 5, out.data(), len) == 0);
      CHECK(two.server->memory.data()[4] == std::byte{0xee});
      CHECK(two.server->memory.data()[5 + len] == std::byte{0xee});
      REQUIRE(two.client->read(in.data(), len, two.key(), 5) == Cause::kOk);
      CHECK(std::memcmp(in.data(), out.data(), len) == 0);
      CHECK(in[len] == std::byte{0x55});
    }
  }
}

TEST_CASE("a_fabric_whose_operations_are_long_enough_is_left_alone") {
  auto net = FakeNet::make({});
  auto plain = net->open();
  const Fabric* before = plain.get();
  CHECK(fabric::with_whole_operations(std::move(plain)).get() == before);
}

TEST_CASE("a_long_operation_that_is_refused_in_its_middle_fails_as_a_whole_and_stays_in_bounds") {
  for (bool breaks : {true, false}) {
    FakeModes modes;
    modes.breaks_link = breaks;
    Two two(modes);
    const std::vector<std::byte> out(3 * kMost, std::byte{9});
    CHECK(two.client->write(out.data(), out.size(), two.key(), kBytes - 2 * kMost) != Cause::kOk);
    std::vector<std::byte> in(out.size());
    CHECK(two.client->read(in.data(), in.size(), two.key(), kBytes - 2 * kMost) != Cause::kOk);
    CHECK(two.client->read(in.data(), kMost, two.key(), 0) == Cause::kOk);
  }
}

// Who posts may hold a lock that who is called back takes.
TEST_CASE("a_long_operation_that_the_provider_does_not_take_ends_with_the_next_look") {
  for (size_t taken : {size_t{0}, size_t{1}}) {
    CAPTURE(taken);
    FakeModes modes;
    modes.posts = taken;
    Two two(modes);
    std::vector<std::byte> in(3 * kMost);
    std::atomic<int> called = 0;
    Op op([](Op& o) { static_cast<std::atomic<int>*>(o.user)->fetch_add(1); }, &called);
    REQUIRE(two.client->endpoint->read(op, two.client->peer, in.data(), in.size(), two.key(), 0) ==
            fabric::Post::kPosted);
    CHECK(called == 0);
    if (taken == 0) CHECK_FALSE(two.client->endpoint->may_sleep());  // nothing else would wake it
    const Deadline deadline = Deadline::in(kPatience);
    while (called == 0 && !deadline.passed()) two.client->endpoint->poll();
    CHECK(called == 1);
    CHECK(op.cause() != Cause::kOk);
  }
}

TEST_CASE("a_long_operation_toward_a_stopped_peer_is_over_when_that_goes_on") {
  Two two;
  std::vector<std::byte> in(kBytes);
  two.net->stop(two.server->endpoint->address());
  CHECK(two.client->read(in.data(), kBytes, two.key(), 0, kGlance) == Cause::kTimeout);
  REQUIRE(two.client->ops.size() == 1);
  Op& op = *two.client->ops.front();
  CHECK(op.in_flight());
  two.net->resume(two.server->endpoint->address());
  CHECK(two.client->endpoint->wait(op, Deadline::in(kPatience)) == Cause::kOk);
}

TEST_CASE("a_long_operation_that_a_dead_peer_leaves_open_ends_with_its_endpoint") {
  Two two;
  std::vector<std::byte> in(kBytes);
  two.net->vanish(two.server->endpoint->address());
  CHECK(two.client->read(in.data(), kBytes, two.key(), 0, kGlance) == Cause::kTimeout);
  two.client->endpoint.reset();
}

}  // namespace
}  // namespace cmi::test::split_test

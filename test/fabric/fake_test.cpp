// The faults of the fake network do what they say: tests of the layers above build on them.
#include "fabric/world.hpp"

TEST_SUITE_BEGIN("fault");

namespace cmi::test::fake_test {
namespace {

using fabric::FakeModes;
using fabric::FakeNet;

struct Two {
  explicit Two(const FakeModes& modes = {})
      : net(FakeNet::make(modes)),
        there(net->open()),
        here(net->open()),
        server(*there, kPageSize),
        client(*here, server.endpoint->address()) {}
  Bytes mine() const { return client.endpoint->address(); }
  Bytes theirs() const { return server.endpoint->address(); }
  RemoteKey key() const { return server.region->key(); }
  Cause read(Nanos patience = kPatience) { return client.read(&word, 8, key(), 0, patience); }

  uint64_t word = 0;  // outlives the client
  std::shared_ptr<FakeNet> net;
  std::unique_ptr<Fabric> there, here;
  Server server;
  Client client;
};

TEST_CASE("what_is_sent_over_a_cut_arrives_after_it_has_healed") {
  Two two;
  two.net->cut(two.mine(), two.theirs());
  CHECK(two.read(kGlance) == Cause::kTimeout);
  CHECK(two.server.inbox.count() == 0);
  // Others still get through.
  Client other(*two.here, two.theirs());
  CHECK(other.read(&two.word, 8, two.key(), 0) == Cause::kOk);
  two.net->heal(two.mine(), two.theirs());
  CHECK(two.client.endpoint->wait(*two.client.ops[0], Deadline::in(kPatience)) == Cause::kOk);
}

TEST_CASE("an_answer_does_not_cross_a_cut_either") {
  Two two;
  two.net->stop(two.mine());  // the request is executed, its result stays with the network
  Op op;
  uint64_t found = 0, expected = 0, desired = 9;
  REQUIRE(two.client.endpoint->cas(op, two.client.peer, &found, &expected, &desired, two.key(),
                                   0) == Post::kPosted);
  CHECK(eventually(
      [&] { return __atomic_load_n(two.server.as<uint64_t>(), __ATOMIC_SEQ_CST) == 9; }));
  two.net->cut(two.mine(), two.theirs());
  two.net->resume(two.mine());
  CHECK(two.client.endpoint->wait(op, Deadline::in(kGlance)) == Cause::kTimeout);
  two.net->heal(two.mine(), two.theirs());
  CHECK(two.client.endpoint->wait(op, Deadline::in(kPatience)) == Cause::kOk);
}

TEST_CASE("a_peer_that_vanished_takes_operations_and_never_ends_them") {
  Two two;
  two.net->vanish(two.theirs());
  CHECK(two.read(kGlance) == Cause::kTimeout);
  CHECK(two.client.ops[0]->in_flight());
  CHECK(!two.client.endpoint->broken());
}

TEST_CASE("a_reset_ends_what_is_in_flight_and_nothing_later") {
  Two two;
  two.net->stop(two.theirs());
  CHECK(two.read(kGlance) == Cause::kTimeout);
  two.net->reset(two.mine(), two.theirs());
  CHECK(two.client.endpoint->wait(*two.client.ops[0], Deadline::in(kPatience)) == Cause::kPeerLost);
  CHECK(two.client.endpoint->broken());
  two.net->resume(two.theirs());
  CHECK(two.read() == Cause::kOk);
}

TEST_CASE("lost_messages_complete_and_never_arrive") {
  Two two;
  two.net->lose_messages(two.theirs(), 2);
  for (uint64_t i = 1; i <= 4; ++i) CHECK(two.client.send(&i, sizeof i) == Cause::kOk);
  REQUIRE(eventually([&] { return two.server.inbox.count() == 2; }));
  uint64_t first = 0;
  std::memcpy(&first, two.server.inbox.at(0).data(), sizeof first);
  CHECK(first == 3);
}

TEST_CASE("what_a_closed_endpoint_had_sent_may_still_be_applied") {
  for (bool late : {true, false}) {
    FakeModes modes;
    modes.late_writes = late;
    Two two(modes);
    two.net->stop(two.theirs());
    uint64_t value = 77;
    CHECK(two.client.write(&value, sizeof value, two.key(), 0, kGlance) == Cause::kTimeout);
    two.client.endpoint.reset();
    value = 78;  // not read any more
    two.net->resume(two.theirs());
    Client other(*two.here, two.theirs());
    uint64_t seen = 0;
    REQUIRE(other.read(&seen, 8, two.key(), 0) == Cause::kOk);
    CHECK(seen == (late ? 77u : 0u));
  }
}

TEST_CASE("a_full_queue_says_again_until_something_has_completed") {
  FakeModes modes;
  modes.queue = 4;
  Two two(modes);
  two.net->stop(two.theirs());
  std::vector<std::unique_ptr<Op>> ops;
  const auto post = [&] {
    ops.push_back(std::make_unique<Op>());
    return two.client.endpoint->read(*ops.back(), two.client.peer, &two.word, 8, two.key(), 0);
  };
  for (int i = 0; i < 4; ++i) CHECK(post() == Post::kPosted);
  CHECK(post() == Post::kAgain);
  CHECK(!ops.back()->in_flight());
  two.net->resume(two.theirs());
  for (int i = 0; i < 4; ++i)
    CHECK(two.client.endpoint->wait(*ops[static_cast<size_t>(i)], Deadline::in(kPatience)) ==
          Cause::kOk);
  CHECK(post() == Post::kPosted);
  CHECK(two.client.endpoint->wait(*ops.back(), Deadline::in(kPatience)) == Cause::kOk);
}

}  // namespace
}  // namespace cmi::test::fake_test

TEST_SUITE_END();

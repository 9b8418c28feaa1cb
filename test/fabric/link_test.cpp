// Links: one-sided operations and requests, as their user sees them. How links find their home:
// link_routes_test.cpp; what becomes of them when something breaks: link_breaks_test.cpp.
#include "fabric/link.hpp"

#include "fabric/link_world.hpp"

namespace cmi::test::link_test {
namespace {

using namespace link_world;
using fabric::FakeNet;
using fabric::Link;
using fabric::Request;
using fabric::Session;

CMI_CONTRACT(a_request_is_executed_once_and_answered_once, world) {
  Two two(world);
  for (uint64_t i = 1; i <= 200; ++i) REQUIRE(call_works(*two.link, i * 1000));
  CHECK(two.home.handler.executions.load() == 200);
  CHECK(two.home.handler.numbers() == 200);
  CHECK(two.home.handler.most_often() == 1);
  CHECK(two.home.handler.sessions.load() == 1);
  CHECK(two.home.server->clients().knows(two.client.id));
  CHECK(two.home.server->client_listener(two.client.id).blob == two.client.listener());
  CHECK_FALSE(two.link->has_pending());
  CHECK(two.link->health().heard() != 0);
  CHECK(two.link->health().unreachable_since() == 0);
}

CMI_CONTRACT(a_request_as_large_as_they_get_is_answered, world) {
  Two two(world);
  const Buffer question(fabric::kMaxPayload, std::byte{7});
  auto answer = two.link->call(1, question, Deadline::in(kLong));
  REQUIRE(answer);
  CHECK(word(*answer) == 1);  // no eight bytes: zero plus one
}

CMI_CONTRACT(memory_of_the_home_is_reached_through_a_session, world) {
  Two two(world);
  alignas(8) uint64_t memory[8] = {11};
  auto s = live(*two.link);
  auto region = two.home.server->register_for(two.client.id, memory, sizeof memory,
                                              fabric::kRead | fabric::kWrite, random_u64());
  REQUIRE(region);
  REQUIRE(*region != nullptr);
  const RemoteKey key = (*region)->key();
  uint64_t seen = 0, value = 12;
  CHECK(s->read(&seen, 8, key, 0, Deadline::in(kLong)) == Cause::kOk);
  CHECK(seen == 11);
  CHECK(s->write(&value, 8, key, 8, Deadline::in(kLong)) == Cause::kOk);
  CHECK(__atomic_load_n(&memory[1], __ATOMIC_SEQ_CST) == 12);
  if (two.client.fabric->traits().cas) {
    CHECK(s->cas(&seen, 12, 13, key, 8, Deadline::in(kLong)) == Cause::kOk);
    CHECK(seen == 12);
    CHECK(__atomic_load_n(&memory[1], __ATOMIC_SEQ_CST) == 13);
  }
}

CMI_CONTRACT(a_retired_session_is_replaced_by_a_newer_one, world) {
  Two two(world);
  auto old = live(*two.link);
  for (uint64_t i = 1; i <= 10; ++i) {
    two.link->retire(old);
    CHECK(old->broken());
    CHECK(two.link->current() != old);
    uint64_t word = 0;
    CHECK(old->read(&word, 8, {1, 0}, 0, Deadline::in(kLong)) == Cause::kCancelled);
    auto s = live(*two.link);
    CHECK(s->generation() > old->generation());
    CHECK(call_works(*two.link, i));
    old = s;
  }
  CHECK(two.home.handler.numbers() == 10);
  CHECK(two.home.handler.most_often() == 1);
}

CMI_CONTRACT(an_answer_that_was_long_in_the_making_arrives_in_a_later_session, world) {
  Two two(world);
  two.home.handler.holding.store(true);
  auto first = live(*two.link);
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 1; i <= 5; ++i) requests.push_back(two.link->start(7, buffer(i)));
  REQUIRE(comes_true([&] {
    two.link->advance();
    return two.home.handler.executions.load() == 5;
  }));
  two.link->retire(first);
  auto second = live(*two.link);
  CHECK(second != first);
  two.home.handler.release();
  for (uint64_t i = 1; i <= 5; ++i) {
    auto& r = requests[i - 1];
    CHECK(two.link->await(r, Deadline::in(kLong)) == Cause::kOk);
    CHECK(word(r->reply()) == i + 1);
  }
  CHECK(two.home.handler.executions.load() == 5);
  CHECK(two.home.handler.most_often() == 1);
}

CMI_CONTRACT(an_answer_given_while_there_was_no_session_is_kept_for_the_next, world) {
  Two two(world);
  two.home.handler.holding.store(true);
  auto first = live(*two.link);
  auto r = two.link->start(7, buffer(41));
  REQUIRE(comes_true([&] {
    two.link->advance();
    return two.home.handler.executions.load() == 1;
  }));
  two.home.server->fence(two.client.id, false);
  two.home.handler.release();
  two.link->retire(first);
  CHECK(two.link->await(r, Deadline::in(kLong)) == Cause::kOk);
  CHECK(word(r->reply()) == 42);
  CHECK(two.home.handler.executions.load() == 1);
}

TEST_CASE("a_home_that_takes_its_time_over_an_answer_keeps_its_session") {
  auto net = FakeNet::make({});
  Two two(*net);
  auto s = live(*two.link);
  two.home.handler.holding.store(true);
  auto r = two.link->start(7, buffer(8));
  CHECK(two.link->await(r, Deadline::in(2 * Link::kStall)) == Cause::kTimeout);
  CHECK(two.link->current() == s);
  CHECK(two.home.handler.sessions.load() == 1);
  two.home.handler.release();
  CHECK(two.link->await(r, Deadline::in(kLong)) == Cause::kOk);
  CHECK(word(r->reply()) == 9);
  CHECK(two.home.handler.executions.load() == 1);
}

TEST_CASE("a_forgotten_request_is_over_and_later_ones_are_answered") {
  auto net = FakeNet::make({});
  Two two(*net);
  two.home.handler.holding.store(true);
  (void)live(*two.link);
  int callbacks = 0;
  auto forgotten = two.link->start(7, buffer(1), [&](Bytes) { ++callbacks; });
  CHECK(two.link->await(forgotten, Deadline::in(kShort)) == Cause::kTimeout);
  CHECK(two.link->has_pending());
  two.link->forget(forgotten);
  CHECK_FALSE(two.link->has_pending());
  two.home.handler.release();
  CHECK(call_works(*two.link, 2));
  CHECK(callbacks == 0);
  CHECK_FALSE(forgotten->answered());
  CHECK(two.home.handler.most_often() == 1);
}

TEST_CASE("an_operation_ends_when_another_thread_retires_its_session") {
  auto net = FakeNet::make({});
  Two two(*net);
  uint64_t memory = 3, seen = 0;
  auto region = two.home.fabric->register_memory(&memory, 8, fabric::kRead, 1);
  REQUIRE(region);
  auto s = live(*two.link);
  std::weak_ptr<Session> watch = s;
  net->stop(s->endpoint().address());  // no result comes back
  CHECK(s->read(&seen, 8, (*region)->key(), 0, Deadline::in(kShort)) == Cause::kTimeout);
  std::atomic<bool> reading{false};
  std::thread other([&, s] {
    comes_true([&] { return reading.load(); });
    two.link->retire(s);
  });
  reading.store(true);
  CHECK(s->read(&seen, 8, (*region)->key(), 0, Deadline::in(kLong)) == Cause::kCancelled);
  other.join();
  // Nobody holds it any more: the operations left in flight are over and `seen` is ours.
  s.reset();
  CHECK(watch.expired());
  CHECK(seen == 0);
}

CMI_CONTRACT(condemning_a_link_fails_what_is_pending_and_everything_later, world) {
  Two two(world);
  two.home.handler.holding.store(true);
  auto s = live(*two.link);
  int callbacks = 0;
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 1; i <= 3; ++i) {
    requests.push_back(
        two.link->start(7, buffer(i), [&](Bytes reply) { callbacks += reply.empty(); }));
  }
  two.link->condemn();
  CHECK(two.link->condemned());
  CHECK(s->broken());
  for (auto& r : requests) {
    CHECK(two.link->await(r, Deadline::in(kLong)) == Cause::kPeerLost);
    CHECK(r->reply().empty());
  }
  CHECK(callbacks == 3);
  CHECK_FALSE(two.link->has_pending());
  CHECK(two.link->current() == nullptr);
  const Nanos before = now();
  CHECK(two.link->session(Deadline::in(kLong)) == nullptr);
  CHECK_FALSE(two.link->call(7, buffer(1), Deadline::in(kLong)));
  CHECK(now() - before < kLong / 2);
  two.home.handler.release();
  CHECK(callbacks == 3);
}

TEST_CASE("a_thread_that_awaits_an_answer_is_woken_when_the_link_is_condemned") {
  auto net = FakeNet::make({});
  Two two(*net);
  two.home.handler.holding.store(true);
  auto r = two.link->start(7, buffer(1));
  std::thread other([&] {
    comes_true([&] { return two.home.handler.executions.load() == 1; });
    two.link->condemn();
  });
  CHECK(two.link->await(r, Deadline::in(kLong)) == Cause::kPeerLost);
  other.join();
}

TEST_CASE("a_link_is_left_to_who_waits_for_an_answer_while_it_stands") {
  auto net = FakeNet::make({});
  Two two(*net);
  auto s = live(*two.link);
  two.home.handler.holding.store(true);
  auto r = two.link->start(7, buffer(8));
  CHECK(comes_true([&] { return two.home.handler.executions.load() == 1; }));
  CHECK_FALSE(two.link->left_to_waiters());  // nobody waits for it
  std::thread waiter([&] { CHECK(two.link->await(r, Deadline::in(kLong)) == Cause::kOk); });
  CHECK(comes_true([&] { return two.link->left_to_waiters(); }));
  net->stop(two.home.listener());
  two.link->retire(s);
  CHECK_FALSE(two.link->left_to_waiters());  // somebody has to connect it anew
  net->resume(two.home.listener());
  CHECK(comes_true([&] { return two.link->left_to_waiters(); }));  // over the next session
  two.home.handler.release();
  waiter.join();
  CHECK_FALSE(two.link->left_to_waiters());
}

TEST_CASE("a_link_condemned_while_it_connects_never_comes_up") {
  auto net = FakeNet::make({});
  for (int round = 0; round < 20; ++round) {
    Two two(*net);
    net->stop(two.home.listener());
    std::atomic<bool> ended{false};
    std::thread waiter([&] {
      CHECK(two.link->session(Deadline::in(kLong)) == nullptr);
      ended.store(true);
    });
    CHECK(
        comes_true([&] { return two.link->health().unreachable_since() != 0; }));  // hello is said
    for (int i = 0; i < 10 * round; ++i) std::this_thread::yield();
    // After a while of silence it has said hello once more, rightly.
    const bool said_once = now() - two.link->health().unreachable_since() < 100 * kMilli;
    two.link->condemn();
    net->resume(two.home.listener());
    CHECK(comes_true([&] { return ended.load(); }, kLong / 2));
    waiter.join();
    for (int i = 0; i < 100; ++i) CHECK(two.link->advance() == 0);
    CHECK(two.link->current() == nullptr);
    if (said_once) CHECK(two.home.handler.sessions.load() <= 1);
  }
}

}  // namespace
}  // namespace cmi::test::link_test

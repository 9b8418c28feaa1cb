// Links: one-sided operations and requests over connections that break, as their user sees it.
#include "fabric/link.hpp"

#include <cstdlib>
#include <deque>

#include "core/base/fault_point.hpp"
#include "fabric/world.hpp"
#include "support/party.hpp"

namespace cmi::test::link_test {
namespace {

using fabric::FakeModes;
using fabric::FakeNet;
using fabric::Link;
using fabric::Request;
using fabric::Session;

struct Two {
  explicit Two(World& world) : home(world.open()), client(world.open()) {
    link = client.link_to(home);
  }
  explicit Two(FakeNet& net) : home(net.open()), client(net.open()) { link = client.link_to(home); }

  Party home, client;
  std::unique_ptr<Link> link;
};

std::shared_ptr<Session> live(Link& link) {
  auto s = link.session(Deadline::in(kLong));
  REQUIRE(s != nullptr);
  return s;
}

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

CMI_CONTRACT(a_listener_that_does_not_answer_gives_way_to_the_next, world) {
  Two two(world);
  Buffer gone;
  {
    Party former(world.open());
    gone = former.listener();
  }
  const auto route = [&](const Buffer& listener) {
    return fabric::Route{two.client.fabric.get(), 0, false, two.client.listener(), listener};
  };
  std::vector<Buffer> taken;
  Link link({route(gone), route(two.home.listener())}, two.client.identity(), two.home.id, kLong,
            [&](const fabric::Route& r) {
              taken.push_back(r.home_listener);
              return true;
            });
  auto asked = link.start(7, buffer(41));  // before there is any session
  CHECK(link.await(asked, Deadline::in(kLong)) == Cause::kOk);
  CHECK(word(asked->reply()) == 42);
  CHECK(link.home_listener().blob == two.home.listener());
  CHECK(link.home_listeners().size() == 2);
  CHECK(taken.size() >= 2);
  CHECK(taken.front() == gone);
  CHECK(taken.back() == two.home.listener());
  CHECK(two.home.handler.most_often() == 1);
}

// A provider whose address or device has gone.
class NoEndpoints final : public Fabric {
 public:
  explicit NoEndpoints(const Traits& traits) : traits_(traits) {}
  const Traits& traits() const override { return traits_; }
  Result<std::unique_ptr<Endpoint>> open_endpoint(fabric::Receiver&, Endpoint*) override {
    return Status::kHw;
  }
  Result<std::unique_ptr<Region>> register_memory(void*, size_t, uint32_t, uint64_t,
                                                  Endpoint*) override {
    return Status::kNoMem;
  }

 private:
  const Traits traits_;
};

CMI_CONTRACT(a_way_that_opens_no_endpoint_any_more_gives_way_to_the_next, world) {
  Two two(world);
  NoEndpoints none(two.client.fabric->traits());
  const auto route = [&](Fabric& fabric) {
    return fabric::Route{&fabric, 0, false, two.client.listener(), two.home.listener()};
  };
  Link link({route(none), route(*two.client.fabric)}, two.client.identity(), two.home.id, kLong,
            {});
  auto asked = link.start(7, buffer(41));
  CHECK(link.await(asked, Deadline::in(kLong)) == Cause::kOk);
  CHECK(word(asked->reply()) == 42);
  CHECK_FALSE(link.health().local_fault());
  Link cut_off({route(none), route(none)}, two.client.identity(), two.home.id, kLong, {});
  CHECK(cut_off.session(Deadline::in(20 * kMilli)) == nullptr);
  CHECK(cut_off.health().local_fault());
}

// So many that with half a second each it would take twelve.
TEST_CASE("many_listeners_that_are_silent_share_the_time_of_a_few") {
  constexpr size_t kSilent = 24;
  auto net = FakeNet::make({});
  Two two(*net);
  Inbox nobody;
  std::vector<std::unique_ptr<Endpoint>> silent;
  std::vector<fabric::Route> routes;
  const auto add = [&](Bytes listener) {
    routes.push_back({two.client.fabric.get(),
                      0,
                      false,
                      two.client.listener(),
                      {listener.begin(), listener.end()}});
  };
  for (size_t i = 0; i < kSilent; ++i) {
    auto ep = two.home.fabric->open_endpoint(nobody);
    REQUIRE(ep);
    net->vanish((*ep)->address());
    add((*ep)->address());
    silent.push_back(ep.take());
  }
  add(two.home.listener());
  Link link(routes, two.client.identity(), two.home.id, kLong, {});
  CHECK(link.session(Deadline::in(slowness() * 8 * kSecond)) != nullptr);
  CHECK(link.home_listener().blob == two.home.listener());
}

CMI_CONTRACT(listeners_that_are_no_addresses_are_passed_over, world) {
  Two two(world);
  const Buffer none(3, std::byte{7});
  const auto route = [&](const Buffer& listener) {
    return fabric::Route{two.client.fabric.get(), 0, false, two.client.listener(), listener};
  };
  Link link({route(none), route(two.home.listener())}, two.client.identity(), two.home.id, kLong,
            {});
  CHECK(link.session(Deadline::in(kLong)) != nullptr);
  CHECK_FALSE(link.routes().without_listener());
  Link lost({route(none), route(none)}, two.client.identity(), two.home.id, kLong, {});
  CHECK(comes_true([&] { return lost.advance(), lost.routes().without_listener(); }));
  Link refused({route(two.home.listener())}, two.client.identity(), two.home.id, kLong,
               [](const fabric::Route&) { return false; });
  CHECK(comes_true([&] { return refused.advance(), refused.routes().without_listener(); }));
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

// Breaks a link again and again while requests go over it.
class Breaker {
 public:
  using Break = std::function<void(std::shared_ptr<Session>)>;
  Breaker(Link& link, RecordingHandler& home, Break how)
      : thread_([this, &link, &home, how] {
          std::mt19937 rng(7);
          while (!stop_.load()) {
            if (auto s = link.current(); s != nullptr) {
              how(std::move(s));
              ++breaks;
            }
            const int until = home.executions.load() + static_cast<int>(rng() % 12);
            comes_true([&] { return stop_.load() || home.executions.load() >= until; });
          }
        }) {}
  ~Breaker() { stop(); }
  void stop() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  std::atomic<int> breaks{0};

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// `kept` requests are under way at a time, so that some are in every state when it breaks.
void all_are_executed_once(Two& two, int breaks, size_t kept, Breaker& breaker) {
  uint64_t requests = 0;
  std::atomic<uint64_t> told{0};  // callbacks that had the right answer
  std::deque<std::pair<uint64_t, std::shared_ptr<Request>>> open;
  const auto finish_one = [&] {
    auto [question, r] = open.front();
    open.pop_front();
    REQUIRE(two.link->await(r, Deadline::in(kLong)) == Cause::kOk);
    if (question % 2 != 0) REQUIRE(word(r->reply()) == question + 1);
  };
  for (const Deadline deadline = Deadline::in(kLong);
       breaker.breaks.load() < breaks && !deadline.passed();) {
    Request::Callback tell;  // every other one has no use for it
    if (++requests % 2 == 0) {
      tell = [&told, answer = requests + 1](Bytes reply) { told += word(reply) == answer; };
    }
    open.emplace_back(requests, two.link->start(7, buffer(requests), std::move(tell)));
    if (open.size() > kept) finish_one();
  }
  while (!open.empty()) finish_one();
  breaker.stop();
  CHECK(told.load() == requests / 2);
  CHECK(two.home.handler.numbers() == requests);
  CHECK(two.home.handler.executions.load() == static_cast<int>(requests));
  CHECK(breaker.breaks.load() >= breaks);
  CHECK(two.home.handler.sessions.load() > breaks / 2);
}

CMI_CONTRACT(each_request_is_executed_once_though_sessions_are_retired_at_random, world) {
  Two two(world);
  Breaker breaker(*two.link, two.home.handler,
                  [&](std::shared_ptr<Session> s) { two.link->retire(s); });
  all_are_executed_once(two, world.real() ? 10 : 40, 8, breaker);
}

CMI_CONTRACT(each_request_is_executed_once_though_the_home_fences_at_random, world) {
  Two two(world);
  int fences = 0;
  Breaker breaker(*two.link, two.home.handler, [&](std::shared_ptr<Session> s) {
    // Mostly both, since the client alone notices a fence by silence.
    two.home.server->fence(two.client.id, false);
    if (++fences % 8 != 0) two.link->retire(s);
  });
  all_are_executed_once(two, world.real() ? 9 : 17, 4, breaker);
}

TEST_CASE("each_request_is_executed_once_though_the_network_fails_at_random") {
  for (bool ordered : {true, false}) {
    FakeModes modes;
    modes.ordered = ordered;
    modes.queue = 4;  // send buffers have to wait, too
    auto net = FakeNet::make(modes);
    Two two(*net);
    std::mt19937 rng(ordered);
    int costly = 0;  // breaks that are noticed by silence
    Breaker breaker(*two.link, two.home.handler, [&](std::shared_ptr<Session> s) {
      const Bytes mine = s->endpoint().address();
      switch (costly < 6 ? rng() % 12 : 3) {
        case 0:
          ++costly;
          return net->lose_messages(mine, 3);
        case 1:
          ++costly;
          return net->kill(mine);
        case 2:
          ++costly;
          return net->vanish(mine);
        default:
          return two.link->retire(s);
      }
    });
    all_are_executed_once(two, 30, 8, breaker);
  }
}

TEST_CASE("a_lost_hello_or_welcome_is_made_good") {
  auto net = FakeNet::make({});
  Two two(*net);
  net->lose_messages(two.home.listener(), 2);
  CHECK(live(*two.link)->generation() == 3);
  CHECK(two.home.handler.sessions.load() == 1);
  CHECK(call_works(*two.link, 1));
}

TEST_CASE("calls_given_up_early_do_not_keep_a_lost_hello_alive") {
  auto net = FakeNet::make({});
  Two two(*net);
  net->lose_messages(two.home.listener(), 1);
  CHECK(comes_true([&] { return call_works(*two.link, 1, 50 * kMilli); }));
}

TEST_CASE("a_lost_reply_is_asked_for_again_and_the_request_is_not_executed_again") {
  auto net = FakeNet::make({});
  Two two(*net);
  auto s = live(*two.link);
  net->lose_messages(s->endpoint().address(), 1);
  CHECK(call_works(*two.link, 5));
  CHECK(two.home.handler.executions.load() == 1);
}

// The one in front of it takes its time, and gives signs of life meanwhile.
TEST_CASE("a_lost_reply_is_asked_for_again_though_an_older_request_is_not_answered") {
  auto net = FakeNet::make({});
  Two two(*net);
  auto s = live(*two.link);
  two.home.handler.holding.store(true);
  auto older = two.link->start(7, buffer(8));
  REQUIRE(comes_true([&] {
    two.link->advance();
    return two.home.handler.executions.load() == 1;
  }));
  two.home.handler.holding.store(false);
  net->lose_messages(s->endpoint().address(), 1);
  CHECK(call_works(*two.link, 5));
  CHECK_FALSE(older->answered());
  CHECK(two.home.handler.executions.load() == 2);
  two.home.handler.release();
  CHECK(two.link->await(older, Deadline::in(kLong)) == Cause::kOk);
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

CMI_CONTRACT(a_home_that_is_not_there_gives_no_session_by_the_deadline, world) {
  auto home = std::make_unique<Party>(world.open());
  Party client(world.open());
  auto link = client.link_to(*home);
  home.reset();
  const Nanos before = now();
  CHECK(link->session(Deadline::in(kShort)) == nullptr);
  const Nanos took = now() - before;
  CHECK(took >= kShort);
  CHECK(took < kShort + 5 * kSecond);
  CHECK(link->current() == nullptr);
  CHECK(link->health().heard() == 0);
  CHECK(link->health().unreachable_since() >= before);
}

CMI_CONTRACT(a_home_that_dies_leaves_calls_and_sessions_unanswered_by_their_deadlines, world) {
  auto home = std::make_unique<Party>(world.open());
  Party client(world.open());
  auto link = client.link_to(*home);
  REQUIRE(call_works(*link, 1));
  home.reset();
  auto r = link->call(7, buffer(2), Deadline::in(3 * kSecond));  // the longest stall is over
  CHECK_FALSE(r);
  CHECK(r.status() == Status::kReconfig);
  CHECK_FALSE(link->has_pending());
  CHECK(link->session(Deadline::in(kShort)) == nullptr);
  CHECK(link->health().unreachable_since() != 0);
}

TEST_CASE("a_home_that_was_silent_and_comes_back_is_reached_again") {
  auto net = FakeNet::make({});
  Two two(*net);
  net->stop(two.home.listener());
  CHECK(two.link->session(Deadline::in(kShort)) == nullptr);
  CHECK(two.link->health().unreachable_since() != 0);
  net->resume(two.home.listener());
  CHECK(call_works(*two.link, 1));
  CHECK(two.link->health().unreachable_since() == 0);
}

TEST_CASE("what_this_side_lacks_for_an_endpoint_is_not_held_against_the_home") {
  auto net = FakeNet::make({});
  Two two(*net);
  net->stop(two.home.listener());
  CHECK(two.link->session(Deadline::in(kShort)) == nullptr);
  CHECK(two.link->health().unreachable_since() != 0);
  setenv("CMI_FAULT_POINT", "link_no_endpoint=fail", 1);
  arm_fault_points();
  // The hello is given up, and no other can be said.
  CHECK(two.link->session(Deadline::in(2 * kSecond)) == nullptr);
  CHECK(two.link->health().local_fault());
  CHECK(two.link->health().unreachable_since() == 0);
  unsetenv("CMI_FAULT_POINT");
  arm_fault_points();
  const Nanos before = now();
  CHECK(two.link->session(Deadline::in(kShort)) == nullptr);
  CHECK(two.link->health().unreachable_since() >= before);
  net->resume(two.home.listener());
  CHECK(call_works(*two.link, 1));
  CHECK(two.link->health().unreachable_since() == 0);
  CHECK_FALSE(two.link->health().local_fault());
}

TEST_CASE("an_overrun_queue_is_a_fault_of_this_side_until_there_is_a_new_session") {
  auto provider = fabric::FakeProvider::make({});
  Party home(provider->open().take()), client(provider->open().take());
  auto link = client.link_to(home);
  REQUIRE(call_works(*link, 1));
  const auto first = live(*link);
  const Bytes address = first->endpoint().address();
  provider->overrun(address);
  provider->net().stop(home.listener());
  uint64_t nothing = 0;
  CHECK(first->read(&nothing, 8, {1, 0}, 0, Deadline::in(kShort)) != Cause::kOk);
  CHECK(link->session(Deadline::in(kShort)) == nullptr);
  CHECK(first->endpoint().faulty());
  CHECK(first->broken());
  CHECK(link->health().local_fault());
  provider->net().resume(home.listener());
  CHECK(call_works(*link, 2));
  CHECK_FALSE(link->health().local_fault());
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

// Links over connections that break, to homes that are silent or have gone: each request is
// executed once, and nobody waits beyond its deadline.

#include <cstdlib>
#include <deque>

#include "core/base/fault_point.hpp"
#include "fabric/link_world.hpp"

namespace cmi::test::link_breaks_test {
namespace {

using namespace link_world;
using fabric::FakeModes;
using fabric::FakeNet;
using fabric::Link;
using fabric::Request;
using fabric::Session;

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

}  // namespace
}  // namespace cmi::test::link_breaks_test

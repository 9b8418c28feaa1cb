// Several threads over one link while it is rebuilt, and fences that race with hellos, over the
// fake fabric.
#include <deque>

#include "fabric/fake/fake.hpp"
#include "support/party.hpp"

namespace cmi::test::link_thread_test {
namespace {

using fabric::Cause;
using fabric::FakeModes;
using fabric::FakeNet;

TEST_CASE("calls_of_several_threads_over_a_link_that_is_rebuilt_are_each_executed_once") {
  constexpr size_t kThreads = 3;
  constexpr uint64_t kCalls = 150;
  FakeModes modes;
  modes.queue = 8;
  auto net = FakeNet::make(modes);
  Party home(net->open()), client(net->open());
  auto link = client.link_to(home);
  std::atomic<size_t> running{kThreads};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kCalls; ++i) {
        if (!call_works(*link, t * 1000000 + i)) ++wrong;
      }
      running.fetch_sub(1);
    });
  }
  int retired = 0;
  while (running.load() > 0) {
    const int until = home.handler.executions.load() + 10;
    comes_true([&] { return running.load() == 0 || home.handler.executions.load() >= until; });
    if (auto s = link->current(); s != nullptr) {
      link->retire(s);
      ++retired;
    }
  }
  for (auto& t : threads) t.join();
  CHECK(wrong.load() == 0);
  CHECK(home.handler.numbers() == kThreads * kCalls);
  CHECK(home.handler.most_often() == 1);
  CHECK(retired > 3);
  CHECK(home.handler.sessions.load() > 3);
}

TEST_CASE("one_sided_operations_of_several_threads_end_when_their_session_is_retired") {
  constexpr int kThreads = 3, kReads = 300;
  auto net = FakeNet::make({});
  Party home(net->open()), client(net->open());
  auto link = client.link_to(home);
  uint64_t memory = 77;
  auto region = home.fabric->register_memory(&memory, 8, fabric::kRead, 1);
  REQUIRE(region);
  const auto key = (*region)->key();
  std::atomic<int> running{kThreads}, wrong{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kReads;) {
        auto s = link->session(Deadline::in(kLong));
        if (s == nullptr) {
          ++wrong;
          break;
        }
        // Given up with its session: the buffer must live as long, so it goes with it.
        auto seen = std::make_shared<uint64_t>(0);
        const Cause c = s->read(seen.get(), 8, key, 0, Deadline::in(kLong));
        if (c == Cause::kOk) {
          if (*seen != 77) ++wrong;
          ++i;
          ++done;
        } else if (c == Cause::kTimeout) {
          ++wrong;
        } else {
          std::weak_ptr<fabric::Session> watch = s;
          link->retire(s);
          s.reset();
          if (!comes_true([&] { return watch.expired(); })) ++wrong;
        }
      }
      running.fetch_sub(1);
    });
  }
  while (running.load() > 0) {
    const int until = done.load() + 20;
    comes_true([&] { return running.load() == 0 || done.load() >= until; });
    link->retire(link->current());
  }
  for (auto& t : threads) t.join();
  CHECK(wrong.load() == 0);
  CHECK(done.load() == kThreads * kReads);
}

TEST_CASE("threads_that_wait_for_answers_all_end_when_the_link_is_condemned") {
  auto net = FakeNet::make({});
  Party home(net->open()), client(net->open());
  auto link = client.link_to(home);
  home.handler.holding.store(true);
  std::atomic<int> lost{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      auto r = link->start(7, buffer(t));
      if (link->await(r, Deadline::in(kLong)) == Cause::kPeerLost) ++lost;
    });
  }
  CHECK(comes_true([&] { return home.handler.executions.load() == 3; }));
  link->condemn();
  for (auto& t : threads) t.join();
  CHECK(lost.load() == 3);
  CHECK_FALSE(link->has_pending());
}

TEST_CASE("a_client_fenced_for_ever_while_it_says_hello_has_no_session_in_the_end") {
  auto net = FakeNet::make({});
  Party home(net->open());
  auto fabric = net->open();
  for (int i = 0; i < 100; ++i) {
    Stranger who(*fabric, home);
    if (i % 2 == 0) (void)who.enter(1);
    Stranger::Hello h = who.hello();
    h.generation = 2;
    std::thread fencer([&] {
      for (int n = 0; n < i % 7; ++n) std::this_thread::yield();
      home.server->fence(who.id, true);
    });
    CHECK(who.say(h));
    fencer.join();
    CHECK_FALSE(home.server->clients().knows(who.id));
    const uint64_t before = home.server->dropped();
    h.generation = 3;
    CHECK(who.say(h));
    CHECK(comes_true([&] { return home.server->dropped() > before; }));
    CHECK_FALSE(home.server->clients().knows(who.id));
  }
}

TEST_CASE("many_pollers_of_one_server_and_fences_in_between_get_on") {
  auto net = FakeNet::make({});
  Party home(net->open()), one(net->open()), two(net->open());
  auto link1 = one.link_to(home), link2 = two.link_to(home);
  std::atomic<bool> stop{false};
  std::thread poller([&] {
    while (!stop.load()) home.server->poll();
  });
  std::thread fencer([&] {
    for (int i = 0; !stop.load(); ++i) {
      const int until = home.handler.executions.load() + 10;
      comes_true([&] { return stop.load() || home.handler.executions.load() >= until; });
      home.server->fence(i % 2 == 0 ? one.id : two.id, false);
      link1->retire(link1->current());
      link2->retire(link2->current());
    }
  });
  std::thread other([&] {
    for (uint64_t i = 0; i < 100; ++i) CHECK(call_works(*link2, i));
  });
  for (uint64_t i = 0; i < 100; ++i) CHECK(call_works(*link1, i));
  other.join();
  stop.store(true);
  poller.join();
  fencer.join();
  CHECK(home.handler.numbers() == 200);
  CHECK(home.handler.most_often() == 1);
}

}  // namespace
}  // namespace cmi::test::link_thread_test

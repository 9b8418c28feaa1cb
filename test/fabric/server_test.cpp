// Servers toward clients that misbehave, come late or come back: what is dropped, what is counted,
// what goes on. Strangers speak the wire by hand.
#include "fabric/server.hpp"

#include <poll.h>

#include "fabric/world.hpp"
#include "support/party.hpp"

namespace cmi::test::server_test {
namespace {

using fabric::FakeNet;
using fabric::Frame;
using fabric::FrameKind;
using Hello = Stranger::Hello;

struct Visit {  // a home, and somebody at its listener
  explicit Visit(World& world) : home(world.open()), fabric(world.open()), who(*fabric, home) {}
  explicit Visit(FakeNet& net) : home(net.open()), fabric(net.open()), who(*fabric, home) {}

  uint64_t dropped() { return home.server->dropped(); }
  // So many more messages have been dropped since `before`, and no session was made.
  bool drops(uint64_t before, uint64_t n) {
    return comes_true([&] {
             who.endpoint().poll();
             return dropped() >= before + n;
           }) &&
           dropped() == before + n;
  }
  int executions() { return home.handler.executions.load(); }

  Party home;
  std::unique_ptr<Fabric> fabric;
  Stranger who;
};

CMI_CONTRACT(a_repeated_request_gets_its_answer_again_and_is_not_executed_again, world) {
  Visit v(world);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  for (int n = 1; n <= 3; ++n) {
    REQUIRE(v.who.request(serving, w.secret, 1, 1));
    CHECK(comes_true([&] { return v.who.replies(1) == n; }));
  }
  CHECK(v.executions() == 1);
}

// A look costs a system call: what any of many clients asks for must not wait for a look for each.
TEST_CASE("net: a_request_of_any_of_many_clients_is_found_by_the_first_looks") {
  run_contract(Kind::kNet, [](World& world) {
    constexpr size_t kClients = 24;
    Party home(world.open());
    auto fabric = world.open();
    struct Client {
      std::unique_ptr<Stranger> who;
      Stranger::Welcome welcome;
      Peer serving{};
    };
    std::vector<Client> clients(kClients);
    for (Client& c : clients) {
      c.who = std::make_unique<Stranger>(*fabric, home);
      c.welcome = c.who->enter();
      c.serving = c.who->peer(c.welcome.serving);
      REQUIRE(c.who->request(c.serving, c.welcome.secret, 1, 1));
      REQUIRE(comes_true([&] { return c.who->replies(1) == 1; }));
    }
    home.stop_polling();
    while (home.server->poll(true) > 0) {
    }
    int most = 0;
    for (size_t i = 0; i < 2 * kClients; ++i) {
      Client& c = clients[i * 7 % kClients];  // seldom the one that was answered last
      const uint64_t number = 2 + i / kClients;
      const int before = home.handler.executions.load();
      REQUIRE(c.who->request(c.serving, c.welcome.secret, number, number));
      std::vector<int> fds;
      home.server->descriptors(&fds);
      CHECK(fds.size() == 1);  // nor is there one for each to sleep on
      pollfd arrived{fds[0], POLLIN, 0};
      REQUIRE(::poll(&arrived, 1, static_cast<int>(kPatience / kMilli)) == 1);
      int looks = 0;
      for (; home.handler.executions.load() == before; ++looks) {
        REQUIRE(looks < 1000);
        home.server->poll();
      }
      most = std::max(most, looks);
      while (home.server->poll() > 0) {
      }
    }
    // One is enough, but for a provider that needs another to read what the first has found.
    CHECK(most <= 3);
  });
}

TEST_CASE("a_request_repeated_while_it_is_worked_on_is_executed_once_and_answered_once") {
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  v.home.handler.holding.store(true);
  for (int n = 0; n < 3; ++n) REQUIRE(v.who.request(serving, w.secret, 1, 1));
  REQUIRE(v.who.request(serving, w.secret, 2, 1));
  CHECK(comes_true([&] { return v.executions() == 2; }));
  v.home.handler.release();
  CHECK(comes_true([&] { return v.who.replies(2) == 1; }));
  CHECK(v.who.replies(1) == 1);
  CHECK(v.home.handler.executed(v.who.id, 1) == 1);
}

TEST_CASE("a_number_that_its_client_has_settled_is_never_executed") {
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  REQUIRE(v.who.request(serving, w.secret, 2, 1));
  REQUIRE(v.who.request(serving, w.secret, 5, 5));
  REQUIRE(v.who.request(serving, w.secret, 3, 1));  // forgotten by its client, and late
  REQUIRE(v.who.request(serving, w.secret, 2, 1));  // its answer is not kept any more
  REQUIRE(v.who.request(serving, w.secret, 6, 5));
  CHECK(comes_true([&] { return v.who.replies(6) == 1; }));
  CHECK(v.home.handler.executed(v.who.id, 3) == 0);
  CHECK(v.home.handler.executed(v.who.id, 2) == 1);
  CHECK(v.who.replies(2) == 1);
  CHECK(v.executions() == 3);
}

// Who settles nothing does not fill the home's memory; what it repeats is not executed again.
TEST_CASE("of_a_client_that_settles_nothing_the_oldest_answers_are_dropped") {
  constexpr uint64_t kMany = 20000;
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  for (uint64_t n = 1; n <= kMany; ++n) {
    REQUIRE(v.who.request(serving, w.secret, n, 1));
    if (n % 100 == 0) REQUIRE(comes_true([&] { return v.who.replies(n) == 1; }));
  }
  const uint64_t before = v.dropped();
  const int executions = v.executions();
  CHECK(executions == static_cast<int>(kMany));
  REQUIRE(v.who.request(serving, w.secret, 1, 1));
  CHECK(v.drops(before, 1));
  REQUIRE(v.who.request(serving, w.secret, kMany - 10000, 1));
  CHECK(comes_true([&] { return v.who.replies(kMany - 10000) == 2; }));
  CHECK(v.executions() == executions);
}

// So a client that has more to ask than a server takes loses nothing.
TEST_CASE("a_link_has_only_so_many_requests_under_way_and_asks_the_rest_as_these_are_answered") {
  constexpr int kMost = static_cast<int>(fabric::Link::kMostUnderWay), kMore = 300;
  auto net = FakeNet::make({});
  Party home(net->open()), client(net->open());
  auto link = client.link_to(home);
  REQUIRE(call_works(*link, 1));
  home.handler.holding.store(true);
  std::vector<std::shared_ptr<fabric::Request>> asked;
  for (int i = 0; i < kMost + kMore; ++i) {
    asked.push_back(link->start(7, buffer(1)));
    if (i % 100 == 0) link->advance();
  }
  const auto executed = [&](int n) {
    return comes_true([&] {
      link->advance();
      return home.handler.executions.load() >= n;
    });
  };
  CHECK(executed(1 + kMost));
  link->forget(asked[5]);
  asked.erase(asked.begin() + 5);
  CHECK(executed(2 + kMost));
  CHECK(home.handler.executions.load() == 2 + kMost);
  home.handler.release();
  CHECK(executed(1 + kMost + kMore));
  for (auto& r : asked) CHECK(link->await(r, Deadline::in(kLong)) == Cause::kOk);
  CHECK(home.handler.executions.load() == 1 + kMost + kMore);
}

TEST_CASE("of_a_client_that_is_not_answered_only_so_many_requests_are_taken_in") {
  constexpr uint64_t kMost = 16384;
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  v.home.handler.holding.store(true);
  for (uint64_t n = 1; n <= kMost; ++n) {
    REQUIRE(v.who.request(serving, w.secret, n, 1));
    if (n % 100 == 0) REQUIRE(comes_true([&] { return v.executions() == static_cast<int>(n); }));
  }
  REQUIRE(comes_true([&] { return v.executions() == static_cast<int>(kMost); }));
  const uint64_t before = v.dropped();
  REQUIRE(v.who.request(serving, w.secret, kMost + 1, 1));
  CHECK(v.drops(before, 1));
  v.home.handler.release();
  CHECK(comes_true([&] { return v.who.replies(kMost) == 1; }));
  REQUIRE(v.who.request(serving, w.secret, kMost + 1, 1));  // asked again, and answered
  CHECK(comes_true([&] { return v.who.replies(kMost + 1) == 1; }));
}

// Something before them has no answer; they have had theirs otherwise.
TEST_CASE("what_a_client_calls_over_is_not_executed_again_and_keeps_nothing_out") {
  constexpr uint64_t kMost = 16384;
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  v.home.handler.holding.store(true);
  const auto over = [&](const std::vector<uint64_t>& numbers, uint64_t secret) {
    return v.who.send(serving,
                      {FrameKind::kAckedBelow, 0, secret, 0, 1, std::as_bytes(std::span(numbers))});
  };
  std::vector<uint64_t> some;
  uint64_t named = 0;
  for (uint64_t n = 1; n <= kMost + 100; ++n) {
    REQUIRE(v.who.request(serving, w.secret, n, 1));
    if (n > 1) some.push_back(n);
    if (some.size() < fabric::kMostAckedBelow && n % 100 != 0) continue;
    REQUIRE(comes_true([&] { return v.executions() == static_cast<int>(n); }));
    if (some.size() < fabric::kMostAckedBelow) continue;
    REQUIRE(over(some, w.secret));
    named += some.size();
    REQUIRE(comes_true([&] { return v.home.handler.acked_behind().size() == named; }));
    some.clear();
  }
  REQUIRE(comes_true([&] { return v.executions() == static_cast<int>(kMost) + 100; }));
  REQUIRE(v.who.request(serving, w.secret, 2, 1));  // asked again
  REQUIRE(v.who.request(serving, w.secret, kMost + 101, 1));
  CHECK(comes_true([&] { return v.executions() == static_cast<int>(kMost) + 101; }));
  CHECK(v.home.handler.executed(v.who.id, 2) == 1);
  // Not too many, not in part, not by who lacks the secret.
  const uint64_t dropped = v.dropped();
  REQUIRE(over(std::vector<uint64_t>(fabric::kMostAckedBelow + 1, 3), w.secret));
  REQUIRE(over({3}, w.secret + 1));
  REQUIRE(v.who.send(serving, {FrameKind::kAckedBelow, 0, w.secret, 0, 1, Buffer(7)}));
  REQUIRE(v.who.send(serving, {FrameKind::kDirectAck, 0, w.secret, 1, 1, {}}));
  CHECK(v.drops(dropped, 4));
  CHECK(v.home.handler.acked_behind().size() == named);
}

TEST_CASE("settling_numbers_of_the_future_settles_none_of_them") {
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  REQUIRE(v.who.request(serving, w.secret, 1, UINT64_MAX));
  REQUIRE(v.who.request(serving, w.secret, 2, 2));
  CHECK(comes_true([&] { return v.who.replies(1) == 1 && v.who.replies(2) == 1; }));
}

TEST_CASE("requests_with_a_wrong_secret_or_without_a_number_are_dropped") {
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  const uint64_t before = v.dropped();
  REQUIRE(v.who.request(serving, w.secret + 1, 1, 1));
  REQUIRE(v.who.request(serving, 0, 1, 1));
  REQUIRE(v.who.request(serving, w.secret, 0, 0));
  for (FrameKind kind : {FrameKind::kHello, FrameKind::kWelcome, FrameKind::kReply,
                         FrameKind::kNotification, FrameKind::kAck}) {
    REQUIRE(v.who.send(serving, {kind, 0, w.secret, 1, 1, {}}));
  }
  CHECK(v.drops(before, 8));
  CHECK(v.executions() == 0);
  REQUIRE(v.who.request(serving, w.secret, 1, 1));
  CHECK(comes_true([&] { return v.who.replies(1) == 1; }));
}

TEST_CASE("what_an_old_session_still_carries_has_no_effect_after_the_next_has_begun") {
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto one = v.who.enter(1);
  const Peer old = v.who.peer(one.serving);
  net->stop(one.serving);  // what is sent to it now is on its way
  CHECK_FALSE(v.who.request(old, one.secret, 1, 1, kShort));
  const auto two = v.who.enter(2);
  CHECK(two.secret != one.secret);
  CHECK(two.serving != one.serving);
  net->resume(one.serving);
  const uint64_t before = v.dropped();
  CHECK_FALSE(v.who.request(old, one.secret, 2, 1, kShort));  // its endpoint is closed
  const Peer serving = v.who.peer(two.serving);
  REQUIRE(v.who.request(serving, one.secret, 3, 1));
  CHECK(v.drops(before, 1));
  CHECK(v.executions() == 0);
  REQUIRE(v.who.request(serving, two.secret, 4, 1));
  CHECK(comes_true([&] { return v.who.replies(4) == 1; }));
  CHECK(v.executions() == 1);
}

TEST_CASE("the_secret_of_another_client_opens_nothing") {
  auto net = FakeNet::make({});
  Visit v(*net);
  Stranger other(*v.fabric, v.home);
  const auto mine = v.who.enter();
  const auto theirs = other.enter();
  const uint64_t before = v.dropped();
  REQUIRE(v.who.request(v.who.peer(theirs.serving), mine.secret, 1, 1));
  CHECK(v.drops(before, 1));
  CHECK(v.executions() == 0);
}

CMI_CONTRACT(a_hello_that_is_not_in_order_is_dropped_and_counted, world) {
  Visit v(world);
  const auto w = v.who.enter(5);
  const auto refuse = [&](const char* what, auto change) {
    CAPTURE(what);
    Hello h = v.who.hello();
    h.generation = 6;
    change(h);
    const uint64_t before = v.dropped();
    REQUIRE(v.who.say(h));
    CHECK(v.drops(before, 1));
  };
  const int sessions = v.home.handler.sessions.load();
  refuse("an old generation", [](Hello& h) { h.generation = 4; });
  refuse("the same generation", [](Hello& h) { h.generation = 5; });
  refuse("no generation", [](Hello& h) { h.generation = 0; });
  refuse("meant for another", [](Hello& h) { h.meant.lo ^= 1; });
  refuse("meant for nobody", [](Hello& h) { h.meant = {}; });
  refuse("another notification secret", [](Hello& h) { h.notification_secret ^= 1; });
  refuse("from nobody", [](Hello& h) { h.id = {}; });
  CHECK(v.home.handler.sessions.load() == sessions);
  // The session that was there has not suffered.
  REQUIRE(v.who.request(v.who.peer(w.serving), w.secret, 1, 1));
  CHECK(comes_true([&] { return v.who.replies(1) == 1; }));
}

CMI_CONTRACT(a_hello_with_addresses_that_are_none_is_dropped, world) {
  Visit v(world);
  const Buffer good = v.who.address();
  Buffer half(good.begin(), good.begin() + static_cast<ptrdiff_t>(good.size() / 2));
  Buffer garbage(good.size(), std::byte{0xee});
  Buffer longer = good;
  longer.resize(good.size() + 1);
  for (const Buffer& bad : {Buffer{}, Buffer{std::byte{1}}, half, garbage, longer}) {
    for (bool listener : {true, false}) {
      CAPTURE(bad.size());
      CAPTURE(listener);
      Hello h = v.who.hello();
      h.id = random_context_id();
      (listener ? h.listener : h.initiator) = bad;
      const uint64_t before = v.dropped();
      REQUIRE(v.who.say(h));
      CHECK(v.drops(before, 1));
      CHECK_FALSE(v.home.server->clients().knows(h.id));
    }
  }
  (void)v.who.enter();
  CHECK(v.home.server->clients().knows(v.who.id));
}

TEST_CASE("a_hello_cut_short_or_with_bytes_behind_it_is_dropped") {
  auto net = FakeNet::make({});
  Visit v(*net);
  Buffer whole = Stranger::encode(v.who.hello());
  const uint64_t before = v.dropped();
  for (size_t n = 0; n < whole.size(); ++n) {
    REQUIRE(v.who.send(v.who.listener(), {FrameKind::kHello, 0, 0, 0, 0, Bytes(whole).first(n)}));
  }
  whole.push_back(std::byte{0});
  REQUIRE(v.who.send(v.who.listener(), {FrameKind::kHello, 0, 0, 0, 0, whole}));
  CHECK(v.drops(before, whole.size()));
  CHECK(v.home.handler.sessions.load() == 0);
  (void)v.who.enter();
}

TEST_CASE("an_old_hello_that_arrives_late_does_not_end_the_session") {
  auto net = FakeNet::make({});
  Visit v(*net);
  const auto w = v.who.enter(2);
  const uint64_t before = v.dropped();
  REQUIRE(v.who.say(v.who.hello()));  // generation 1
  CHECK(v.drops(before, 1));
  REQUIRE(v.who.request(v.who.peer(w.serving), w.secret, 1, 1));
  CHECK(comes_true([&] { return v.who.replies(1) == 1; }));
}

CMI_CONTRACT(a_client_that_is_not_welcome_gets_no_session_until_it_is, world) {
  Visit v(world);
  v.home.handler.welcoming.store(false);
  REQUIRE(v.who.say(v.who.hello()));
  CHECK(v.drops(0, 1));
  CHECK(v.home.handler.sessions.load() == 0);
  v.home.handler.welcoming.store(true);
  (void)v.who.enter();
}

CMI_CONTRACT(a_fenced_client_may_come_back_unless_it_was_for_ever, world) {
  Party home(world.open()), client(world.open());
  auto link = client.link_to(home);
  REQUIRE(call_works(*link, 1));
  home.server->fence(client.id, false);
  CHECK(home.server->clients().knows(client.id));
  CHECK(call_works(*link, 2));
  CHECK(home.handler.sessions.load() == 2);

  home.server->fence(client.id, true);
  CHECK_FALSE(home.server->clients().knows(client.id));
  const uint64_t before = home.server->dropped();
  CHECK_FALSE(link->call(7, buffer(3), Deadline::in(3 * kSecond)));  // the longest stall is over
  CHECK(link->session(Deadline::in(kShort)) == nullptr);
  CHECK(home.server->dropped() > before);  // its hellos
  CHECK(home.handler.sessions.load() == 2);
  CHECK(home.handler.executions.load() == 2);
}

TEST_CASE("a_client_fenced_for_ever_before_it_came_is_not_welcomed") {
  auto net = FakeNet::make({});
  Visit v(*net);
  v.home.server->fence(v.who.id, true);
  CHECK_FALSE(v.home.server->clients().knows(v.who.id));
  REQUIRE(v.who.say(v.who.hello()));
  CHECK(v.drops(0, 1));
  CHECK(v.home.handler.sessions.load() == 0);
  CHECK_FALSE(v.home.server->notification(v.who.id, 1, 1, {}));
}

TEST_CASE("nothing_of_a_client_is_executed_after_its_fence_has_returned") {
  auto net = FakeNet::make({});
  for (bool forever : {false, true}) {
    Visit v(*net);
    const auto w = v.who.enter();
    const Peer serving = v.who.peer(w.serving);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> tried{0};
    std::thread sender([&] {
      for (uint64_t n = 1; !stop.load(); ++n) {
        tried.store(n);
        if (!v.who.request(serving, w.secret, n, n, 10 * kMilli)) std::this_thread::yield();
      }
    });
    CHECK(comes_true([&] { return v.executions() > 20; }));
    v.home.server->fence(v.who.id, forever);
    const int at_the_fence = v.executions();
    const uint64_t tried_then = tried.load();
    CHECK(comes_true([&] { return tried.load() > tried_then + 50; }));
    CHECK(v.executions() == at_the_fence);
    stop.store(true);
    sender.join();
  }
}

TEST_CASE("a_swept_client_may_come_back_and_one_fenced_for_ever_may_not") {
  auto net = FakeNet::make({});
  Party home(net->open()), client(net->open());
  auto link = client.link_to(home);
  REQUIRE(call_works(*link, 1));
  home.server->sweep(kLong);  // not silent for so long
  CHECK(home.server->clients().knows(client.id));
  home.handler.sweepable.store(false);  // something is kept for it
  home.server->sweep(0);
  CHECK(home.server->clients().knows(client.id));
  home.handler.sweepable.store(true);
  home.server->sweep(0);
  CHECK_FALSE(home.server->clients().knows(client.id));
  CHECK(call_works(*link, 2));
  CHECK(home.handler.sessions.load() == 2);

  home.server->fence(client.id, true);
  home.server->sweep(0);
  CHECK_FALSE(link->call(7, buffer(3), Deadline::in(1200 * kMilli)));
  CHECK(home.handler.sessions.load() == 2);
  CHECK(home.handler.executions.load() == 2);
}

// A hello may name any listener: what is kept for it at ours goes with the last who has named it.
CMI_CONTRACT(a_stranger_that_names_anothers_listener_does_not_take_it_along_when_it_goes, world) {
  Visit v(world);
  Stranger liar(*v.fabric, v.home), after(*v.fabric, v.home);
  (void)v.who.enter();
  v.home.handler.keeps = v.who.id;
  const auto claim = [&](Stranger& who, uint32_t generation) {
    Hello h = who.hello();
    h.generation = generation;
    h.listener = v.who.address();
    (void)who.enter(h);
  };
  int heard = 0;
  const auto is_heard = [&] {
    REQUIRE(v.home.server->notification(v.who.id, 1, 3, buffer(7)));
    ++heard;
    CHECK(comes_true([&] { return v.who.notifications() == heard; }));
  };
  claim(liar, 1);
  claim(liar, 2);
  is_heard();
  claim(after, 1);
  v.home.server->sweep(0);
  CHECK_FALSE(v.home.server->clients().knows(liar.id));
  CHECK_FALSE(v.home.server->clients().knows(after.id));
  is_heard();
  (void)v.who.enter(2);
  v.home.server->sweep(0);
  is_heard();
}

// What was for the former listener is with the provider, or waits, when that listener is forgotten.
CMI_CONTRACT(a_client_that_comes_back_with_another_listener_is_heard_of_there_alone, world) {
  Visit v(world);
  int heard = 0;
  for (uint32_t generation = 1; generation <= 7; generation += 2) {
    Hello h = v.who.hello();
    h.generation = generation;
    {
      Stranger gone(*v.fabric, v.home);
      h.listener = gone.address();
      if (generation > 4) {  // it was there, and has been sent something
        (void)v.who.enter(h);
        REQUIRE(v.home.server->notification(v.who.id, 1, 3, buffer(7)));
        REQUIRE(comes_true([&] { return gone.notifications() == 1; }));
      }
    }
    if (generation <= 4) (void)v.who.enter(h);
    for (int i = 0; i < 20; ++i) REQUIRE(v.home.server->notification(v.who.id, 1, 3, buffer(7)));
    (void)v.who.enter(generation + 1);
    REQUIRE(v.home.server->notification(v.who.id, 1, 3, buffer(7)));
    ++heard;
    CHECK(comes_true([&] { return v.who.notifications() == heard; }));
  }
  v.home.server->sweep(0);
  CHECK_FALSE(v.home.server->clients().knows(v.who.id));
  CHECK(call_works(*Party(world.open()).link_to(v.home), 1));
}

TEST_CASE("a_client_that_waits_for_an_answer_is_not_swept") {
  auto net = FakeNet::make({});
  Party home(net->open()), client(net->open());
  auto link = client.link_to(home);
  home.handler.holding.store(true);
  auto r = link->start(7, buffer(1));
  REQUIRE(comes_true([&] {
    (void)link->session(Deadline::in(kMilli));
    return home.handler.executions.load() == 1;
  }));
  home.server->sweep(0);
  CHECK(home.server->clients().knows(client.id));
  home.handler.release();
  CHECK(link->await(r, Deadline::in(kLong)) == Cause::kOk);
  CHECK(home.handler.sessions.load() == 1);
}

TEST_CASE("a_handler_of_one_client_may_fence_another") {
  auto net = FakeNet::make({});
  Party one(net->open()), two(net->open()), home(net->open());
  auto link1 = one.link_to(home), link2 = two.link_to(home);
  home.handler.during_request = [&](const ContextId& client) {
    if (client == one.id) home.server->fence(two.id, false);
  };
  // The fenced one stands behind the other in the home's list: it might be held for its turn.
  REQUIRE(link1->session(Deadline::in(kLong)) != nullptr);
  REQUIRE(call_works(*link2, 1));
  REQUIRE(call_works(*link1, 2));
  CHECK(call_works(*link2, 3));
  CHECK(home.handler.sessions.load() == 3);
}

CMI_CONTRACT(notifications_and_their_acks_reach_those_they_are_for, world) {
  Party home(world.open()), client(world.open()), bystander(world.open());
  auto link = client.link_to(home), other = bystander.link_to(home);
  REQUIRE(call_works(*link, 1));
  REQUIRE(call_works(*other, 1));
  REQUIRE(ok(client.server->add_home(home.id, home.listener(), client.notification_secret)));
  REQUIRE(ok(bystander.server->add_home(home.id, home.listener(), bystander.notification_secret)));
  for (uint64_t n = 1; n <= 20; ++n) {
    REQUIRE(home.server->notification(client.id, n, 3, buffer(n * 7)));
    REQUIRE(comes_true([&] { return client.handler.notifications().size() == n; }));
    const Told told = client.handler.notifications().back();
    CHECK(told.from == home.id);
    CHECK(told.number == n);
    CHECK(told.type == 3);
    CHECK(word(told.payload) == n * 7);
    client.server->ack(told.from, told.secret, told.number);
    REQUIRE(comes_true([&] { return home.handler.acks().size() == n; }));
    CHECK(home.handler.acks().back().from == client.id);
    CHECK(home.handler.acks().back().number == n);
  }
  CHECK(bystander.handler.notifications().empty());
  CHECK(home.handler.notifications().empty());
  CHECK_FALSE(home.server->notification(random_context_id(), 1, 3, {}));
  client.server->ack(random_context_id(), 1, 1);  // to nobody
}

TEST_CASE("forged_notifications_and_acks_are_dropped_and_counted") {
  auto net = FakeNet::make({});
  Party home(net->open()), client(net->open());
  auto link = client.link_to(home);
  REQUIRE(call_works(*link, 1));
  REQUIRE(ok(client.server->add_home(home.id, home.listener(), client.notification_secret)));
  Stranger at_client(*client.fabric, client), at_home(*client.fabric, home);

  const auto payload = [](ContextId from, size_t size) {
    Buffer b(64);
    Writer out(b);
    for (uint64_t w : {from.hi, from.lo, uint64_t{99}}) out.put(w);
    b.resize(size);
    return b;
  };
  const auto refuse = [](Party& at, Stranger& who, FrameKind kind, uint64_t secret,
                         const Buffer& b) {
    CAPTURE(static_cast<int>(kind));
    CAPTURE(b.size());
    const uint64_t before = at.server->dropped();
    REQUIRE(who.send(who.listener(), {kind, 3, secret, 1, 0, b}));
    CHECK(comes_true([&] { return at.server->dropped() == before + 1; }));
  };
  const uint64_t client_secret = client.notification_secret;
  // What acks must carry is told in notifications.
  REQUIRE(home.server->notification(client.id, 1, 3, {}));
  REQUIRE(comes_true([&] { return client.handler.notifications().size() == 1; }));
  const uint64_t home_secret = client.handler.notifications().back().secret;
  refuse(client, at_client, FrameKind::kNotification, client_secret ^ 1, payload(home.id, 24));
  refuse(client, at_client, FrameKind::kNotification, 0, payload(home.id, 24));
  refuse(client, at_client, FrameKind::kNotification, client_secret,
         payload(random_context_id(), 24));
  for (size_t n = 0; n < 24; ++n) {
    refuse(client, at_client, FrameKind::kNotification, client_secret, payload(home.id, n));
  }
  refuse(home, at_home, FrameKind::kAck, home_secret ^ 1, payload(client.id, 16));
  refuse(home, at_home, FrameKind::kAck, home_secret, payload(random_context_id(), 16));
  for (size_t n = 0; n < 16; ++n) {
    refuse(home, at_home, FrameKind::kAck, home_secret, payload(client.id, n));
  }
  for (FrameKind kind : {FrameKind::kWelcome, FrameKind::kRequest, FrameKind::kReply}) {
    refuse(home, at_home, kind, home_secret, payload(client.id, 24));
  }
  CHECK(client.handler.notifications().size() == 1);
  CHECK(home.handler.acks().empty());

  // Of a client that is cut off for ever nothing is heard, and it hears nothing.
  home.server->fence(client.id, true);
  refuse(home, at_home, FrameKind::kAck, home_secret, payload(client.id, 16));
  CHECK_FALSE(home.server->notification(client.id, 1, 3, {}));
  CHECK(home.handler.acks().empty());
}

CMI_CONTRACT(garbage_is_dropped_and_counted_and_service_goes_on, world) {
  Visit v(world);
  Party client(world.open());
  auto link = client.link_to(v.home);
  const auto w = v.who.enter();
  const Peer serving = v.who.peer(w.serving);
  std::mt19937 rng(5);
  const uint64_t before = v.dropped();
  const uint64_t count = world.real() ? 100 : 1000;
  for (uint64_t i = 0; i < count; ++i) {
    Buffer b(1 + rng() % 400);
    for (auto& x : b) x = static_cast<std::byte>(rng());
    const Peer to = i % 2 == 0 ? v.who.listener() : serving;
    if (i % 4 < 2) {
      REQUIRE(v.who.send(to, b));
    } else {  // a well-formed frame of garbage
      const auto kind = static_cast<FrameKind>(1 + rng() % 6);
      REQUIRE(v.who.send(to, {kind, static_cast<uint16_t>(rng()), rng(), rng(), rng(), b}));
    }
    if (i % 20 == 0) REQUIRE(call_works(*link, i));
  }
  CHECK(v.drops(before, count));
  CHECK(v.home.handler.notifications().empty());
  CHECK(v.home.handler.acks().empty());
  CHECK(v.home.handler.sessions.load() == 2);
  CHECK(v.executions() == static_cast<int>(count / 20));
  REQUIRE(v.who.request(serving, w.secret, 1, 1));
  CHECK(comes_true([&] { return v.who.replies(1) == 1; }));
}

CMI_CONTRACT(a_flood_of_hellos_of_unknown_clients_does_not_stop_service, world) {
  Visit v(world);
  Party client(world.open());
  auto link = client.link_to(v.home);
  REQUIRE(call_works(*link, 0));
  // More than one where a welcome came late and the link said hello again.
  const int before = v.home.handler.sessions.load();
  const int flood = world.real() ? 30 : 400;
  for (bool welcoming : {false, true}) {
    v.home.handler.welcoming.store(welcoming);
    for (int i = 0; i < flood; ++i) {
      Hello h = v.who.hello();
      h.id = random_context_id();
      REQUIRE(v.who.say(h));
      if (i % 10 == 0) REQUIRE(call_works(*link, static_cast<uint64_t>(i)));
    }
    CHECK(v.drops(0, static_cast<uint64_t>(flood)));
  }
  CHECK(comes_true([&] { return v.home.handler.sessions.load() == before + flood; }));
  CHECK(call_works(*link, 1));
  CHECK(v.home.handler.most_often() == 1);
}

}  // namespace
}  // namespace cmi::test::server_test

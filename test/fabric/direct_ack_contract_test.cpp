// Direct acks: the receivers of a request's notifications answer it, instead of the home.
#include <array>

#include "core/base/fault_point.hpp"
#include "fabric/world.hpp"
#include "support/party.hpp"

namespace cmi::test::direct_ack_contract_test {
namespace {

using fabric::DirectAck;
using fabric::Link;
using Tokens = std::vector<uint64_t>;

// The home's answers are longer.
bool by_direct_acks(const fabric::Request& r) {
  return Buffer(r.reply().begin(), r.reply().end()) ==
         Buffer(fabric::kReceived.begin(), fabric::kReceived.end());
}

// A home that keeps a request of the waiter's without an answer, and two givers whom it can tell.
struct Scene {
  explicit Scene(World& world)
      : home(world.open()), waiter(world.open()), givers{Party(world.open()), Party(world.open())} {
    link = waiter.link_to(home);
    REQUIRE(call_works(*link, 1));
    for (auto& g : givers) {
      links.push_back(g.link_to(home));
      REQUIRE(call_works(*links.back(), 1));
      REQUIRE(ok(g.server->add_home(home.id, home.listener(), g.notification_secret)));
    }
    home.handler.holding.store(true);
  }
  // The home has it when this returns.
  std::shared_ptr<fabric::Request> ask() {
    const int before = home.handler.executions.load();
    auto r = link->start(7, buffer(20), {}, Link::DirectAcks::kTaken);
    REQUIRE(comes_true([&] {
      link->advance();
      return home.handler.executions.load() > before;
    }));
    const Buffer question = home.handler.last_question();
    REQUIRE(question.size() == 16);
    std::memcpy(&secret, question.data() + 8, sizeof secret);
    return r;
  }
  Buffer where() {
    std::array<std::byte, fabric::kMaxDirectAckAddress> buf;
    const std::array ids{givers[0].id, givers[1].id};
    const Bytes to = home.server->direct_ack_address(waiter.id, ids, buf);
    return {to.begin(), to.end()};
  }
  void tell(const fabric::Request& r, const Tokens& tokens) {
    const Buffer to = where();
    REQUIRE(!to.empty());
    for (size_t i = 0; i < tokens.size(); ++i) {
      REQUIRE(home.server->notification(givers[i].id, ++notifications, 1, {}, false,
                                        {r.number(), tokens[i], to}));
      auto& handler = givers[i].handler;
      REQUIRE(comes_true([&] {
        return !handler.direct_acks().empty() && handler.direct_acks().back().number == r.number();
      }));
    }
  }
  bool give(size_t i) {
    const auto wanted = givers[i].handler.direct_acks().back();
    return givers[i].server->give(home.id, wanted.direct_ack());
  }
  bool answered(const fabric::Request& r, Nanos patience = kLong) {
    return comes_true(
        [&] {
          link->advance();
          return r.answered();
        },
        patience);
  }

  Party home, waiter;
  std::array<Party, 2> givers;
  std::unique_ptr<Link> link;
  std::vector<std::unique_ptr<Link>> links;
  uint64_t secret = 0, notifications = 0;
};

CMI_CONTRACT(the_direct_acks_of_all_who_were_notified_are_the_answer, world) {
  Scene s(world);
  auto r = s.ask();
  REQUIRE(s.secret != 0);
  s.tell(*r, {0x1234, s.secret ^ 0x1234});
  (void)s.give(0);
  CHECK_FALSE(s.answered(*r, kShort));
  (void)s.give(1);
  REQUIRE(s.answered(*r));
  CHECK(by_direct_acks(*r));
  CHECK_FALSE(s.link->has_pending());
  CHECK(s.home.handler.acked_below().empty());

  // The next request tells the home, before it is executed; the late answer is nobody's.
  s.home.handler.holding.store(false);
  REQUIRE(call_works(*s.link, 30));
  REQUIRE(s.home.handler.acked_below().size() == 1);
  CHECK(s.home.handler.acked_below()[0].from == s.waiter.id);
  CHECK(s.home.handler.acked_below()[0].number > r->number());
  s.home.handler.release();
  REQUIRE(call_works(*s.link, 40));
  CHECK(by_direct_acks(*r));
}

CMI_CONTRACT(what_ended_with_direct_acks_is_told_once_when_no_request_tells_it, world) {
  Scene s(world);
  s.link->report_acked_below();  // nothing has
  auto r = s.ask();
  s.tell(*r, {s.secret});
  s.link->report_acked_below();
  (void)s.give(0);
  REQUIRE(s.answered(*r));
  s.link->report_acked_below();
  REQUIRE(comes_true([&] {
    s.link->advance();
    return !s.home.handler.acked_below().empty();
  }));
  s.link->report_acked_below();
  s.home.handler.release();
  REQUIRE(call_works(*s.link, 30));
  CHECK(s.home.handler.acked_below().size() == 1);
}

CMI_CONTRACT(tokens_that_are_none_answer_nothing_and_the_home_does, world) {
  Scene s(world);
  auto r = s.ask();
  REQUIRE(s.secret != 0);
  s.tell(*r, {s.secret ^ 1, s.secret ^ 0x77});
  for (size_t i = 0; i < 2; ++i) (void)s.give(i);
  CHECK_FALSE(s.answered(*r, kShort));
  s.home.handler.release();
  REQUIRE(s.answered(*r));
  CHECK_FALSE(by_direct_acks(*r));
}

CMI_CONTRACT(a_token_that_comes_twice_counts_once, world) {
  Scene s(world);
  auto r = s.ask();
  s.tell(*r, {0x77, s.secret ^ 0x77});
  for (int times = 0; times < 3; ++times) (void)s.give(0);
  CHECK_FALSE(s.answered(*r, kShort));
  (void)s.give(1);
  CHECK(s.answered(*r));
}

// More of them than anybody is asked for.
CMI_CONTRACT(tokens_without_end_answer_nothing, world) {
  Scene s(world);
  auto r = s.ask();
  s.tell(*r, {s.secret ^ 1});
  const auto wanted = s.givers[0].handler.direct_acks().back();
  for (uint64_t i = 0; i < 100; ++i) {
    (void)s.givers[0].server->give(s.home.id, {wanted.number, i + 1, wanted.to});
  }
  CHECK_FALSE(s.answered(*r, kShort));
  s.home.handler.release();
  CHECK(s.answered(*r));
}

// Something before it has no answer: it is named, and stays known to the home, which must not
// execute it again.
CMI_CONTRACT(what_ended_with_direct_acks_behind_something_that_has_no_answer_is_named, world) {
  Scene s(world);
  auto slow = s.ask();
  auto r = s.ask();
  s.tell(*r, {s.secret});
  (void)s.give(0);
  REQUIRE(s.answered(*r));
  REQUIRE(s.link->report_acked_below());
  REQUIRE(comes_true([&] {
    s.link->advance();
    return !s.home.handler.acked_behind().empty();
  }));
  CHECK(s.home.handler.acked_behind() == std::vector{r->number()});
  CHECK_FALSE(s.link->report_acked_below());
  CHECK_FALSE(slow->answered());
  s.home.handler.release();
  REQUIRE(s.answered(*slow));
  CHECK(s.home.handler.most_often() == 1);
}

// Answers in direct acks alone are signs of life: the home has told those who give them.
CMI_CONTRACT(who_has_nothing_but_direct_acks_for_long_keeps_his_session, world) {
  Scene s(world);
  const auto session = s.link->current();
  REQUIRE(session != nullptr);
  const Deadline end = Deadline::in(2 * Link::kStall);
  // One is always without an answer when another one has its own.
  auto before = s.ask();
  uint64_t secret = s.secret;
  while (!end.passed()) {
    auto next = s.ask();
    s.tell(*before, {secret});
    (void)s.give(0);
    REQUIRE(s.answered(*before));
    before = next;
    secret = s.secret;
    REQUIRE(secret != 0);
  }
  CHECK(s.link->current() == session);
}

CMI_CONTRACT(direct_acks_for_what_an_earlier_session_asked_answer_nothing, world) {
  Scene s(world);
  auto r = s.ask();
  s.tell(*r, {s.secret});
  s.link->retire(s.link->current());
  auto next = s.link->session(Deadline::in(kLong));
  REQUIRE(next != nullptr);
  (void)s.give(0);  // to an endpoint that is gone
  CHECK(s.where() != s.givers[0].handler.direct_acks().back().to);
  // And if it came to the new one.
  s.tell(*r, {s.secret});
  (void)s.give(0);
  CHECK_FALSE(s.answered(*r, kShort));
  s.home.handler.release();
  REQUIRE(s.answered(*r));
  CHECK_FALSE(by_direct_acks(*r));
  CHECK(s.home.handler.executed(s.waiter.id, r->number()) == 1);
}

CMI_CONTRACT(nobody_is_asked_for_direct_acks_for_a_while_after_they_came_late, world) {
  Scene s(world);
  const auto answered_late = [&](fabric::TokensSent tokens) {
    s.home.handler.holding.store(true);
    auto r = s.ask();
    CHECK_FALSE(s.answered(*r, 20 * kMilli));
    s.home.handler.tokens.store(tokens);
    s.home.handler.release();
    REQUIRE(s.answered(*r));
  };
  // A home that was slow by itself is no reason.
  answered_late(fabric::TokensSent::kNo);
  REQUIRE(s.secret != 0);
  answered_late(fabric::TokensSent::kYes);
  REQUIRE(s.secret != 0);
  answered_late(fabric::TokensSent::kYes);
  CHECK(s.secret == 0);
  REQUIRE(comes_true([&] {
    answered_late(fabric::TokensSent::kNo);
    return s.secret != 0;
  }));
}

CMI_CONTRACT(a_direct_ack_is_relied_on_when_its_connection_has_carried_one, world) {
  Scene s(world);
  bool relied = false;
  for (int i = 0; i < 100 && !relied; ++i) {
    auto r = s.ask();
    s.tell(*r, {s.secret});
    relied = s.give(0);
    CHECK_FALSE((i == 0 && relied));
    REQUIRE(s.answered(*r));
  }
  CHECK(relied);
}

CMI_CONTRACT(direct_acks_are_asked_for_only_of_those_who_can_give_them, world) {
  Scene s(world);
  CHECK_FALSE(s.where().empty());
  std::array<std::byte, fabric::kMaxDirectAckAddress> buf;
  auto& home = *s.home.server;
  const std::array one{s.givers[0].id};
  CHECK(home.direct_ack_address(random_context_id(), one, buf).empty());
  CHECK(home.direct_ack_address(s.waiter.id, std::array{random_context_id()}, buf).empty());
  CHECK(home.direct_ack_address(s.waiter.id, one, std::span(buf).first(1)).empty());
  home.fence(s.givers[1].id, true);
  CHECK(s.where().empty());
  CHECK_FALSE(home.direct_ack_address(s.waiter.id, one, buf).empty());
  home.fence(s.waiter.id, false);  // it has no session
  CHECK(home.direct_ack_address(s.waiter.id, one, buf).empty());
  // Not those who do not know the home.
  CHECK_FALSE(s.waiter.server->give(s.home.id, {1, 2, buf}));
}

// A home that lies has a giver send direct acks to whomever it names.
TEST_CASE("a_giver_knows_no_more_than_so_many_waiters_however_many_a_home_names") {
  auto net = fabric::FakeNet::make({});
  Party home(net->open()), giver(net->open());
  auto link = giver.link_to(home);
  REQUIRE(call_works(*link, 1));
  REQUIRE(ok(giver.server->add_home(home.id, home.listener(), giver.notification_secret)));
  std::deque<Party> waiters;
  for (int i = 0; i < 80; ++i) waiters.emplace_back(net->open());
  for (auto& w : waiters) {
    (void)giver.server->give(home.id, {1, 2, w.listener()});
    (void)giver.server->give(home.id, {1, 2, w.listener()});
  }
  CHECK(giver.server->direct_ack_addresses() == 64);
  const Buffer no_address(7, std::byte{9});
  (void)giver.server->give(home.id, {1, 2, no_address});
  CHECK(giver.server->direct_ack_addresses() <= 64);
  giver.server->sweep(0);
  CHECK(giver.server->direct_ack_addresses() == 0);
}

}  // namespace
}  // namespace cmi::test::direct_ack_contract_test

// A server's clients: sessions, secrets and fences, over endpoints that only write down.
#include "fabric/client_table.hpp"

#include <doctest/doctest.h>

#include "fabric/poll_order.hpp"
#include "listener_record.hpp"

namespace cmi::test::client_table_test {
using namespace cmi::fabric;

namespace {
struct NoSink : ServingSink {
  void on_client_frame(Serving&, const Frame&) override {}
  void on_client_ack(const Serving&, const Frame&) override {}
  void on_no_frame() override {}
};

struct ServingRecord : Serving {
  ServingRecord(ServingSink& sink, ContextId client, std::vector<uint64_t>& replies)
      : Serving(sink, client), sent(replies) {}
  void send(const Frame& f) override {
    sent.push_back(f.number);
    credit = f.acked_below;
  }
  std::vector<uint64_t>& sent;
  uint64_t credit = 0;
};

struct Fixture {
  // Empty: not welcome.
  std::weak_ptr<Serving> enter(const ContextId& id, uint32_t generation, uint64_t notification = 7,
                               size_t index = 0) {
    Hello hello;
    hello.info = {id, {9, 9}, index};
    hello.notification_secret = notification;
    hello.generation = generation;
    const auto own = address(static_cast<uint8_t>(id.lo));
    hello.initiator = hello.listener_address = own;
    if (!table.end_session(hello, 2)) return {};
    auto serving = std::make_shared<ServingRecord>(sink, id, replies);
    const auto secret_told = table.begin_session(hello, *ports.add_peer(index, own), serving);
    if (!secret_told) return {};
    secret = *secret_told;
    return serving;
  }
  std::optional<AdmittedRequest> ask(const std::weak_ptr<Serving>& at, uint64_t number,
                                     uint64_t acked = 0) {
    return table.admit(*at.lock(), {FrameKind::kRequest, 1, secret, number, acked, {}});
  }

  ListenerRecord ports;
  NoSink sink;
  std::vector<uint64_t> replies;
  uint64_t secret = 0;  // of the session that began last
  ClientTable table{ports};
};
const ContextId kOne{1, 1}, kTwo{1, 2}, kThree{1, 3};
using Verdict = ReplyCache::Verdict;
}  // namespace

TEST_CASE("a_new_generation_closes_the_old_endpoint_and_keeps_numbers_and_answers") {
  Fixture f;
  const auto first = f.enter(kOne, 1);
  REQUIRE(f.ask(first, 1)->verdict == Verdict::kExecute);
  f.table.reply(kOne, 1, {}, TokensSent::kNo);
  const auto second = f.enter(kOne, 2);
  CHECK(first.expired());
  CHECK(f.table.serving_count() == 1);
  CHECK(f.table.session_of(kOne) == 2);
  CHECK(f.ask(second, 1)->verdict == Verdict::kAnswered);
  CHECK(f.replies == std::vector<uint64_t>{1, 1});
  CHECK(f.ports.peers.size() == 1);
  CHECK(f.ports.wrong_removals == 0);
}

TEST_CASE("answers_say_how_much_a_home_that_is_behind_takes") {
  Fixture f;
  const auto serving = f.enter(kOne, 1);
  const auto credit = [&] { return static_cast<ServingRecord&>(*serving.lock()).credit; };
  REQUIRE(f.ask(serving, 1)->verdict == Verdict::kExecute);
  f.table.reply(kOne, 1, {}, TokensSent::kNo);
  CHECK(credit() == 0);
  for (uint64_t n = 2; n < 2 + Intake::kBehind; ++n) (void)f.ask(serving, n);
  f.table.reply(kOne, 2, {}, TokensSent::kNo);
  CHECK(credit() == Intake::kTogether);
  CHECK(f.ask(serving, 3)->verdict == Verdict::kUnderWay);
  CHECK(credit() == Intake::kTogether);
}

TEST_CASE("an_old_hello_or_one_with_another_secret_ends_no_session") {
  Fixture f;
  const auto serving = f.enter(kOne, 3);
  CHECK(f.enter(kOne, 3).expired());
  CHECK(f.enter(kOne, 2).expired());
  CHECK(f.enter(kOne, 4, 8).expired());
  CHECK(!serving.expired());
  CHECK(f.table.session_of(kOne) == 3);
}

TEST_CASE("newcomers_beyond_the_limit_are_not_welcome_but_old_clients_are") {
  Fixture f;
  f.enter(kOne, 1);
  f.enter(kTwo, 1);
  CHECK(f.enter(kThree, 1).expired());
  CHECK(!f.enter(kOne, 2).expired());
}

TEST_CASE("a_request_counts_only_from_the_present_session_and_with_its_secret") {
  Fixture f;
  const auto serving = f.enter(kOne, 1);
  CHECK(!f.ask(serving, 0));
  f.secret ^= 1;
  CHECK(!f.ask(serving, 1));
  f.secret ^= 1;
  CHECK(f.ask(serving, 1)->verdict == Verdict::kExecute);
  CHECK(f.ask(serving, 1)->verdict == Verdict::kUnderWay);
  CHECK(f.replies == std::vector<uint64_t>{0});  // a sign of life
  const auto next = f.ask(serving, 2, 2);
  CHECK(next->acked_below == 2);
  CHECK(next->newly_acked);
  ServingRecord impostor(f.sink, kOne, f.replies);
  CHECK(!f.table.admit(impostor, {FrameKind::kRequest, 1, f.secret, 3, 0, {}}));
}

TEST_CASE("what_direct_acknowledgements_have_answered_is_not_executed_again") {
  Fixture f;
  const auto serving = f.enter(kOne, 1);
  for (uint64_t n : {1, 2, 3}) REQUIRE(f.ask(serving, n)->verdict == Verdict::kExecute);
  const uint64_t behind[] = {3};
  const Frame report{FrameKind::kAckedBelow, 0, f.secret, 0, 1, {}};
  CHECK(f.table.acknowledge(*serving.lock(), report, behind) == true);
  CHECK(f.table.acknowledge(*serving.lock(), report, {}) == false);
  CHECK(f.ask(serving, 3)->verdict == Verdict::kAnswered);
  CHECK(f.ask(serving, 2)->verdict == Verdict::kUnderWay);
  Frame forged = report;
  forged.secret ^= 1;
  CHECK(!f.table.acknowledge(*serving.lock(), forged, behind));
}

TEST_CASE("a_client_that_is_fenced_for_ever_is_not_welcomed_again_even_in_mid_hello") {
  Fixture f;
  const auto serving = f.enter(kOne, 1);
  f.table.fence(kOne, true);
  CHECK(serving.expired());
  CHECK(!f.table.knows(kOne));
  CHECK(f.table.listed(kOne));
  CHECK(f.ports.peers.empty());
  CHECK(f.enter(kOne, 2).expired());
  f.table.fence(kTwo, true);  // its first hello is on its way
  CHECK(f.enter(kTwo, 1).expired());
  CHECK(f.ports.peers.empty());
  CHECK(f.ports.wrong_removals == 0);
  std::byte head[ClientTable::kAckSecretAt + 8]{};
  CHECK(!f.table.notify(kOne, {FrameKind::kNotification, 0, 0, 0, 0, {}}, head, false));
}

TEST_CASE("a_notification_carries_the_clients_secret_and_tells_the_one_of_its_acknowledgement") {
  Fixture f;
  f.enter(kOne, 1, 7, 1);
  std::byte head[ClientTable::kAckSecretAt + 8]{};
  const Frame frame{FrameKind::kNotification, 0, 0, 5, 0, {}};
  const auto sent = f.table.notify(kOne, frame, head, true);
  REQUIRE(sent);
  CHECK(sent->index == 1);
  CHECK(sent->by_ring == nullptr);
  REQUIRE(f.ports.sent.size() == 1);
  CHECK(f.ports.sent[0].index == 1);
  CHECK(f.ports.sent[0].secret == 7);
  CHECK(f.ports.sent[0].number == 5);
  CHECK(f.ports.sent[0].last);
  Reader in(Bytes(head).subspan(ClientTable::kAckSecretAt));
  const auto told = in.get<uint64_t>();
  CHECK(f.table.may_acknowledge(kOne, told));
  CHECK(!f.table.may_acknowledge(kOne, told ^ 1));
  CHECK(!f.table.may_acknowledge(kTwo, told));
}

TEST_CASE("direct_acknowledgements_go_only_between_clients_of_one_listener") {
  Fixture f;
  f.enter(kOne, 1);
  f.enter(kTwo, 1);
  std::byte room[8];
  const ContextId senders[] = {kTwo};
  CHECK(f.table.initiator_of(kOne, senders, room).size() == 2);
  CHECK(f.table.initiator_of(kOne, senders, std::span(room).first(1)).empty());
  f.enter(kTwo, 2, 7, 1);
  CHECK(f.table.initiator_of(kOne, senders, room).empty());
  CHECK(f.table.initiator_of(kThree, {}, room).empty());
}

TEST_CASE("a_silent_client_is_forgotten_unless_it_has_something_open_or_comes_back") {
  Fixture f;
  const auto one = f.enter(kOne, 1);
  REQUIRE(f.ask(one, 1)->verdict == Verdict::kExecute);
  f.enter(kTwo, 1);
  CHECK(f.table.silent(-1, {}) == std::vector<ContextId>{kTwo});
  CHECK(f.table.silent(-1, kTwo).empty());
  CHECK(f.table.silent(kSecond * 3600, {}).empty());
  f.table.erase_if_closed(kTwo);
  CHECK(f.table.listed(kTwo));
  f.table.fence(kTwo, false);
  f.table.erase_if_closed(kTwo);
  CHECK(!f.table.listed(kTwo));
  CHECK(f.ports.peers.size() == 1);
}

TEST_CASE("the_others_have_their_turn_with_each_idle_round_and_once_in_so_many_busy_ones") {
  PollOrder order;
  int here = 0;
  CHECK(order.hot() == nullptr);
  order.expect(&here);
  CHECK(order.hot() == &here);
  CHECK(order.others(0, 3) == 1);
  CHECK(order.others(0, 2 * PollOrder::kPortsPerOther) == 3);
  size_t turns = 0;
  for (unsigned i = 0; i < 4 * PollOrder::kBusyRounds; ++i) turns += order.others(1, 3);
  CHECK(turns == 4);
  for (size_t i = 0; i < 7; ++i) CHECK(order.next(3) == i % 3);
}

}  // namespace cmi::test::client_table_test

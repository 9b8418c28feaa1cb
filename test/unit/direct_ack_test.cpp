// Direct acknowledgements: their tokens, what a link remembers of them, and where a server sends
// them. And the homes whose notifications they answer.
#include <doctest/doctest.h>

#include "fabric/direct_ack_log.hpp"
#include "fabric/direct_ack_sender.hpp"
#include "fabric/known_homes.hpp"
#include "fabric/request.hpp"
#include "listener_record.hpp"

namespace cmi::test::direct_ack_test {
using namespace cmi::fabric;

namespace {
constexpr Nanos kStart = 100 * kSecond;
const Frame kAckFrame{FrameKind::kDirectAck, 0, 5, 6, 0, {}};
}  // namespace

TEST_CASE("tokens_are_complete_when_all_have_come_once") {
  AckTokens tokens;
  CHECK(!tokens.expected());
  tokens.expect(0xf0);
  CHECK(tokens.secret() == 0xf0);
  CHECK(tokens.take(0xc0));
  CHECK(!tokens.take(0xc0));  // a message that came twice
  CHECK(!tokens.complete());
  CHECK(tokens.take(0x30));
  CHECK(tokens.complete());
  tokens.expect_none();
  CHECK(!tokens.expected());
}

TEST_CASE("a_strange_token_keeps_the_others_from_being_complete_and_there_is_a_limit") {
  AckTokens tokens;
  tokens.expect(1);
  CHECK(tokens.take(77));
  CHECK(tokens.take(1));
  CHECK(!tokens.complete());
  for (uint64_t i = 2; i < kMostDirectAcks; ++i) CHECK(tokens.take(1000 + i));
  CHECK(!tokens.take(5000));
}

TEST_CASE("none_are_asked_for_while_they_do_not_come_and_longer_each_time") {
  DirectAckLog log;
  CHECK(log.may_ask(0));
  log.answered_by_home(kStart, kStart + DirectAckLog::kLate);  // as fast as any
  CHECK(log.may_ask(kStart));
  Nanos t = kStart;
  for (Nanos pause = DirectAckLog::kPause; pause <= DirectAckLog::kLongestPause; pause *= 2) {
    log.answered_by_home(t, t + kSecond);
    log.answered_by_home(t - 1, t + kSecond);  // begun before the pause: counts once
    CHECK(!log.may_ask(t + kSecond + pause - 1));
    t += kSecond + pause;
    CHECK(log.may_ask(t));
  }
  log.answered_by_home(t, t + kSecond);
  CHECK(log.may_ask(t + kSecond + DirectAckLog::kLongestPause));
  t += kSecond + DirectAckLog::kLongestPause;
  log.complete(1);
  log.answered_by_home(t, t + kSecond);
  CHECK(log.may_ask(t + kSecond + DirectAckLog::kPause));
}

TEST_CASE("what_a_frame_acknowledges_below_a_number_needs_no_report") {
  DirectAckLog log;
  log.complete(3);
  log.complete(7);
  CHECK(log.acked_below(5) == 5);
  REQUIRE(log.unreported().size() == 1);
  CHECK(log.unreported()[0] == 7);
  log.reported();
  CHECK(!log.has_unreported());
}

TEST_CASE("a_report_takes_no_more_than_a_frame_does") {
  DirectAckLog log;
  for (uint64_t n = 1; n <= kMostAckedBelow + 2; ++n) log.complete(n);
  CHECK(log.unreported().size() == kMostAckedBelow);
  log.reported();
  REQUIRE(log.unreported().size() == 2);
  CHECK(log.unreported()[0] == kMostAckedBelow + 1);
}

TEST_CASE("nothing_from_a_request_that_was_given_up_is_acknowledged_until_the_next_session") {
  DirectAckLog log;
  log.given_up(9);
  log.given_up(12);
  CHECK(log.acked_below(20) == 9);
  log.restart();
  CHECK(log.acked_below(20) == 20);
}

TEST_CASE("an_address_is_added_once_and_dropped_when_it_is_not_used") {
  ListenerRecord ports;
  DirectAckSender sender(ports);
  CHECK(sender.send(address(1), 0, kAckFrame, kStart));
  CHECK(sender.send(address(1), 0, kAckFrame, kStart + 1));
  CHECK(sender.send(address(1), 1, kAckFrame, kStart + 1));  // another listener's
  CHECK(!sender.send({}, 0, kAckFrame, kStart + 1));
  CHECK(ports.peers.size() == 2);
  CHECK(ports.sent.size() == 3);
  sender.sweep(kSecond, kStart + 1 + kSecond);
  CHECK(sender.addresses() == 2);
  sender.sweep(kSecond, kStart + 2 + kSecond);
  CHECK(sender.addresses() == 0);
  CHECK(ports.peers.empty());
}

TEST_CASE("a_full_list_of_addresses_makes_room_by_the_one_that_is_unused_for_longest") {
  ListenerRecord ports;
  DirectAckSender sender(ports);
  for (uint8_t n = 0; n < DirectAckSender::kMostAddresses; ++n) {
    CHECK(sender.send(address(n), 0, kAckFrame, kStart + n));
  }
  const Nanos full = kStart + DirectAckSender::kAddressStays;
  CHECK(!sender.send(address(200), 0, kAckFrame, full - 1));
  CHECK(sender.send(address(200), 0, kAckFrame, full));
  CHECK(sender.addresses() == DirectAckSender::kMostAddresses);
  CHECK(!ports.peers.contains({0, Peer{1}}));
  CHECK(ports.wrong_removals == 0);
}

TEST_CASE("a_home_is_vouched_for_by_its_secret_and_moves_with_its_new_address") {
  ListenerRecord ports;
  KnownHomes homes(ports);
  const ContextId home{1, 2}, stranger{3, 4};
  CHECK(homes.add(home, {}, 11, 0) == Status::kInval);
  CHECK(!homes.listener_of(home));
  CHECK(homes.add(home, address(1), 11, 0) == Status::kOk);
  CHECK(homes.vouches_for(home, 11));
  CHECK(!homes.vouches_for(home, 12));
  CHECK(!homes.vouches_for(stranger, 11));
  CHECK(homes.add(home, address(2), 12, 1) == Status::kOk);
  CHECK(!homes.vouches_for(home, 11));
  CHECK(homes.listener_of(home) == 1);
  CHECK(ports.peers.size() == 1);
  homes.send(home, kAckFrame);
  homes.send(stranger, kAckFrame);
  REQUIRE(ports.sent.size() == 1);
  CHECK(ports.sent[0].index == 1);
  CHECK(ports.sent[0].peer == Peer{2});
}

}  // namespace cmi::test::direct_ack_test

// Notifications that importers have not acknowledged: counts, deadlines, and what is sent again.
#include "core/memory/home/notification_table.hpp"

#include <doctest/doctest.h>

namespace cmi::test::notification_table_test {
using namespace cmi::memory;

namespace {
constexpr Nanos kStart = 100 * kSecond, kDead = 10 * kSecond;
const ContextId kFirst{1, 1}, kSecondOne{2, 2};

uint64_t send(NotificationTable& table, const RoundPtr& round, const ContextId& client, Nanos t,
              NotificationType type = NotificationType::kInvalidate, size_t bytes = 0) {
  Notification n;
  n.client = client;
  n.type = type;
  n.payload.resize(bytes);
  n.round = round;
  const uint64_t number = table.new_number();
  table.keep(number, std::move(n), t);
  return number;
}
std::map<ContextId, Nanos> pending(const NotificationTable& table) {
  std::map<ContextId, Nanos> since;
  table.unacknowledged_since(&since, kDead);
  return since;
}
}  // namespace

TEST_CASE("a_round_waits_for_each_notification_and_the_table_counts_their_bytes") {
  NotificationTable table;
  const RoundPtr round = begin_round();
  const uint64_t a = send(table, round, kFirst, kStart, NotificationType::kInvalidate, 100);
  const uint64_t b = send(table, round, kSecondOne, kStart, NotificationType::kInvalidate, 10);
  CHECK(round->waiting == 3);
  CHECK(a < b);
  CHECK(table.kept_bytes() == 110);
  CHECK(table.first_from(a) == a);
  CHECK(table.first_from(a + 1) == b);
  CHECK(table.first_from(b + 1) == 0);
  REQUIRE(table.find(a) != nullptr);
  CHECK(table.take(a).client == kFirst);
  CHECK(table.find(a) == nullptr);
  CHECK(table.kept_bytes() == 10);
  CHECK(!table.empty());
  CHECK(pending(table) == std::map<ContextId, Nanos>{{kSecondOne, kStart}});
  table.take(b);
  CHECK(table.empty());
  CHECK(table.kept_bytes() == 0);
  CHECK(pending(table).empty());
}

TEST_CASE("an_importer_owes_since_its_oldest_notification_until_its_deadlines_are_extended") {
  NotificationTable table;
  const RoundPtr round = begin_round();
  const uint64_t oldest = send(table, round, kFirst, kStart);
  send(table, round, kFirst, kStart + kSecond);
  CHECK(pending(table)[kFirst] == kStart);
  table.take(oldest);
  CHECK(pending(table)[kFirst] == kStart + kSecond);
  table.extend_deadlines(kStart + 5 * kSecond);
  CHECK(pending(table)[kFirst] == kStart + 5 * kSecond);
}

TEST_CASE("an_importer_that_owes_too_many_is_not_waited_for") {
  NotificationTable table;
  const RoundPtr round = begin_round();
  for (size_t i = 1; i < kMaxNotifications; ++i) {
    Notification n;
    n.client = kFirst;
    n.round = round;
    REQUIRE(!table.keep(table.new_number(), std::move(n), kStart));
  }
  CHECK(pending(table)[kFirst] == kStart);
  Notification last;
  last.client = kFirst;
  last.round = round;
  const uint64_t number = table.new_number();
  CHECK(table.keep(number, std::move(last), kStart));
  CHECK(pending(table)[kFirst] == NotificationTable::kOwesTooMany);
  table.take(number);
  CHECK(pending(table)[kFirst] == kStart);
}

TEST_CASE("what_is_overdue_is_sent_again_ever_more_rarely") {
  NotificationTable table;
  const uint64_t number = send(table, begin_round(), kFirst, kStart);
  int sent = 0;
  const auto at = [&](Nanos t) {
    sent = 0;
    table.resend(t, [&](uint64_t n, const Notification& notification) {
      CHECK(n == number);
      CHECK(notification.client == kFirst);
      ++sent;
    });
    return sent;
  };
  constexpr Nanos kResend = AnswerTime::kLeast;
  CHECK(at(kStart + kResend) == 0);
  CHECK(at(kStart + kResend + 1) == 1);
  CHECK(at(kStart + 2 * kResend + 1) == 0);
  CHECK(at(kStart + 10 * kResend) == 1);
  CHECK(at(kStart + 19 * kResend) == 0);
  CHECK(at(kStart + 21 * kResend) == 1);
}

TEST_CASE("a_list_is_not_owed_while_a_round_of_its_receiver_keeps_it_from_answering") {
  NotificationTable table;
  const RoundPtr list_round = begin_round(), its_round = begin_round();
  its_round->by = kFirst;
  its_round->born = kStart + kSecond;
  send(table, list_round, kFirst, kStart, NotificationType::kInFlux);
  CHECK(table.has_lists());
  CHECK(pending(table)[kFirst] == kStart);
  const uint64_t waits = send(table, its_round, kSecondOne, kStart + kSecond);
  CHECK(pending(table).count(kFirst) == 0);
  CHECK(pending(table)[kSecondOne] == kStart + kSecond);
  // The end of the round begins the receiver's time to answer anew.
  table.take(waits);
  table.round_over(kFirst, its_round->born, kStart + 3 * kSecond, kDead);
  CHECK(pending(table)[kFirst] == kStart + 3 * kSecond);
}

TEST_CASE("rounds_begun_without_progress_on_a_list_do_not_extend_its_deadline_for_ever") {
  NotificationTable table;
  send(table, begin_round(), kFirst, kStart, NotificationType::kInFlux);
  const Nanos in_time = kStart + NotificationTable::kDeadlineExtension * kDead - 1;
  table.round_over(kFirst, in_time, in_time + kSecond, kDead);
  CHECK(pending(table)[kFirst] == in_time + kSecond);
  table.round_over(kFirst, in_time + 1, in_time + 5 * kSecond, kDead);
  CHECK(pending(table)[kFirst] == in_time + kSecond);
  table.made_progress(kFirst, in_time + 6 * kSecond);
  CHECK(pending(table)[kFirst] == in_time + 6 * kSecond);
  table.round_over(kFirst, in_time + 7 * kSecond, in_time + 8 * kSecond, kDead);
  CHECK(pending(table)[kFirst] == in_time + 8 * kSecond);
}

TEST_CASE("an_importer_that_has_acknowledged_something_owes_since_then_within_bounds") {
  NotificationTable table;
  const uint64_t old = send(table, begin_round(), kFirst, kStart);
  const Nanos last = kStart + NotificationTable::kDeadlineExtension * kDead;
  for (const Nanos t : {kStart + kSecond, kStart + 9 * kSecond, last + 5 * kSecond}) {
    const uint64_t next = send(table, begin_round(), kFirst, t - kMilli);
    table.answered(next, t);
    table.take(next);
    CHECK(pending(table)[kFirst] == std::min(t, last));
  }
  // What is sent after the last answer is owed since it was sent.
  table.take(old);
  send(table, begin_round(), kFirst, last + 6 * kSecond);
  CHECK(pending(table)[kFirst] == last + 6 * kSecond);
}

TEST_CASE("the_answers_of_one_importer_do_not_count_for_another") {
  NotificationTable table;
  send(table, begin_round(), kFirst, kStart);
  const uint64_t others = send(table, begin_round(), kSecondOne, kStart);
  table.answered(others, kStart + kSecond);
  table.take(others);
  CHECK(pending(table)[kFirst] == kStart);
}

namespace {
int resent(NotificationTable& table, Nanos t) {
  int sent = 0;
  table.resend(t, [&](uint64_t, const Notification&) { ++sent; });
  return sent;
}
void answer(NotificationTable& table, uint64_t number, Nanos t) {
  table.answered(number, t);
  table.take(number);
}
uint64_t send_direct(NotificationTable& table, const ContextId& client, Nanos t) {
  Notification n;
  n.client = client;
  n.direct = true;
  n.round = begin_round();
  const uint64_t number = table.new_number();
  table.keep(number, std::move(n), t);
  return number;
}
}  // namespace

TEST_CASE("a_notification_is_repeated_after_the_time_that_the_importer_takes_to_answer") {
  NotificationTable table;
  answer(table, send(table, begin_round(), kFirst, kStart), kStart + 100 * kMilli);
  send(table, begin_round(), kFirst, kStart);
  CHECK(resent(table, kStart + 300 * kMilli) == 0);
  CHECK(resent(table, kStart + 301 * kMilli) == 1);
  // Another one that nobody knows is repeated after 20 ms.
  send(table, begin_round(), kSecondOne, kStart + 301 * kMilli);
  CHECK(resent(table, kStart + 322 * kMilli) == 1);
}

TEST_CASE("what_was_repeated_is_no_measure_of_the_time_to_answer_and_the_doubled_time_stays") {
  NotificationTable table;
  const uint64_t repeated = send(table, begin_round(), kFirst, kStart);
  CHECK(resent(table, kStart + 21 * kMilli) == 1);
  answer(table, repeated, kStart + 500 * kMilli);
  const uint64_t next = send(table, begin_round(), kFirst, kStart + kSecond);
  CHECK(resent(table, kStart + kSecond + 40 * kMilli) == 0);
  CHECK(resent(table, kStart + kSecond + 41 * kMilli) == 1);
  table.take(next);
  // A new session is another way.
  table.new_session(kFirst);
  send(table, begin_round(), kFirst, kStart + 2 * kSecond);
  CHECK(resent(table, kStart + 2 * kSecond + 21 * kMilli) == 1);
}

TEST_CASE("answers_to_other_notifications_than_invalidations_are_no_measure") {
  NotificationTable table;
  const uint64_t list = send(table, begin_round(), kFirst, kStart, NotificationType::kInFlux);
  answer(table, list, kStart + 5 * kSecond);
  send(table, begin_round(), kFirst, kStart + 5 * kSecond);
  CHECK(resent(table, kStart + 5 * kSecond + 21 * kMilli) == 1);
}

TEST_CASE("a_direct_ack_is_asked_after_by_the_measured_time_however_often_others_were_repeated") {
  NotificationTable table;
  const uint64_t lost = send(table, begin_round(), kFirst, kStart);
  CHECK(resent(table, kStart + 21 * kMilli) == 1);
  CHECK(resent(table, kStart + 70 * kMilli) == 1);
  table.take(lost);
  const Nanos t = kStart + kSecond;
  send_direct(table, kFirst, t);
  CHECK(resent(table, t + 20 * kMilli) == 0);
  CHECK(resent(table, t + 21 * kMilli) == 1);
  // From then on it is one like any other.
  CHECK(resent(table, t + 60 * kMilli) == 0);
  CHECK(resent(table, t + 21 * kMilli + 81 * kMilli) == 1);
}

TEST_CASE("no_time_between_repeats_is_longer_than_2_s") {
  NotificationTable table;
  send(table, begin_round(), kFirst, kStart);
  int sent = 0;
  for (Nanos t = kStart; t < kStart + 10 * kSecond; t += 10 * kMilli) sent += resent(table, t);
  CHECK(sent >= 9);
  CHECK(sent <= 12);
}

TEST_CASE("what_is_known_of_an_importer_goes_when_it_has_no_imports_any_more") {
  NotificationTable table;
  answer(table, send(table, begin_round(), kFirst, kStart), kStart + 100 * kMilli);
  const uint64_t last = send(table, begin_round(), kFirst, kStart);
  table.forget(kFirst);
  table.take(last);
  send(table, begin_round(), kFirst, kStart + kSecond);
  CHECK(resent(table, kStart + kSecond + 21 * kMilli) == 1);
}

}  // namespace cmi::test::notification_table_test

// Which requests of a link are sent, wait, and are asked for again.
#include "fabric/request_window.hpp"

#include <doctest/doctest.h>

namespace cmi::test::request_window_test {
using namespace cmi::fabric;

namespace {
constexpr Nanos kStart = kSecond, kLater = kStart + RequestWindow::kAskAgain + 1;

void add(RequestWindow& window, int n, Nanos t = kStart) {
  for (int i = 0; i < n; ++i) window.add(std::make_shared<Request>(), t);
}
// A window whose home has answered before, and has room.
void open(RequestWindow& window) { window.allow(0); }
int send_all(RequestWindow& window, Nanos t = kStart) {
  int sent = 0;
  while (window.next_to_send(t) != nullptr) ++sent;
  return sent;
}
}  // namespace

TEST_CASE("requests_are_sent_once_in_order_and_anew_on_a_new_session") {
  RequestWindow window;
  add(window, 3);
  CHECK(window.has_unsent());
  for (uint64_t number = 1; number <= 3; ++number) {
    Request* const r = window.next_to_send(kStart);
    REQUIRE(r != nullptr);
    CHECK(r->number() == number);
  }
  CHECK(window.next_to_send(kStart) == nullptr);
  CHECK(!window.has_unsent());
  REQUIRE(window.take(2) != nullptr);
  CHECK(window.take(2) == nullptr);
  window.restart();
  REQUIRE(window.next_to_send(kStart)->number() == 1);
  CHECK(window.next_to_send(kStart)->number() == 3);
  CHECK(window.next_to_send(kStart) == nullptr);
}

TEST_CASE("requests_that_may_be_lost_are_sent_again_in_order_before_others_and_within_the_credit") {
  RequestWindow window;
  window.allow(4);
  add(window, 3);
  REQUIRE(send_all(window) == 3);
  REQUIRE(window.take(2) != nullptr);
  add(window, 2);
  window.send_again();
  for (const uint64_t number : {1U, 3U, 4U, 5U}) {
    Request* const r = window.next_to_send(kStart);
    REQUIRE(r != nullptr);
    CHECK(r->number() == number);
  }
  CHECK(window.next_to_send(kStart) == nullptr);
  CHECK(window.allowed() == 4);
}

TEST_CASE("only_so_many_are_under_way_and_each_answer_lets_one_more_go") {
  RequestWindow window;
  constexpr int kMost = static_cast<int>(RequestWindow::kMostUnderWay);
  add(window, kMost + 2);
  open(window);
  CHECK(send_all(window) == kMost);
  CHECK(window.has_unsent());
  CHECK(window.take(17)->number() == 17);
  CHECK(window.next_to_send(kStart)->number() == kMost + 1);
  CHECK(window.next_to_send(kStart) == nullptr);
  CHECK(window.pending() == kMost + 1);
}

TEST_CASE("what_the_home_has_no_room_for_is_held_back_and_counted_once") {
  RequestWindow window;
  add(window, 5);
  window.allow(2);
  CHECK(send_all(window) == 2);
  CHECK(send_all(window) == 0);
  CHECK(window.take_held_back() == 3);
  CHECK(window.take_held_back() == 0);
  REQUIRE(window.take(1) != nullptr);
  CHECK(window.next_to_send(kStart)->number() == 3);
  CHECK(window.next_to_send(kStart) == nullptr);
  CHECK(window.take_held_back() == 0);
  // Less room: nothing more goes before as many are answered.
  window.allow(1);
  REQUIRE(window.take(2) != nullptr);
  CHECK(window.next_to_send(kStart) == nullptr);
  REQUIRE(window.take(3) != nullptr);
  CHECK(window.next_to_send(kStart)->number() == 4);
  add(window, 1);
  CHECK(window.next_to_send(kStart) == nullptr);
  CHECK(window.take_held_back() == 1);
  // All the room that there is: the home says nothing, or it is another session.
  window.allow(0);
  CHECK(send_all(window) == 2);
  window.allow(1);
  window.restart();
  CHECK(send_all(window) == 3);
  window.allow(UINT64_MAX);
  CHECK(window.allowed() == RequestWindow::kMostUnderWay);
}

TEST_CASE("before_the_first_answer_of_a_session_few_are_under_way") {
  constexpr int kFew = static_cast<int>(RequestWindow::kAtFirst);
  RequestWindow window;
  add(window, 2 * kFew);
  CHECK(window.allowed() == RequestWindow::kAtFirst);
  CHECK(send_all(window) == kFew);
  CHECK(window.take_held_back() == 0);  // the home has not said that it is behind
  SUBCASE("the_homes_credit_opens_it") { window.allow(0); }
  SUBCASE("so_does_an_answer_without_one") { window.answered(*window.find(1), kStart); }
  CHECK(send_all(window) == kFew);
  window.restart();
  CHECK(send_all(window) == kFew);
  // Room that is less than that is told as ever.
  window.allow(2);
  CHECK(send_all(window) == 0);
  CHECK(window.take_held_back() == static_cast<uint64_t>(kFew));
}

TEST_CASE("a_link_that_was_idle_begins_again_as_at_first") {
  constexpr int kFew = static_cast<int>(RequestWindow::kAtFirst);
  constexpr Nanos kThen = kStart + RequestWindow::kIdle + kSecond;
  constexpr Nanos kAgain = kThen + RequestWindow::kIdle;
  for (const Nanos late : {0, 1}) {
    CAPTURE(late);
    RequestWindow window;
    add(window, 2);
    CHECK(send_all(window) == 2);
    window.allow(0);
    window.answered(*window.take(1), kStart);
    // While there is a request nothing is forgotten, however long its answer takes.
    add(window, 2 * kFew, kThen);
    CHECK(send_all(window, kThen) == 2 * kFew);
    for (const auto& r : window.take_all()) window.answered(*r, kThen);
    add(window, 2 * kFew, kAgain + late);
    CHECK(send_all(window, kAgain + late) == (late == 0 ? 2 * kFew : kFew));
  }
}

TEST_CASE("a_link_that_was_idle_keeps_less_room_that_it_was_told") {
  RequestWindow window;
  add(window, 1);
  CHECK(send_all(window) == 1);
  window.allow(3);
  window.answered(*window.take(1), kStart);
  add(window, 5, kStart + RequestWindow::kIdle + 1);
  CHECK(send_all(window) == 3);
}

TEST_CASE("what_is_answered_below_stops_at_the_oldest_without_an_answer") {
  RequestWindow window;
  CHECK(window.answered_below() == 1);
  add(window, 3);
  window.take(2);
  CHECK(window.answered_below() == 1);
  window.take(1);
  CHECK(window.answered_below() == 3);
  window.take(3);
  CHECK(window.answered_below() == 4);
  CHECK(window.empty());
}

TEST_CASE("silence_counts_from_the_first_request_after_there_was_none") {
  RequestWindow window;
  add(window, 1, kStart);
  add(window, 1, kStart + 5);
  CHECK(window.unacknowledged_since() == kStart);
  window.take_all();
  CHECK(window.pending() == 0);
  add(window, 1, kStart + 9);
  CHECK(window.unacknowledged_since() == kStart + 9);
}

TEST_CASE("nothing_is_asked_for_again_before_its_time") {
  RequestWindow window;
  CHECK(window.to_ask_again(0, kLater).empty());
  add(window, 1);
  send_all(window);
  CHECK(window.to_ask_again(0, kLater - 1).empty());
  CHECK(window.to_ask_again(kStart + 1, kLater).empty());
  CHECK(window.to_ask_again(0, kLater).size() == 1);
  CHECK(window.to_ask_again(0, kLater + 1).empty());  // it has just been
}

TEST_CASE("the_oldest_is_asked_for_each_time_and_those_behind_it_in_turn") {
  RequestWindow window;
  add(window, 40);
  open(window);
  for (int i = 0; i < 36; ++i) REQUIRE(window.next_to_send(kStart) != nullptr);
  std::vector<uint64_t> asked;
  Nanos t = kStart;
  for (int round = 0; round < 3; ++round) {
    t += window.answer_wait() + 1;
    const auto again = window.to_ask_again(0, t);
    REQUIRE(!again.empty());
    CHECK(again[0]->number() == 1);
    for (size_t i = 1; i < again.size(); ++i) asked.push_back(again[i]->number());
  }
  // 16, 16 and the last three of the 35 that have been sent behind the oldest; no unsent one.
  REQUIRE(asked.size() == 35);
  for (size_t i = 0; i < asked.size(); ++i) CHECK(asked[i] == 2 + i);
}

TEST_CASE("a_request_that_was_sent_just_now_is_not_asked_for_with_the_oldest") {
  RequestWindow window;
  add(window, 1);
  send_all(window, kStart);
  add(window, 1);
  send_all(window, kLater - 1);
  const auto again = window.to_ask_again(0, kLater);
  REQUIRE(again.size() == 1);
  CHECK(again[0]->number() == 1);
}

TEST_CASE("a_home_that_answers_late_is_asked_again_later") {
  RequestWindow window;
  add(window, 2);
  send_all(window);
  window.answered(*window.take(1), kStart + 300 * kMilli);
  const Nanos measured = window.answer_wait();
  CHECK(measured >= 300 * kMilli);
  CHECK(window.to_ask_again(0, kStart + measured).empty());
  REQUIRE(window.to_ask_again(0, kStart + measured + 1).size() == 1);
  CHECK(window.answer_wait() == 2 * measured);
  // The answer to a request that was repeated says nothing of the time.
  window.answered(*window.take(2), kStart + measured + kMilli);
  CHECK(window.answer_wait() == 2 * measured);
}

TEST_CASE("what_was_begun_by_then_is_taken_and_the_rest_stays") {
  RequestWindow window;
  add(window, 2, kStart);
  add(window, 1, kStart + 1);
  CHECK(window.take_begun_by(kStart).size() == 2);
  CHECK(window.pending() == 1);
  CHECK(window.find(3) != nullptr);
  CHECK(window.find(1) == nullptr);
}

}  // namespace cmi::test::request_window_test

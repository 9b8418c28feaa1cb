// How long an importer takes to answer, and after which time a notification is sent to it again.
#include "core/base/answer_time.hpp"

#include <doctest/doctest.h>

namespace cmi::test::answer_time_test {
using namespace cmi;

namespace {
constexpr Nanos kStart = 100 * kSecond;
}  // namespace

TEST_CASE("an_answer_is_awaited_for_20_ms_before_anything_is_known_of_the_importer") {
  const AnswerTime time;
  CHECK(time.wait() == 20 * kMilli);
  CHECK(time.measured() == 20 * kMilli);
}

TEST_CASE("the_first_answer_sets_the_time_to_three_times_what_it_took") {
  AnswerTime time;
  time.sample(100 * kMilli);
  CHECK(time.measured() == 300 * kMilli);
  CHECK(time.wait() == 300 * kMilli);
}

TEST_CASE("later_answers_move_smoothed_time_and_variation_as_rfc_6298_says") {
  AnswerTime time;
  time.sample(80 * kMilli);   // smoothed 80, variation 40
  time.sample(160 * kMilli);  // variation 40 + (80 - 40) / 4 = 50, smoothed 80 + 80 / 8 = 90
  CHECK(time.measured() == 290 * kMilli);
  time.sample(50 * kMilli);  // variation 50 + (40 - 50) / 4 = 47.5, smoothed 90 - 40 / 8 = 85
  CHECK(time.measured() == 275 * kMilli);
}

TEST_CASE("answers_that_always_take_as_long_bring_the_time_near_to_that") {
  AnswerTime time;
  for (int i = 0; i < 100; ++i) time.sample(100 * kMilli);
  CHECK(time.measured() >= 100 * kMilli);
  CHECK(time.measured() < 101 * kMilli);
}

TEST_CASE("the_time_stays_between_20_ms_and_2_s") {
  AnswerTime fast, slow;
  for (int i = 0; i < 10; ++i) fast.sample(10 * kMicro);
  CHECK(fast.wait() == AnswerTime::kLeast);
  slow.sample(60 * kSecond);
  CHECK(slow.wait() == AnswerTime::kMost);
  slow.repeated(kStart);
  CHECK(slow.wait() == AnswerTime::kMost);
}

TEST_CASE("each_repeat_doubles_the_time_to_wait_until_an_answer_is_measured") {
  AnswerTime time;
  time.sample(100 * kMilli);
  Nanos t = kStart;
  for (const Nanos expected : {600 * kMilli, 1200 * kMilli, 2 * kSecond, 2 * kSecond}) {
    time.repeated(t);
    CHECK(time.wait() == expected);
    t += time.wait();
  }
  CHECK(time.measured() == 300 * kMilli);
  time.sample(100 * kMilli);
  CHECK(time.wait() == time.measured());
}

TEST_CASE("notifications_that_are_repeated_together_double_the_time_once") {
  AnswerTime time;
  for (int i = 0; i < 10; ++i) time.repeated(kStart);
  CHECK(time.wait() == 40 * kMilli);
  time.repeated(kStart + 39 * kMilli);
  CHECK(time.wait() == 40 * kMilli);
  time.repeated(kStart + 40 * kMilli);
  CHECK(time.wait() == 80 * kMilli);
}

}  // namespace cmi::test::answer_time_test

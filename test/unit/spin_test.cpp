// What a thread concludes from how long its yields take.
#include "core/base/spin.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

namespace cmi::test::spin_test {

namespace {
constexpr Nanos kLong = SpinThenSleep::Neighbours::kLong + 1,
                kQuick = SpinThenSleep::Neighbours::kNobody - 1;
constexpr Nanos kOrdinary = 5 * kMicro, kStart = kSecond;
}  // namespace

TEST_CASE("one_long_yield_is_no_thread_that_computes") {
  SpinThenSleep::Neighbours here;
  here.yielded(kStart, kLong, 0);
  CHECK(!here.crowded(kStart));
  here.yielded(kStart + kMilli, kOrdinary, 0);
  here.yielded(kStart + 2 * kMilli, kLong, 0);
  CHECK(!here.crowded(kStart + 2 * kMilli));
}

TEST_CASE("two_long_yields_in_a_row_are_and_one_more_where_somebody_did") {
  SpinThenSleep::Neighbours here;
  here.yielded(kStart, kLong, 0);
  here.yielded(kStart + kMilli, kLong, 0);
  const Nanos over = kStart + kMilli + SpinThenSleep::Neighbours::kCrowdedFor;
  CHECK(here.crowded(over - 1));
  CHECK(!here.crowded(over));
  here.yielded(over, kOrdinary, 0);
  CHECK(!here.crowded(over));
  here.yielded(over + kMilli, kLong, 0);
  CHECK(here.crowded(over + kMilli));
}

TEST_CASE("threads_that_take_turns_do_not_compute") {
  SpinThenSleep::Neighbours here;
  for (int i = 0; i < 10; ++i)
    here.yielded(kStart + i * kMilli, 7 * SpinThenSleep::Neighbours::kLong, 7);
  CHECK(!here.crowded(kStart + 10 * kMilli));
  for (int i = 0; i < 2; ++i)
    here.yielded(kStart + i * kMilli, 9 * SpinThenSleep::Neighbours::kLong, 7);
  CHECK(here.crowded(kStart + 10 * kMilli));
}

TEST_CASE("a_yield_that_changes_nothing_is_not_repeated_for_a_while") {
  SpinThenSleep::Neighbours here;
  here.yielded(kStart, kOrdinary, 0);
  CHECK(here.alone_until() <= kStart);
  here.yielded(kStart, kQuick, 0);
  CHECK(here.alone_until() == kStart + SpinThenSleep::Neighbours::kAloneFor);
  CHECK(!here.crowded(kStart));
}

TEST_CASE("what_entering_the_kernel_takes_is_measured_once") {
  const Nanos first = kernel_entry();
  CHECK(first > 0);
  for (int i = 0; i < 100; ++i) CHECK(kernel_entry() == first);
}

TEST_CASE("a_yield_that_changes_nothing_is_repeated_while_others_of_the_process_wait") {
  SpinThenSleep::Neighbours here;
  here.yielded(kStart, kQuick, 1);
  CHECK(here.alone_until() <= kStart);
}

TEST_CASE("a_processor_is_shared_while_yields_take_a_turn_of_somebody_who_does_not_compute") {
  SpinThenSleep::Neighbours here;
  CHECK(!here.shared(kStart));
  here.yielded(kStart, kOrdinary, 0);
  CHECK(here.shared(kStart));
  here.yielded(kStart, kQuick, 0);
  CHECK(!here.shared(kStart));
  here.yielded(kStart, kLong, 0);
  here.yielded(kStart, kLong, 0);
  CHECK(!here.shared(kStart));
}

TEST_CASE("a_spin_gets_longer_with_short_sleeps_in_a_row_and_a_long_one_ends_that") {
  SpinThenSleep waits;
  waits.slept(SpinThenSleep::kShortest - 1, true);
  for (Nanos span = SpinThenSleep::kShortest; span < SpinThenSleep::kLongest; span *= 2) {
    CHECK(waits.span() == span);
    waits.slept(span - 1, true);
  }
  for (int i = 0; i < 9; ++i) waits.slept(SpinThenSleep::kShortest, true);
  CHECK(waits.span() == SpinThenSleep::kLongest);
  waits.slept(SpinThenSleep::kLongest, false);
  CHECK(waits.span() == SpinThenSleep::kShortest);
}

TEST_CASE("a_spin_stays_short_where_nobody_comes_but_for_answers_now_and_then") {
  SpinThenSleep waits;
  for (int heartbeat = 0; heartbeat < 9; ++heartbeat) {
    waits.slept(SpinThenSleep::kShortest / 2, true);
    waits.slept(100 * kMilli, heartbeat % 2 == 0);
    waits.slept(0, false);
  }
  CHECK(waits.span() == SpinThenSleep::kShortest);
}

namespace {
constexpr Nanos kLook = 600, kServing = 7 * kMicro;
// How many of these looks, in turn, count.
int served(SpinThenSleep& looks, std::initializer_list<Nanos> took, int rounds) {
  int count = 0;
  for (int i = 0; i < rounds; ++i) {
    for (Nanos t : took) count += looks.served(t) ? 1 : 0;
  }
  return count;
}
}  // namespace

TEST_CASE("a_look_that_takes_many_times_as_long_as_the_others_has_served_somebody") {
  SpinThenSleep looks;
  CHECK(!looks.served(kServing));  // there is nothing yet to compare it with
  CHECK(served(looks, {kLook}, 20) == 0);
  CHECK(!looks.served(SpinThenSleep::kTimes * kLook));
  CHECK(served(looks, {kLook}, 20) == 0);
  CHECK(looks.served(kServing));
  CHECK(served(looks, {kLook}, 20) == 0);
  CHECK(looks.served(kServing));
  looks.slept(0, false);
  CHECK(!looks.served(kServing));
}

TEST_CASE("looks_that_have_become_longer_for_good_are_a_surprise_once") {
  SpinThenSleep looks;
  CHECK(served(looks, {kLook}, 20) == 0);
  CHECK(served(looks, {kServing}, 20) == 1);
}

TEST_CASE("every_eighth_look_at_a_slower_endpoint_is_no_surprise") {
  SpinThenSleep looks;
  CHECK(served(looks, {kLook, kLook, 10 * kLook}, 100) <= 1);
  looks.slept(0, false);
  CHECK(served(looks, {kLook, kLook, kLook, kLook, kLook, kLook, kLook, 50 * kLook}, 100) <= 1);
}

TEST_CASE("a_wait_is_over_when_its_span_has_passed_and_at_once_where_a_thread_computes") {
  auto& here = SpinThenSleep::neighbours();
  here = {};
  SpinThenSleep spin(kMilli);
  spin.begin(kStart, kMilli);  // without a yield, which would look at the clock
  CHECK(spin.again(kStart));
  CHECK(spin.again(kStart + kMilli - 1));
  CHECK(!spin.again(kStart + kMilli));
  for (int i = 0; i < 2; ++i) here.yielded(kStart, kLong, 0);
  spin.begin(kStart, kMilli);
  CHECK(!spin.again(kStart));
  spin.begin(kStart, kMilli, kMilli / 2);
  CHECK(spin.again(kStart + kMilli / 2 - 1));
  CHECK(!spin.again(kStart + kMilli / 2));
  here = {};
}

}  // namespace cmi::test::spin_test

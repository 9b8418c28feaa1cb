// What an importer knows of a page's mark at the home.
#include "core/memory/page/dirty_intent.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

namespace cmi::memory::dirty_intent_test {

TEST_CASE("a_mark_is_held_once_it_is_granted_and_until_it_is_taken") {
  IntentState mark;
  CHECK_FALSE(mark.held());
  CHECK(mark.take() == 0);
  const uint8_t epoch = mark.ask();
  CHECK(mark.asked());
  CHECK_FALSE(mark.held());
  mark.answered(true);
  CHECK(mark.held());
  CHECK_FALSE(mark.asked());
  CHECK(mark.take() == epoch);
  CHECK_FALSE(mark.held());
  CHECK(mark.take() == 0);
}

TEST_CASE("a_refused_mark_is_not_held") {
  IntentState mark;
  mark.ask();
  mark.answered(false);
  CHECK_FALSE(mark.held());
  CHECK_FALSE(mark.asked());
}

TEST_CASE("a_mark_that_is_dropped_while_it_is_asked_for_is_not_held_when_it_is_granted") {
  for (bool granted : {true, false}) {
    IntentState mark;
    const uint8_t epoch = mark.ask();
    CHECK(mark.drop() == 0);
    CHECK(mark.asked());
    CHECK_FALSE(mark.held());
    CHECK_FALSE(mark.answered(granted));
    CHECK_FALSE(mark.held());
    CHECK_FALSE(mark.asked());
    const uint8_t next = mark.ask();
    if (granted) CHECK(next != epoch);  // it replaces what the home may have
    CHECK(mark.answered(true));
    CHECK(mark.drop() != 0);
    CHECK_FALSE(mark.held());
  }
}

TEST_CASE("each_mark_has_another_epoch_than_the_one_before_and_never_none") {
  IntentState mark;
  uint8_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint8_t epoch = mark.ask();
    CHECK(epoch != 0);
    CHECK(epoch != before);
    CHECK(mark.epoch() == epoch);
    mark.answered(true);
    mark.take();
    before = epoch;
  }
}

TEST_CASE("a_mark_never_gets_the_epoch_that_a_late_answer_may_name") {
  for (int late = 1; late <= 63; ++late) {
    IntentState mark;
    uint8_t before = 0;
    for (int i = 0; i < 200; ++i) {
      const uint8_t epoch = mark.ask(static_cast<uint8_t>(late));
      CHECK(epoch != 0);
      CHECK(epoch != late);
      const bool refused = i % 3 == 0;
      if (!refused) CHECK(epoch != before);
      mark.answered(!refused);
      if (mark.take() != 0) before = epoch;
    }
  }
}

TEST_CASE(
    "a_mark_that_is_refused_again_and_again_never_gets_the_epoch_of_a_write_back_that_is_out") {
  for (int first = 1; first < 70; ++first) {
    IntentState mark;
    for (int i = 0; i < first; ++i) {
      mark.ask();
      mark.answered(true);
    }
    const uint8_t out = mark.take();
    CHECK(out != 0);
    for (int failed = 0; failed < 200; ++failed) {
      CHECK(mark.ask() != out);
      mark.answered(false);
    }
    CHECK(mark.ask() != out);
    mark.answered(true);
    CHECK(mark.held());
  }
}

}  // namespace cmi::memory::dirty_intent_test

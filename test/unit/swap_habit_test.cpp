// What a process teaches its next swap on a page, and the intents that swaps have brought.
#include "core/memory/page/swap_habit.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "core/memory/importer/unused_intents.hpp"

namespace cmi::test::swap_habit_test {
using namespace cmi::memory;

TEST_CASE("a_miss_behind_a_swap_that_left_the_page_away_teaches_the_next_one_to_bring_it") {
  SwapHabit habit;
  habit.missed();
  CHECK(!habit.wants_page());
  habit.swapped(false, false);
  habit.missed();
  CHECK(!habit.wants_page());
  habit.swapped(true, false);
  CHECK(!habit.wants_page());
  habit.missed();
  CHECK(habit.wants_page());
  CHECK(!habit.wants_intent());
  for (int i = 0; i < 3; ++i) habit.swapped(false, false);  // brought
  CHECK(habit.wants_page());
}

TEST_CASE("a_swap_behind_a_swap_without_a_miss_between_them_brings_no_page_any_more") {
  SwapHabit habit;
  habit.swapped(true, false);
  habit.missed();
  habit.try_without();
  CHECK(!habit.wants_page());
  habit.swapped(true, false);
  habit.missed();  // it was missed
  CHECK(habit.wants_page());
  habit.swapped(true, false);
  habit.swapped(true, false);
  CHECK(!habit.wants_page());
}

TEST_CASE("a_store_behind_a_swap_teaches_the_next_one_to_bring_the_intent_until_it_is_not_used") {
  SwapHabit habit;
  habit.asked_intent();
  CHECK(!habit.wants_intent());
  habit.swapped(true, true);
  habit.missed();
  habit.asked_intent();
  CHECK(habit.wants_page());
  CHECK(habit.wants_intent());
  using Due = SwapHabit::Due;
  CHECK(habit.brought_intent());
  CHECK(!habit.brought_intent());  // it is listed
  CHECK(habit.unused());
  habit.used();
  CHECK(!habit.unused());
  CHECK(habit.wants_intent());
  CHECK(!habit.brought_intent());        // still
  CHECK(habit.due(true) == Due::kKeep);  // it came since the last turn
  habit.used();
  CHECK(habit.due(true) == Due::kForget);
  CHECK(habit.brought_intent());
  CHECK(habit.due(true) == Due::kKeep);
  CHECK(habit.due(false) == Due::kKeep);
  CHECK(habit.due(true) == Due::kGiveBack);
  CHECK(!habit.unused());
  CHECK(!habit.wants_intent());
  CHECK(habit.wants_page());
  CHECK(habit.brought_intent());
}

TEST_CASE("intents_that_swaps_have_brought_are_due_in_their_order_after_a_while") {
  UnusedIntents list;
  CHECK(list.empty());
  list.add(7, 0);
  list.add(3, UnusedIntents::kKept / 2);
  CHECK(!list.empty());
  CHECK(list.take(UnusedIntents::kKept - 1).empty());
  CHECK(list.take(UnusedIntents::kKept) == std::vector<uint32_t>{7});
  CHECK(list.take(UnusedIntents::kKept * 2) == std::vector<uint32_t>{3});
  CHECK(list.empty());
  for (uint32_t page = 0; page < UnusedIntents::kMost; ++page) {
    REQUIRE(list.has_room());
    list.add(page, 0);
  }
  CHECK(!list.has_room());
}

}  // namespace cmi::test::swap_habit_test

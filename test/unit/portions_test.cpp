// Which reservation the memory of a segment comes from, as the segment grows and shrinks.
#include <doctest/doctest.h>

#include "core/node/layout.hpp"

namespace cmi::node::portions_test {

namespace {

TEST_CASE("memory_counts_to_the_reservation_it_came_from_and_goes_back_last_first") {
  Segment_shm s{};
  charge(s, 10, 0);
  charge(s, 30, 7);
  charge(s, 60, 8);
  charge(s, 65, 7);
  CHECK(s.charged == 65);
  CHECK(charged_to(s, 0) == 10);
  CHECK(charged_to(s, 7) == 25);
  CHECK(charged_to(s, 8) == 30);
  CHECK(charged_to(s, 9) == 0);
  charge(s, 40, 9);  // less: whose it is to be does not matter
  CHECK(charged_to(s, 7) == 20);
  CHECK(charged_to(s, 8) == 10);
  CHECK(charged_to(s, 9) == 0);
  charge(s, 30, 0);
  CHECK(charged_to(s, 8) == 0);
  charge(s, 0, 0);
  CHECK(s.charged == 0);
  for (const Portion_shm& portion : s.portions) CHECK(portion.end == 0);
}

TEST_CASE("growth_of_the_same_reservation_adds_no_portion_and_a_fifth_one_joins_the_last") {
  Segment_shm s{};
  for (uint64_t n = 1; n <= 20; ++n) charge(s, n, 5);
  CHECK(s.portions[0].end == 20);
  CHECK(s.portions[1].end == 0);
  for (uint64_t key = 1; key <= 3; ++key) {
    CHECK(next_portion(s, key) == key);
    charge(s, 20 + key, key);
  }
  CHECK(next_portion(s, 9) == 3);
  charge(s, 30, next_portion(s, 9));
  CHECK(charged_to(s, 3) == 8);
  CHECK(charged_to(s, 9) == 0);
  CHECK(charged_to(s, 5) == 20);
}

TEST_CASE("what_a_damaged_slot_says_of_portions_adds_up_to_no_more_than_it_has") {
  Segment_shm s{};
  s.portions[0] = {1, 50};
  s.portions[1] = {2, 20};
  s.portions[2] = {3, UINT64_MAX};
  CHECK(charged_to(s, 1) == 50);
  CHECK(charged_to(s, 2) == 0);
  charge(s, 60, 4);
  CHECK(charged_to(s, 1) == 50);
  CHECK(charged_to(s, 3) == 10);
  CHECK(s.charged == 60);
}

}  // namespace

}  // namespace cmi::node::portions_test

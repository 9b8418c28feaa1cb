// The break of an import, as notifications and replies of its home tell it.
#include "core/memory/importer/known_break.hpp"

#include <doctest/doctest.h>

namespace cmi::test::known_break_test {
using namespace cmi::memory;

namespace {

Break at(uint64_t pages, uint32_t round) { return {pages * kPageSize, round}; }

struct Scene {
  KnownBreak brk;
  int moved = 0, in_force = 0;
  bool take(const Break& b) {
    return brk.take(
        b, [this] { ++moved; }, [this] { ++in_force; });
  }
  KnownBreak::Taken notified(const Break& b, uint64_t low_page) {
    return brk.notified(b, low_page * kPageSize, [this] { ++moved; });
  }
};

}  // namespace

TEST_SUITE("known_break") {
  TEST_CASE("a_segment_that_is_not_extensible_has_all_its_pages") {
    KnownBreak brk;
    CHECK(brk.load() == 0);
    brk.fix(9);
    CHECK(brk.load() == 9);
  }

  TEST_CASE_FIXTURE(Scene, "the_newest_break_counts_whatever_the_order") {
    CHECK(take(at(4, 2)));
    CHECK(moved == 1);
    CHECK_FALSE(take(at(8, 1)));
    CHECK(brk.load() == 4);
    CHECK(moved == 1);
    CHECK(in_force == 1);
    CHECK(take(at(4, 2)));  // the same once more moves nothing
    CHECK(moved == 1);
    CHECK(in_force == 2);
    CHECK(take(at(6, 3)));
    CHECK(brk.load() == 6);
    CHECK(moved == 2);
  }

  TEST_CASE_FIXTURE(Scene, "a_break_that_falls_names_the_pages_past_it_once") {
    CHECK(take(at(8, 1)));
    const auto taken = notified(at(3, 2), 3);
    CHECK_FALSE(taken.late);
    CHECK_FALSE(taken.behind);
    CHECK(taken.past.first == 3);
    CHECK(taken.past.count == 5);
    CHECK(brk.load() == 3);
    const auto again = notified(at(3, 2), 3);
    CHECK_FALSE(again.late);
    CHECK(again.past.count == 0);
    CHECK(moved == 2);
    CHECK(notified(at(8, 1), 8).late);
    CHECK(brk.load() == 3);
  }

  // It fell to 2 in between, of which nothing was heard: what is cached from there on is of before.
  TEST_CASE_FIXTURE(Scene, "after_a_break_that_was_missed_it_stays_low_until_nothing_is_left") {
    CHECK(take(at(8, 1)));
    const auto taken = notified(at(6, 3), 2);
    CHECK(taken.behind);
    CHECK(brk.load() == 2);
    CHECK(taken.past.first == 2);
    CHECK(taken.past.count == 6);
    CHECK(brk.grow(at(6, 3)));
    CHECK(brk.load() == 6);
  }

  TEST_CASE_FIXTURE(Scene, "a_break_that_was_overtaken_does_not_grow") {
    CHECK(take(at(8, 1)));
    CHECK(notified(at(6, 3), 2).behind);
    CHECK(take(at(1, 4)));
    CHECK_FALSE(brk.grow(at(6, 3)));
    CHECK(brk.load() == 1);
  }

  TEST_CASE_FIXTURE(Scene, "what_grew_is_past_the_next_break") {
    CHECK(take(at(8, 1)));
    CHECK(notified(at(6, 3), 2).behind);
    CHECK(brk.grow(at(6, 3)));
    const auto taken = notified(at(1, 4), 1);
    CHECK(taken.past.first == 1);
    CHECK(taken.past.count == 5);
  }

  TEST_CASE_FIXTURE(Scene, "the_break_is_passed_on_as_it_is") {
    CHECK(take(at(5, 1)));
    uint32_t seen = 0;
    brk.with_pages([&](uint32_t pages) { seen = pages; });
    CHECK(seen == 5);
  }
}

}  // namespace cmi::test::known_break_test

// Swaps of two processes of one node that share an import, and of a third elsewhere. Message
// passing, store buffering and stores crosswise between such two are in shapes_test.cpp, one
// location in coherence_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "litmus/barriers.hpp"

namespace cmi::test::sharing_test {

namespace {

// Processes 0 and 1 share their imports; 2 is elsewhere, and the home 3, or 2 itself.
const Placement kPlacements[] = {{4, {3}, "home elsewhere", -1, 1},
                                 {3, {2}, "home the third", -1, 1}};

// What each found; the word at the end.
Program three_swaps() {
  Program p = program({{0, {cas(X, 0, 1, 0)}}, {1, {cas(X, 0, 2, 1)}}, {2, {cas(X, 0, 3, 2)}}});
  p.finals = true;
  return p;
}
bool not_exactly_one(const Outcome& o) {
  const auto last = final_of(o, X);
  int won = 0;
  for (size_t i = 0; i < 3; ++i) {
    won += o[i] == 0;
    if (o[i] != (last == i + 1 ? 0 : last)) return true;
  }
  return won != 1;
}

// A swap of one of the two: the other, and the third, have cached the word and look again when it
// has returned.
Program swap_seen() {
  return program({{0, {cas(X, 0, 1), post()}},
                  {1, {ld(X, 0), wait(1), ld(X, 1)}},
                  {2, {ld(X, 2), wait(1), ld(X, 3)}}});
}
bool missed(const Outcome& o) { return o[1] != 1 || o[3] != 1; }

// A message by a swap: what was stored before is seen by whoever finds it.
Program swapped_message(int from, int to, int third) {
  return program({{from, {st(X, 1), cas(Y, 0, 1)}},
                  {to, {await(Y, 1, 0), rmb(), ld(X, 1)}},
                  {third, {await(Y, 1, 2), rmb(), ld(X, 3)}}});
}
bool message_before_its_data(const Outcome& o) {
  return (o[0] == 1 && o[1] == 0) || (o[2] == 1 && o[3] == 0);
}

TEST_SUITE("shapes") {
  TEST_CASE("swaps_of_two_that_share_an_import_and_a_third_are_one_after_another") {
    for (const Placement& where : kPlacements) {
      for (const char* delays : {"", kSlow}) {
        Lab lab(where, delays);
        const Histogram swaps = lab.run(three_swaps(), share_of(40));
        CHECK_MESSAGE(swaps.count(not_exactly_one) == 0, where.name, swaps);
        const Histogram seen = lab.run(swap_seen(), share_of(40));
        CHECK_MESSAGE(seen.count(missed) == 0, where.name, seen);
        for (const std::array<int, 3>& who : {std::array{0, 1, 2}, {1, 0, 2}, {2, 0, 1}}) {
          const Program p = swapped_message(who[0], who[1], who[2]);
          const Histogram messages = lab.run(p, share_of(24));
          CHECK_MESSAGE(messages.count(message_before_its_data) == 0, where.name, ", from ", who[0],
                        messages);
        }
      }
    }
  }

  TEST_CASE("a_swap_that_is_not_published_is_missed_by_one_that_shares_the_import") {
    for (const Placement& where : kPlacements) {
      Lab broken(where, "mutate_publish_nobody=fail");
      const Predicate by_the_other = [](const Outcome& o) { return o[1] != 1; };
      const Histogram seen = broken.run(swap_seen(), 2000, by_the_other);
      CHECK_MESSAGE(seen.count(by_the_other) > 0, where.name, ": not seen", seen);
    }
  }
}

}  // namespace

}  // namespace cmi::test::sharing_test

// What does not concern a node costs nothing, however many there are: counts of messages with few
// importers and with many, on simulated nodes. The table of doc/design/scale.md is printed by
// sim/scale/main.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "sim/scale/fleet.hpp"

namespace cmi::test::scale_test {

namespace {

constexpr size_t kMany = 100;

void fill(Fleet& fleet, size_t others) {
  while (fleet.joined() < others) (void)fleet.join();
}

// An importer publishes a page that nobody else has. Of several: some carry what was left to say.
Cost publication(Fleet& fleet) {
  Cost least{.messages = UINT64_MAX, .bytes = UINT64_MAX};
  for (int i = 0; i < 10; ++i) {
    const Cost cost = fleet.measure(1, Fleet::Concerns::kTwo, [&](NodeCalls& calls) {
      *fleet.word(1, 7) = *fleet.word(1, 7) + 1;
      REQUIRE(calls.wmb() == 0);
    });
    least.messages = std::min(least.messages, cost.messages);
    least.bytes = std::min(least.bytes, cost.bytes);
  }
  return least;
}

void load_all(Fleet& fleet, size_t page) {
  for (size_t n = 1; n <= fleet.joined(); ++n) {
    (void)fleet.measure(n, Fleet::Concerns::kTwo, [&](NodeCalls&) { (void)*fleet.word(n, page); });
  }
}

TEST_SUITE("scale") {
  TEST_CASE("what_concerns_nobody_costs_the_same_with_one_importer_and_with_many") {
    Fleet fleet(Fleet::Shape::kOneHome, kMany);
    const Cost first_join = fleet.join();
    const Cost with_one = publication(fleet);
    fill(fleet, kMany - 1);
    fleet.settle();
    const Cost last_join = fleet.join(), with_many = publication(fleet);
    CHECK(with_one.messages == 2);
    CHECK(with_many.messages == with_one.messages);
    CHECK(with_many.bytes == with_one.bytes);
    CHECK(last_join.messages == first_join.messages);
    CHECK(last_join.bytes == first_join.bytes);

    // They have the region, and not the page: once they have said so they are not asked again.
    load_all(fleet, 3);
    CHECK(publication(fleet).messages == with_one.messages);
    // Who has the page is told, once, and answers.
    load_all(fleet, 7);
    const Cost to_all = fleet.measure(1, Fleet::Concerns::kAll, [&](NodeCalls& calls) {
      *fleet.word(1, 7) = 0;
      REQUIRE(calls.wmb() == 0);
    });
    CHECK(to_all.messages >= 2 * (kMany - 1));
    CHECK(to_all.messages <= 2 * kMany + kMany / 2);
  }

  TEST_CASE("a_barrier_of_one_home_s_page_costs_the_same_however_many_homes_there_are") {
    Fleet fleet(Fleet::Shape::kManyHomes, kMany / 2);
    const auto barrier = [&] {
      uint64_t least = UINT64_MAX;
      for (int i = 0; i < 10; ++i) {
        const Cost cost = fleet.measure(0, Fleet::Concerns::kAll, [&](NodeCalls& calls) {
          *fleet.word(1, 7) = *fleet.word(1, 7) + 1;
          REQUIRE(calls.wmb() == 0);
        });
        least = std::min(least, cost.messages);
      }
      return least;
    };
    fill(fleet, 1);
    const uint64_t with_one = barrier();
    fill(fleet, kMany / 2);
    fleet.settle();
    CHECK(with_one == 2);
    CHECK(barrier() == with_one);
  }
}

}  // namespace

}  // namespace cmi::test::scale_test

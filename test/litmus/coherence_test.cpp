// One location: no load goes back, whoever stores and whatever else lies in the page, with and
// without barriers. Timing hides what is forbidden, so that a broken protocol has to show it.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "litmus/barriers.hpp"

namespace cmi::test::coherence_test {

namespace {

constexpr const char* kGapsMerged = "mutate_gaps_merged=fail";

struct Shape {
  std::string name;
  Program program;
  Predicate forbidden;
  std::string mutation;               // that shows it, and delays that help
  std::string at_home = kGapsMerged;  // the same where node 0, which stores, is the home
};

Program on_one_page(Program p) {
  p.one_page = true;
  p.finals = true;
  return p;
}

// Between the stores stands `barrier`, or nothing. Another node stores to the same page: node 2 or,
// where many take part, node 3; one after that if this is `home`, and has no copy to be wrong
// about.
std::vector<Shape> shapes(Step barrier, int home) {
  const Thread neighbour(home == 2 ? 3 : 2, {st(U, 1), wmb(), st(U, 2), wmb()});
  const Thread stranger(home == 3 ? 4 : 3, {st(Z, 1), wmb(), st(Z, 2), wmb()});
  return {
      {"CoRR",
       on_one_page(program({{0, {st(X, 1), barrier, st(X, 2), wmb()}},
                            {1, {ld(X, 0), ld(X, 1), watch(X, 0, 2), ld(X, 3)}},
                            neighbour})),
       [](const Outcome& o) { return o[1] < o[0] || o[2] != 0 || o[3] < o[1]; }, kGapsMerged},
      {"CoRR, two writers",
       on_one_page(program({{0, {st(X, 1), barrier, st(U, 3), wmb()}},
                            {1, {st(X, 2), barrier, st(U, 4), wmb()}},
                            {2, {pause(), ld(X, 0), pause(), ld(X, 1), pause(), ld(X, 2)}},
                            {0, {ld(X, 3), pause(), ld(X, 4), pause(), ld(X, 5)}},
                            stranger})),
       [](const Outcome& o) {
         const auto goes = [&](size_t i, int from, int to) {
           return (o[i] == from && o[i + 1] == to) || (o[i + 1] == from && o[i + 2] == to);
         };
         const auto back = [&](size_t i) { return goes(i, 1, 0) || goes(i, 2, 0); };
         return back(0) || back(3) || (goes(0, 1, 2) && goes(3, 2, 1)) ||
                (goes(0, 2, 1) && goes(3, 1, 2));
       },
       kGapsMerged},
      {"CoWR",
       on_one_page(program({{0, {st(X, 1), barrier, ld(X, 0), watch(X, 1, 1)}}, neighbour})),
       [](const Outcome& o) { return o[0] != 1 || o[1] != 0 || final_of(o, X) != 1; },
       "mutate_refetch_before_delivery=fail;publish_before_send=delay:300"},
      {"CoRW",
       on_one_page(program({{0, {await(X, 1, 0), st(X, 2), barrier, watch(X, 2, 1)}},
                            {1, {st(X, 1), wmb()}},
                            neighbour})),
       [](const Outcome& o) { return o[0] == 1 && (o[1] != 0 || final_of(o, X) != 2); },
       "mutate_dirty_dropped=fail"},
      {"CoWW", on_one_page(program({{0, {st(X, 1), barrier, st(X, 2)}}, neighbour})),
       [](const Outcome& o) { return final_of(o, X) != 2; }, "mutate_dirty_dropped=fail"},
  };
}

// Every second barrier under delays, and the others where the home is another one. Process
// `sharing` shares the imports of process 0.
void check_never_back(const std::vector<int>& homes, int sharing = -1) {
  const auto between = barriers_or_none(X, V);
  for (const int home : homes) {
    for (const size_t slow : {0, 1}) {
      Lab lab({5, {home}, "", -1, sharing}, slow != 0 ? kSlow : "");
      for (size_t i = 0; i < between.size(); ++i) {
        if ((i + static_cast<size_t>(home)) % 2 != slow) continue;
        for (const Shape& s : shapes(between[i].step, home)) {
          const Histogram seen = lab.run(s.program, share_of(12));
          CHECK_MESSAGE(seen.count(s.forbidden) == 0, s.name, ", ", between[i].name,
                        ", home on node ", home, seen);
        }
      }
    }
  }
}

void check_back_when_broken(const std::vector<int>& homes) {
  for (const int home : homes) {
    std::unique_ptr<Lab> lab;
    std::string broken;
    for (const Shape& s : shapes(nothing(), home)) {
      const std::string& mutation = home == 0 ? s.at_home : s.mutation;
      if (mutation != broken) {
        lab.reset();  // first: one at a time
        lab = std::make_unique<Lab>(Placement{5, {home}}, mutation);
      }
      broken = mutation;
      const Histogram seen = lab->run(s.program, 6000, s.forbidden);
      CHECK_MESSAGE(seen.count(s.forbidden) > 0, s.name, ", home on node ", home,
                    ", not seen under ", mutation, seen);
    }
  }
}

TEST_SUITE("coherence") {
  TEST_CASE("one_location_never_goes_back_where_its_home_stores") { check_never_back({0, 1}); }
  TEST_CASE("one_location_never_goes_back_where_its_home_loads") { check_never_back({2, 3}); }
  TEST_CASE("one_location_never_goes_back_for_anybody") { check_never_back({4}); }
  TEST_CASE("one_location_goes_back_when_the_protocol_is_broken") { check_back_when_broken({4}); }
}

// Once is enough, whatever the kernel.
TEST_SUITE("placements") {
  TEST_CASE("one_location_goes_back_where_its_home_stores_when_the_protocol_is_broken") {
    check_back_when_broken({0, 1});
  }
  TEST_CASE("one_location_goes_back_where_its_home_loads_when_the_protocol_is_broken") {
    check_back_when_broken({2, 3});
  }
}

#ifndef CMI_TEST_SIMULATED
TEST_SUITE("contexts") {
  TEST_CASE("one_location_never_goes_back_between_two_that_share_an_import") {
    check_never_back({4}, 1);
  }
}
#endif

}  // namespace

}  // namespace cmi::test::coherence_test

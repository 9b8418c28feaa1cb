// One location: no load goes back, whoever stores and whatever else lies in the page, with and
// without barriers. Timing hides what is forbidden, so that a broken protocol has to show it.
#include <doctest/doctest.h>

#include "litmus/lab.hpp"

namespace cmi::test {

namespace {

struct Shape {
  std::string name;
  Program program;
  Predicate forbidden;
  std::string mutation;  // that shows it, and delays that help
};

Program on_one_page(Program p) {
  p.one_page = true;
  p.finals = true;
  return p;
}

// Between the stores stands `barrier`, or nothing. Node 2 stores to the same page.
std::vector<Shape> shapes(Step barrier) {
  const Thread neighbour(2, {st(U, 1), wmb(), st(U, 2), wmb()});
  return {
      {"CoRR",
       on_one_page(program({{0, {st(X, 1), barrier, st(X, 2), wmb()}},
                            {1, {ld(X, 0), ld(X, 1), watch(X, 0, 2), ld(X, 3)}},
                            neighbour})),
       [](const Outcome& o) { return o[1] < o[0] || o[2] != 0 || o[3] < o[1]; },
       "mutate_gaps_merged=fail"},
      {"CoRR, two writers",
       on_one_page(program({{0, {st(X, 1), barrier, st(U, 3), wmb()}},
                            {1, {st(X, 2), barrier, st(U, 4), wmb()}},
                            {2, {pause(), ld(X, 0), pause(), ld(X, 1), pause(), ld(X, 2)}},
                            {0, {ld(X, 3), pause(), ld(X, 4), pause(), ld(X, 5)}},
                            {3, {st(Z, 1), wmb(), st(Z, 2), wmb()}}})),
       [](const Outcome& o) {
         const auto goes = [&](size_t i, int from, int to) {
           return (o[i] == from && o[i + 1] == to) || (o[i + 1] == from && o[i + 2] == to);
         };
         const auto back = [&](size_t i) { return goes(i, 1, 0) || goes(i, 2, 0); };
         return back(0) || back(3) || (goes(0, 1, 2) && goes(3, 2, 1)) ||
                (goes(0, 2, 1) && goes(3, 1, 2));
       },
       "mutate_gaps_merged=fail"},
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

TEST_SUITE("coherence") {
  TEST_CASE("one_location_never_goes_back_for_anybody") {
    for (const int home : {0, 1, 2, 3, 4}) {
      Lab lab({5, {home}});
      for (const Step barrier : {nothing(), wmb(), mb(), cas(Z, 0, 1)}) {
        for (const Shape& s : shapes(barrier)) {
          const Histogram seen = lab.run(s.program, 32);
          CHECK_MESSAGE(seen.count(s.forbidden) == 0, s.name, ", home on node ", home, seen);
        }
      }
    }
  }

  TEST_CASE("one_location_goes_back_when_the_protocol_is_broken") {
    for (const Shape& s : shapes(nothing())) {
      Lab lab({5, {4}}, s.mutation);
      const Histogram seen = lab.run(s.program, 3000, s.forbidden);
      CHECK_MESSAGE(seen.count(s.forbidden) > 0, s.name, ", not seen under ", s.mutation, seen);
    }
  }
}

}  // namespace

}  // namespace cmi::test

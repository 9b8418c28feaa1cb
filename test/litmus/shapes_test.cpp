// The classical shapes of two threads, with each barrier and without.
#include <doctest/doctest.h>

#include <array>

#include "litmus/placements.hpp"

namespace cmi::test {

namespace {

struct Barrier {
  std::string name;
  Step step;
};

// What orders the store before it against everything behind it; cflush names the first variable.
std::vector<Barrier> write_barriers(Variable stored) {
  return {{"wmb", wmb()},
          {"mb", mb()},
          {"flush_fb", flush_fb()},
          {"close_fb", close_fb()},
          {"cflush", cflush(stored)},
          {"atm_cas", cas(Z, 0, 1)}};
}

uint64_t count_checked(Lab& lab, const Program& p, uint32_t rounds, const Predicate& forbidden,
                       const std::string& where, const std::string& what) {
  const Histogram seen = lab.run(p, rounds);
  const uint64_t n = seen.count(forbidden);
  CHECK_MESSAGE(n == 0, where, ", ", what, ": forbidden outcomes", seen);
  return seen.rounds();
}

// ---- Message passing ------------------------------------------------------------------------

Program message_passing(Step writers, Step readers) {
  return program(
      {{0, {st(X, 1), writers, st(Y, 1), wmb()}}, {1, {await(Y, 1, 0), readers, ld(X, 1)}}});
}
bool old_message(const Outcome& o) { return o[0] == 1 && o[1] == 0; }

TEST_SUITE("shapes") {
  TEST_CASE("a_message_is_never_seen_before_what_a_barrier_put_in_front_of_it") {
    for (const Placement& where : placements_of_two()) {
      Lab lab(where.nodes, where.homes);
      for (const Barrier& b : write_barriers(X)) {
        count_checked(lab, message_passing(b.step, rmb()), 64, old_message, where.name, b.name);
      }
    }
  }

  TEST_CASE("a_message_without_a_barrier_is_seen_before_what_it_is_about") {
    for (const Placement& where : placements_of_two()) {
      Lab lab(where.nodes, where.homes);
      const Histogram seen = lab.run(message_passing(nothing(), rmb()), 2000, old_message);
      MESSAGE(where.name, seen);
    }
  }
}

// ---- Store buffering ------------------------------------------------------------------------

Program store_buffering(Step first, Step second) {
  return program({{0, {st(X, 1), first, ld(Y, 0)}}, {1, {st(Y, 1), second, ld(X, 1)}}});
}
bool both_old(const Outcome& o) { return o[0] == 0 && o[1] == 0; }

TEST_SUITE("shapes") {
  TEST_CASE("of_two_that_store_and_then_load_one_sees_the_other") {
    for (const Placement& where : placements_of_two()) {
      Lab lab(where.nodes, where.homes);
      const auto first = write_barriers(X);
      auto second = write_barriers(Y);
      second.back().step = cas(U, 0, 1);
      for (size_t i = 0; i < first.size(); ++i) {
        count_checked(lab, store_buffering(first[i].step, second[i].step), 64, both_old, where.name,
                      first[i].name);
      }
    }
  }

  TEST_CASE("of_two_that_store_and_load_without_a_barrier_neither_may_see_the_other") {
    for (const Placement& where : placements_of_two()) {
      Lab lab(where.nodes, where.homes);
      const Histogram seen = lab.run(store_buffering(nothing(), nothing()), 2000, both_old);
      MESSAGE(where.name, seen);
    }
  }
}

// ---- 2+2W -----------------------------------------------------------------------------------

Program two_and_two_writes(Step first, Step second) {
  Program p =
      program({{0, {st(X, 1), first, st(Y, 2), wmb()}}, {1, {st(Y, 1), second, st(X, 2), wmb()}}});
  p.finals = true;
  return p;
}
bool both_first(const Outcome& o) { return final_of(o, X) == 1 && final_of(o, Y) == 1; }
bool disagreement(const Outcome& o) {
  return final_of(o, X) == kDisagree || final_of(o, Y) == kDisagree;
}

TEST_SUITE("shapes") {
  TEST_CASE("of_two_that_store_crosswise_one_is_the_last") {
    for (const Placement& where : placements_of_two()) {
      Lab lab(where.nodes, where.homes);
      const auto first = write_barriers(X);
      auto second = write_barriers(Y);
      second.back().step = cas(U, 0, 1);
      for (size_t i = 0; i < first.size(); ++i) {
        count_checked(
            lab, two_and_two_writes(first[i].step, second[i].step), 64,
            [](const Outcome& o) { return both_first(o) || disagreement(o); }, where.name,
            first[i].name);
      }
    }
  }

  TEST_CASE("of_two_that_store_crosswise_without_a_barrier_both_may_be_first") {
    for (const Placement& where : placements_of_two()) {
      Lab lab(where.nodes, where.homes);
      const Histogram seen = lab.run(two_and_two_writes(nothing(), nothing()), 1000, both_first);
      MESSAGE(where.name, seen);
    }
  }
}

}  // namespace

}  // namespace cmi::test

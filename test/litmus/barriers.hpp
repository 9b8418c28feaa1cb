// The barriers that litmus tests put between two accesses, and delays under which what a barrier
// forbids is looked for.
#pragma once

#include <string>
#include <vector>

#include "litmus/lab.hpp"

namespace cmi::test {

struct Barrier {
  std::string name;
  Step step;
};

// What puts the store to `stored` before everything behind it. A swap of another word is one too.
inline std::vector<Barrier> barriers(Variable stored, Variable swapped) {
  return {{"wmb", wmb()},
          {"mb", mb()},
          {"flush_fb", flush_fb()},
          {"close_fb", close_fb()},
          {"cflush", cflush(stored)},
          {"atm_cas", cas(swapped, 0, 1)}};
}
// And what the promise in question does without.
inline std::vector<Barrier> barriers_or_none(Variable stored, Variable swapped) {
  auto all = barriers(stored, swapped);
  all.push_back({"rmb", rmb()});
  all.push_back({"no barrier", nothing()});
  return all;
}

// Delays that let an allowed outcome be seen, and under which a forbidden one is not: the pages of
// one barrier come home one by one, and are dropped one by one.
inline constexpr const char* kSlow =
    "invalidate_before_zap=delay:300;update_before_apply=delay:300;publish_before_page=delay:100";
// Where it is to be seen that a page was fetched: those that are subscribed to come by themselves,
// from one home in one order.
inline constexpr const char* kUnsubscribed = ";never_subscribe=fail";

}  // namespace cmi::test

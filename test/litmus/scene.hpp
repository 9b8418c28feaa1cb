// Where the variables of programs of any number of threads lie, a node a thread, and what their
// pages have been through.
#pragma once

#include <string>
#include <vector>

#include "litmus/barriers.hpp"
#include "litmus/lab.hpp"

namespace cmi::test {

struct Scene {
  std::string name;
  Placement where;
  bool one_page = false, again = false;
  std::string faults = "";
};
inline std::vector<Scene> scenes_of(int threads) {
  const Placement each = threads < 3 ? Placement{threads, {0, 1}} : Placement{threads, {0, 1, 2}};
  return {{"fresh pages", {threads, {0}}},
          {"hot pages, home elsewhere", {threads + 1, {threads}}, false, true, kSlow},
          {"one page", {threads, {threads - 1}}, true, false, kSlow},
          {"a home for each variable", each, false, false, kSlow}};
}

}  // namespace cmi::test

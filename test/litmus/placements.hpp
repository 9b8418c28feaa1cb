// Where the variables of a litmus test lie: at home on one that takes part, on a third node, or in
// two segments with two homes.
#pragma once

#include <string>
#include <vector>

#include "litmus/lab.hpp"

namespace cmi::test {

struct Placement {
  std::string name;
  int nodes;
  std::vector<int> homes;
};

// Of programs whose threads run on nodes 0 and 1.
inline const std::vector<Placement>& placements_of_two() {
  static const std::vector<Placement> all{
      {"home on node 0", 2, {0}},         {"home on node 1", 2, {1}},
      {"home elsewhere", 3, {2}},         {"each is a home", 2, {0, 1}},
      {"the other way round", 2, {1, 0}}, {"two homes elsewhere", 4, {2, 3}},
  };
  return all;
}

}  // namespace cmi::test

// Where the variables of a litmus test lie: at home on one that takes part, on a third node, or in
// two segments with two homes, of which both, one or none take part.
#pragma once

#include <string>
#include <vector>

#include "litmus/lab.hpp"
#include "support/long_run.hpp"

namespace cmi::test {

// Of these, those that are played here. Simulated nodes have one process each; where all else is
// simulated (unless all is played), processes play the rest.
inline std::vector<Placement> playable(std::vector<Placement> all) {
  const auto shares_node = [](const Placement& p) { return p.beside != -1 || p.sharing != -1; };
#ifdef CMI_TEST_SIMULATED
  std::erase_if(all, shares_node);
#else
  if (!long_run()) std::erase_if(all, [&](const Placement& p) { return !shares_node(p); });
#endif
  return all;
}

// Of programs whose threads run in processes 0 and 1.
inline const std::vector<Placement>& placements_of_two() {
  static const std::vector<Placement> all = playable({
      {2, {0}, "home on node 0"},
      {2, {1}, "home on node 1"},
      {3, {2}, "home elsewhere"},
      {2, {0, 1}, "each is a home"},
      {2, {1, 0}, "the other way round"},
      {4, {2, 3}, "two homes elsewhere"},
      {3, {0, 2}, "node 0 is the first home"},
      {3, {1, 2}, "node 1 is the first home"},
      {3, {2, 0}, "node 0 is the last home"},
      {3, {2, 1}, "node 1 is the last home"},
      {3, {2}, "node 0 beside the home", 0},
      {3, {2}, "node 1 beside the home", 1},
      {3, {2}, "two that share an import", -1, 1},
  });
  return all;
}

}  // namespace cmi::test

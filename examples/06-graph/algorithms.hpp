// PageRank, breadth-first search and connected components over a graph in memory, by a part of its
// vertices. The same code works alone on ordinary memory, and on each node on a segment.
//
// A node stores what belongs to its own vertices, and loads what belongs to others'. team.sync(x)
// waits for all nodes and returns the sum of their x: what was stored before is seen by all then.
// team.all_of(array) says that all of it is about to be loaded, here and there; it may do nothing.
#ifndef CMI_EXAMPLE_ALGORITHMS_HPP
#define CMI_EXAMPLE_ALGORITHMS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kronecker.h"

namespace graph {

struct Graph {
  uint64_t vertices;
  const uint64_t* first;  // of each vertex's neighbours in `to`, and the end
  const uint32_t* to;
  uint64_t degree(uint64_t v) const { return first[v + 1] - first[v]; }
};
struct Part {
  uint64_t begin, end;
};
struct Team {
  std::function<double(double)> sync;
  std::function<void(const void* array)> all_of;
};

inline constexpr uint8_t kUnreached = 255;

// In two arrays in turn: what a vertex gives to each of its neighbours. Which one has it in the
// end.
inline int page_rank(const Graph& g, double* const give[2], Part part, const Team& team) {
  constexpr double kDamping = 0.85;
  const auto n = static_cast<double>(g.vertices);
  const auto store = [&](int which, uint64_t v, double rank) {
    const uint64_t degree = g.degree(v);
    give[which][v] = degree == 0 ? rank : rank / static_cast<double>(degree);
    return degree == 0 ? rank : 0;  // what has no neighbours gives to all
  };
  double lost = 0;
  for (uint64_t v = part.begin; v < part.end; ++v) lost += store(0, v, 1 / n);
  double of_all = team.sync(lost);
  for (int i = 0; i < kIterations; ++i) {
    const double* const from = give[i % 2];
    team.all_of(from);
    lost = 0;
    for (uint64_t v = part.begin; v < part.end; ++v) {
      double sum = of_all / n;
      for (uint64_t e = g.first[v]; e < g.first[v + 1]; ++e) sum += from[g.to[e]];
      lost += store(1 - i % 2, v, (1 - kDamping) / n + kDamping * sum);
    }
    of_all = team.sync(lost);
  }
  return kIterations % 2;
}

// Levels from the root. Each unreached vertex looks for a neighbour of the last level, so that
// nobody stores to another one's vertices.
inline void search(const Graph& g, uint64_t root, uint8_t* level, Part part, const Team& team) {
  for (uint64_t v = part.begin; v < part.end; ++v) level[v] = v == root ? 0 : kUnreached;
  team.sync(0);
  for (uint8_t last = 0; last + 1 < kUnreached; ++last) {
    double reached = 0;
    team.all_of(level);
    for (uint64_t v = part.begin; v < part.end; ++v) {
      if (level[v] != kUnreached) continue;
      const auto* const end = g.to + g.first[v + 1];
      if (std::find_if(g.to + g.first[v], end, [&](uint32_t u) {
            return __atomic_load_n(level + u, __ATOMIC_RELAXED) == last;
          }) == end) {
        continue;
      }
      __atomic_store_n(level + v, static_cast<uint8_t>(last + 1), __ATOMIC_RELAXED);
      reached += 1;
    }
    if (team.sync(reached) == 0) break;
  }
}

// Of each vertex the lowest vertex that it is connected with. Labels only fall, so that it does no
// harm to see another node's of this round.
inline void components(const Graph& g, uint32_t* label, Part part, const Team& team) {
  for (uint64_t v = part.begin; v < part.end; ++v) label[v] = static_cast<uint32_t>(v);
  team.sync(0);
  for (double changed = 1; changed != 0;) {
    changed = 0;
    team.all_of(label);
    for (uint64_t v = part.begin; v < part.end; ++v) {
      uint32_t lowest = label[v];
      for (uint64_t e = g.first[v]; e < g.first[v + 1]; ++e) {
        lowest = std::min(lowest, __atomic_load_n(label + g.to[e], __ATOMIC_RELAXED));
      }
      if (lowest == label[v]) continue;
      __atomic_store_n(label + v, lowest, __ATOMIC_RELAXED);
      changed += 1;
    }
    changed = team.sync(changed);
  }
}

}  // namespace graph

#endif

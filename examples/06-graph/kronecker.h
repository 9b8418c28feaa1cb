/*
 * Edges of a Kronecker graph as Graph 500 has them (quadrants of 0.57, 0.19, 0.19, 0.05), each from
 * its number alone, so that any process makes any part of it. C11 and C++: graph.cpp and
 * graph_mpi.c.
 */
#ifndef CMI_EXAMPLE_KRONECKER_H
#define CMI_EXAMPLE_KRONECKER_H

#include <stdint.h>

enum { kEdgesOfVertex = 16, kIterations = 20 };

struct edge {
  uint64_t from, to;
};

static inline uint64_t kronecker_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static inline struct edge kronecker_edge(uint64_t number, unsigned scale) {
  struct edge e = {0, 0};
  for (unsigned level = 0; level < scale; ++level) {
    /* Of 65536: 0.57, 0.76, 0.95. */
    const uint64_t chance = kronecker_mix(number * 64 + level + UINT64_C(0x9e3779b97f4a7c15)) >> 48;
    const uint64_t down = chance >= 49807,
                   right = (chance >= 37356 && chance < 49807) || chance >= 62259;
    e.from = e.from * 2 + down;
    e.to = e.to * 2 + right;
  }
  /* So that vertices of many edges do not all lie at the front. */
  const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15) | 1, mask = (UINT64_C(1) << scale) - 1;
  e.from = e.from * odd & mask;
  e.to = e.to * odd & mask;
  return e;
}

/* Where searches begin: a vertex that has a neighbour. */
static inline uint64_t kronecker_root(unsigned scale) {
  uint64_t number = 0;
  struct edge e = kronecker_edge(number, scale);
  while (e.from == e.to) e = kronecker_edge(++number, scale);
  return e.from;
}

#endif

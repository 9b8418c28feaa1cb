/*
 * graph_mpi SCALE: what graph does, by the ranks of an MPI job with one-sided gets. Each rank has
 * the rows of its own vertices; before each step it gets what the others have stored for theirs, in
 * one piece from each. run-mpi compiles and starts it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "kronecker.h"

enum { kPasses = 2, kUnreached = 255 };

static int rank, ranks;
static unsigned scale;
static uint64_t n, begin, end, *first, *border; /* first: of own vertices */
static uint32_t* to;

static void* zeros(uint64_t count, size_t size) {
  void* at = calloc(count ? count : 1, size);
  if (at == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  return at;
}

static void count_degrees(uint64_t* degree) {
  for (uint64_t i = 0; i < n * kEdgesOfVertex; ++i) {
    const struct edge e = kronecker_edge(i, scale);
    if (e.from == e.to) continue;
    degree[e.from]++;
    degree[e.to]++;
  }
}

/* Each rank gets as many edges. */
static void share_out(const uint64_t* degree) {
  uint64_t all = 0, seen = 0;
  int next = 1;
  for (uint64_t v = 0; v < n; ++v) all += degree[v];
  border = zeros((uint64_t)ranks + 1, sizeof *border);
  border[ranks] = n;
  for (uint64_t v = 0; v < n && next < ranks; ++v) {
    while (next < ranks && seen >= all / (uint64_t)ranks * (uint64_t)next) border[next++] = v;
    seen += degree[v];
  }
  begin = border[rank];
  end = border[rank + 1];
}

static void make_rows(const uint64_t* degree) {
  first = zeros(end - begin + 1, sizeof *first);
  for (uint64_t v = begin; v < end; ++v) first[v - begin + 1] = first[v - begin] + degree[v];
  to = zeros(first[end - begin], sizeof *to);
  uint64_t* next = zeros(end - begin, sizeof *next);
  for (uint64_t v = begin; v < end; ++v) next[v - begin] = first[v - begin];
  for (uint64_t i = 0; i < n * kEdgesOfVertex; ++i) {
    const struct edge e = kronecker_edge(i, scale);
    if (e.from == e.to) continue;
    if (e.from >= begin && e.from < end) to[next[e.from - begin]++] = (uint32_t)e.to;
    if (e.to >= begin && e.to < end) to[next[e.to - begin]++] = (uint32_t)e.from;
  }
  free(next);
}

/* An array of all vertices; each rank stores to its own part. */
struct array {
  char* all;
  size_t item;
  MPI_Win window;
};
static struct array make_array(size_t item) {
  struct array a = {zeros(n, item), item, MPI_WIN_NULL};
  MPI_Win_create(a.all, (MPI_Aint)(n * item), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &a.window);
  MPI_Win_fence(0, a.window);
  return a;
}
static void get_others(struct array* a) {
  MPI_Win_fence(0, a->window);
  for (int other = 0; other < ranks; ++other) {
    const uint64_t at = border[other] * a->item, bytes = border[other + 1] * a->item - at;
    if (other == rank || bytes == 0) continue;
    MPI_Get(a->all + at, (int)bytes, MPI_BYTE, other, (MPI_Aint)at, (int)bytes, MPI_BYTE,
            a->window);
  }
  MPI_Win_fence(0, a->window);
}

static double sum_of_all(double mine) {
  double sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

static double give_to(double* give, const uint64_t* degree, uint64_t v, double value) {
  give[v] = degree[v] == 0 ? value : value / (double)degree[v];
  return degree[v] == 0 ? value : 0;
}
static void page_rank(struct array give[2], const uint64_t* degree) {
  double lost = 0;
  for (uint64_t v = begin; v < end; ++v)
    lost += give_to((double*)give[0].all, degree, v, 1 / (double)n);
  double of_all = sum_of_all(lost);
  get_others(&give[0]);
  for (int i = 0; i < kIterations; ++i) {
    const double* from = (const double*)give[i % 2].all;
    lost = 0;
    for (uint64_t v = begin; v < end; ++v) {
      double sum = of_all / (double)n;
      for (uint64_t e = first[v - begin]; e < first[v - begin + 1]; ++e) sum += from[to[e]];
      lost += give_to((double*)give[1 - i % 2].all, degree, v, 0.15 / (double)n + 0.85 * sum);
    }
    of_all = sum_of_all(lost);
    get_others(&give[1 - i % 2]);
  }
}

static void search(struct array* level) {
  unsigned char* of = (unsigned char*)level->all;
  const uint64_t root = kronecker_root(scale);
  for (uint64_t v = begin; v < end; ++v) of[v] = v == root ? 0 : kUnreached;
  get_others(level);
  for (int last = 0; last + 1 < kUnreached; ++last) {
    double reached = 0;
    for (uint64_t v = begin; v < end; ++v) {
      if (of[v] != kUnreached) continue;
      uint64_t e = first[v - begin];
      while (e < first[v - begin + 1] && of[to[e]] != last) ++e;
      if (e == first[v - begin + 1]) continue;
      of[v] = (unsigned char)(last + 1);
      reached += 1;
    }
    get_others(level);
    if (sum_of_all(reached) == 0) break;
  }
}

static void components(struct array* label) {
  uint32_t* of = (uint32_t*)label->all;
  for (uint64_t v = begin; v < end; ++v) of[v] = (uint32_t)v;
  get_others(label);
  for (double changed = 1; changed != 0;) {
    changed = 0;
    for (uint64_t v = begin; v < end; ++v) {
      uint32_t lowest = of[v];
      for (uint64_t e = first[v - begin]; e < first[v - begin + 1]; ++e) {
        if (of[to[e]] < lowest) lowest = of[to[e]];
      }
      changed += lowest != of[v];
      of[v] = lowest;
    }
    get_others(label);
    changed = sum_of_all(changed);
  }
}

static void report(const char* name, double seconds) {
  if (rank == 0) printf("graph_%s_%d: %.3f ms\n", name, ranks, seconds * 1e3);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  scale = argc == 2 ? (unsigned)atoi(argv[1]) : 0;
  if (scale < 8 || scale > 24) {
    fprintf(stderr, "usage: graph_mpi SCALE (8 to 24)\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  n = UINT64_C(1) << scale;
  uint64_t* degree = zeros(n, sizeof *degree);
  count_degrees(degree);
  share_out(degree);
  make_rows(degree);
  struct array give[2] = {make_array(sizeof(double)), make_array(sizeof(double))};
  struct array level = make_array(1), label = make_array(sizeof(uint32_t));
  double took[3] = {0, 0, 0};
  for (int pass = 0; pass < kPasses; ++pass) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double t0 = MPI_Wtime();
    page_rank(give, degree);
    const double t1 = MPI_Wtime();
    search(&level);
    const double t2 = MPI_Wtime();
    components(&label);
    took[0] = t1 - t0;
    took[1] = t2 - t1;
    took[2] = MPI_Wtime() - t2;
  }
  report("pagerank", took[0]);
  report("bfs", took[1]);
  report("components", took[2]);
  if (rank == 0) {
    uint64_t levels = 0, labels = 0;
    double all = 0;
    for (uint64_t v = 0; v < n; ++v) {
      levels += ((unsigned char*)level.all)[v];
      labels += ((uint32_t*)label.all)[v];
      all += ((double*)give[kIterations % 2].all)[v];
    }
    printf("check %lu %lu %.9e\n", (unsigned long)levels, (unsigned long)labels, all);
  }
  MPI_Win_free(&give[0].window);
  MPI_Win_free(&give[1].window);
  MPI_Win_free(&level.window);
  MPI_Win_free(&label.window);
  MPI_Finalize();
  return 0;
}

/*
 * Shared memory between processes of one machine, by MPI's shared windows: two ranks, rank 0 has
 * the memory, rank 1 measures. Compiled and started by cases_windows.cpp for each MPI that is
 * installed. Prints one line for each row:
 *   row NAME UNIT LOW MEDIAN HIGH COUNT     quartiles
 * Ends by itself after the time it was given.
 *
 * usage: windows SECONDS QUICK
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { kPage = 4096, kPages = 1024 };

static MPI_Win window;
static volatile uint64_t* words; /* of rank 0, as this rank has them mapped */
static int rank;

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "windows: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void report(const char* name, const char* unit, double* samples, int n) {
  const double last = n - 1;
  if (rank != 1) return;
  qsort(samples, (size_t)n, sizeof *samples, ascending);
  printf("row %s %s %.6f %.6f %.6f %d\n", name, unit, samples[(int)(last * 0.25 + 0.5)],
         samples[(int)(last * 0.5 + 0.5)], samples[(int)(last * 0.75 + 0.5)], n);
  fflush(stdout);
}

/* Rank 0 stores to all pages, so that they are there. */
static void make(void) {
  void* own = NULL;
  void* of_first = NULL;
  MPI_Aint size = 0;
  int unit = 0;
  const MPI_Aint mine = rank == 0 ? (MPI_Aint)kPages * kPage : 0;
  MPI_Win_allocate_shared(mine, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
  MPI_Win_shared_query(window, 0, &size, &unit, &of_first);
  must(size >= (MPI_Aint)kPages * kPage, "the window is too small");
  words = of_first;
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  if (rank == 0) memset(own, 0, (size_t)kPages * kPage);
  MPI_Win_sync(window);
  MPI_Barrier(MPI_COMM_WORLD);
}

static void drop(void) {
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
}

/* The first load of each page of a fresh window, and a whole window until its first byte. */
static void fresh_windows(int count) {
  double* loads = calloc((size_t)count, sizeof *loads);
  double* imports = calloc((size_t)count, sizeof *imports);
  must(loads != NULL && imports != NULL, "no memory");
  for (int i = 0; i < count; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = now_us();
    make();
    uint64_t sum = words[0];
    imports[i] = (now_us() - begun) / 1e3;
    begun = now_us();
    for (size_t p = 1; p < kPages; ++p) sum += words[p * kPage / sizeof *words];
    loads[i] = (now_us() - begun) / (kPages - 1);
    must(sum == 0, "a page is not empty");
    drop();
  }
  report("load_first", "us", loads, count);
  report("import", "ms", imports, count);
  free(loads);
  free(imports);
}

static void swaps(int count) {
  enum { kTimes = 100 };
  double* samples = calloc((size_t)count, sizeof *samples);
  must(samples != NULL, "no memory");
  uint64_t expected = 0;
  for (int i = 0; i < count && rank == 1; ++i) {
    const double begun = now_us();
    for (int k = 0; k < kTimes; ++k) {
      uint64_t desired = expected + 1, found = 0;
      MPI_Compare_and_swap(&desired, &expected, &found, MPI_UINT64_T, 0, 0, window);
      MPI_Win_flush(0, window);
      must(found == expected, "a swap found something else");
      expected = desired;
    }
    samples[i] = (now_us() - begun) / kTimes;
  }
  MPI_Barrier(MPI_COMM_WORLD); /* rank 0 polls in here meanwhile */
  report("cas", "us", samples, count);
  free(samples);
}

/* From a store until the other rank, which looks all the time, has seen it. */
static void publications(int count) {
  volatile uint64_t* const stored = words + kPage / sizeof *words;
  volatile uint64_t* const seen = stored + kPage / sizeof *words; /* and when, behind it */
  double* samples = calloc((size_t)count, sizeof *samples);
  must(samples != NULL, "no memory");
  for (int i = 0; i < count; ++i) {
    const uint64_t version = (uint64_t)i + 1;
    if (rank == 1) {
      const double begun = now_us();
      *stored = version;
      MPI_Win_sync(window);
      while (*seen != version) MPI_Win_sync(window);
      double at;
      memcpy(&at, (const void*)(seen + 1), sizeof at);
      samples[i] = at - begun;
    } else {
      while (*stored != version) MPI_Win_sync(window);
      const double at = now_us();
      memcpy((void*)(seen + 1), &at, sizeof at);
      MPI_Win_sync(window);
      *seen = version;
      MPI_Win_sync(window);
    }
  }
  report("publish", "us", samples, count);
  free(samples);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm((unsigned)atoi(argv[1]));
  const int quick = atoi(argv[2]);
  int ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  must(ranks == 2, "needs two ranks");
  fresh_windows(quick ? 5 : 30);
  make();
  swaps(quick ? 20 : 200);
  publications(quick ? 200 : 2000);
  drop();
  MPI_Finalize();
  return 0;
}

/*
 * The paths of the benchmark, by one-sided MPI: two ranks, rank 1 measures, rank 0 has the memory
 * and polls in a barrier. Compiled and started by peers.cpp for each MPI that is installed. Prints
 * one line for each row:
 *   row NAME UNIT LOW MEDIAN HIGH COUNT     quartiles
 *   bytes MEASURED LOOPBACK                 read in order, and what went over lo meanwhile
 * and before these "version TEXT". Ends by itself after the time it was given.
 *
 * usage: rma SECONDS QUICK CPU-OF-RANK-0 CPU-OF-RANK-1       (CPU -1: any)
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { kPage = 4096, kPages = 1000, kChunk = 1 << 20, kDepth = 16 };

static MPI_Win window;
static char* mine; /* where the measuring rank gets to and puts from */
static size_t bytes;
static uint64_t version = 1;

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "rma: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

static void flush(void) { MPI_Win_flush(0, window); }

/* What loopback has carried so far: one direction, as the interface counts it. */
static uint64_t loopback_bytes(void) {
  char line[512];
  uint64_t count = 0;
  FILE* f = fopen("/proc/net/dev", "re");
  must(f != NULL, "no /proc/net/dev");
  while (fgets(line, sizeof line, f) != NULL) {
    if (sscanf(line, " lo: %" SCNu64, &count) == 1) break;
  }
  fclose(f);
  return count;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void report(const char* name, const char* unit, double* samples, int n) {
  qsort(samples, (size_t)n, sizeof *samples, ascending);
  const double last = n - 1;
  printf("row %s %s %.6f %.6f %.6f %d\n", name, unit, samples[(int)(last * 0.25 + 0.5)],
         samples[(int)(last * 0.5 + 0.5)], samples[(int)(last * 0.75 + 0.5)], n);
  fflush(stdout);
}

/* Each returns the time it took, in microseconds, and checks what can be checked here. */
static double get_page(void) {
  const size_t at = (size_t)rand() % (bytes / kPage) * kPage;
  memset(mine + at, 0xff, sizeof(uint64_t));
  const double begun = now_us();
  MPI_Get(mine + at, kPage, MPI_BYTE, 0, (MPI_Aint)at, kPage, MPI_BYTE, window);
  flush();
  const double took = now_us() - begun;
  must(*(uint64_t*)(mine + at) == at, "a get brought something else");
  return took;
}

static double put_many(int size) {
  char last[8];
  for (size_t i = 0; i < kPages; ++i) {
    memset(mine + i * kPage + 8, (int)(version & 0x7f), (size_t)size);
  }
  const double begun = now_us();
  for (size_t i = 0; i < kPages; ++i) {
    const size_t at = i * kPage + 8;
    MPI_Put(mine + at, size, MPI_BYTE, 0, (MPI_Aint)at, size, MPI_BYTE, window);
  }
  flush();
  const double took = now_us() - begun;
  const size_t at = (kPages - 1) * kPage + (size_t)size; /* the last bytes of the last page */
  MPI_Get(last, sizeof last, MPI_BYTE, 0, (MPI_Aint)at, sizeof last, MPI_BYTE, window);
  flush();
  must(memcmp(last, mine + at, sizeof last) == 0 && last[0] == (char)(version & 0x7f),
       "what was put is not there");
  ++version;
  return took;
}
static double put_words(void) { return put_many(8); }
static double put_pages(void) { return (double)kPages * (kPage - 8) / put_many(kPage - 8); }

static double swap(void) {
  static uint64_t expected = 0;
  uint64_t desired = expected + 1, found = 0;
  const double begun = now_us();
  MPI_Compare_and_swap(&desired, &expected, &found, MPI_UINT64_T, 0, 0, window);
  flush();
  const double took = now_us() - begun;
  must(found == expected, "a swap found something else");
  expected = desired;
  return took;
}

static double read_in_order(void) {
  for (size_t at = 0; at < bytes; at += kPage) *(uint64_t*)(mine + at) = UINT64_MAX;
  const double begun = now_us();
  for (size_t at = 0, under_way = 0; at < bytes; at += kChunk) {
    MPI_Get(mine + at, kChunk, MPI_BYTE, 0, (MPI_Aint)at, kChunk, MPI_BYTE, window);
    if (++under_way % kDepth == 0) flush();
  }
  flush();
  const double took = now_us() - begun;
  for (size_t at = 0; at < bytes; at += kPage) {
    must(*(uint64_t*)(mine + at) == at, "a get in order brought something else");
  }
  return (double)bytes / took;
}

/* Stored here by the application, then put. What get_page and read_in_order look at stays. */
static double write_in_order(void) {
  const double begun = now_us();
  for (size_t at = 0, under_way = 0; at < bytes; at += kChunk) {
    for (size_t page = at; page < at + kChunk; page += kPage) {
      uint64_t* words = (uint64_t*)(mine + page);
      words[0] = page;
      for (size_t i = 1; i < kPage / sizeof *words; ++i) words[i] = version;
    }
    MPI_Put(mine + at, kChunk, MPI_BYTE, 0, (MPI_Aint)at, kChunk, MPI_BYTE, window);
    if (++under_way % kDepth == 0) flush();
  }
  flush();
  const double took = now_us() - begun;
  for (size_t at = 0; at < bytes; at += kChunk) {
    uint64_t there = 0;
    MPI_Get(&there, sizeof there, MPI_BYTE, 0, (MPI_Aint)(at + kChunk - sizeof there), sizeof there,
            MPI_BYTE, window);
    flush();
    must(there == version, "what was put in order is not there");
  }
  ++version;
  return (double)bytes / took;
}

static void measure(const char* name, const char* unit, double (*once)(void), int warm, int count) {
  double* samples = malloc((size_t)count * sizeof *samples);
  must(samples != NULL, "no memory");
  for (int i = 0; i < warm; ++i) once();
  for (int i = 0; i < count; ++i) samples[i] = once();
  report(name, unit, samples, count);
  free(samples);
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm((unsigned)atoi(argv[1]));
  const int quick = atoi(argv[2]);
  int rank = 0, ranks = 0, length = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  must(ranks == 2, "needs two ranks");
  const int cpu = atoi(argv[3 + rank]);
  if (cpu >= 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    must(sched_setaffinity(0, sizeof one, &one) == 0, "cannot pin to a CPU");
  }
  bytes = (size_t)(quick ? 32 : 256) << 20;
  mine = malloc(bytes);
  must(mine != NULL, "no memory");
  for (size_t at = 0; at < bytes; at += kPage) {
    memset(mine + at, 0, kPage);
    *(uint64_t*)(mine + at) = rank == 0 ? at : 0;
  }
  MPI_Win_create(mine, rank == 0 ? (MPI_Aint)bytes : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    char version_text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Get_library_version(version_text, &length);
    version_text[strcspn(version_text, ",\n")] = 0;
    char number[64];
    if (sscanf(version_text, "MPICH Version: %63s", number) == 1) {
      snprintf(version_text, sizeof version_text, "MPICH %s", number);
    }
    printf("version %s\n", version_text);
    measure("load_miss_4k", "us", get_page, 200, quick ? 500 : 4000);
    measure("flush_sparse", "us", put_words, 2, quick ? 10 : 60);
    measure("flush_dense", "MB/s", put_pages, 2, quick ? 8 : 40);
    measure("cas", "us", swap, 100, quick ? 500 : 2000);
    /* The swaps and puts changed no word that get_page looks at but the first. */
    uint64_t zero = 0;
    MPI_Put(&zero, sizeof zero, MPI_BYTE, 0, 0, sizeof zero, MPI_BYTE, window);
    flush();
    const uint64_t before = loopback_bytes();
    const int reads = quick ? 3 : 7;
    measure("read_seq", "MB/s", read_in_order, 1, reads);
    printf("bytes %zu %" PRIu64 "\n", bytes * (size_t)(reads + 1), loopback_bytes() - before);
    fflush(stdout);
    measure("write_seq", "MB/s", write_in_order, 1, reads);
  }
  MPI_Barrier(MPI_COMM_WORLD); /* rank 0 polls in here meanwhile */
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  MPI_Finalize();
  free(mine);
  return 0;
}

/* The programs of the application's threads: what memory.pml is checked for. Read twice, by spin for the
   numbers and by the C compiler for the programs.

   Locations: x and x2 are the two bytes of page 0, y and y2 those of page 1. A thread ends at the first IF
   that does not hold. */
#define LOAD 1           /* reg = [at] */
#define STORE 2          /* [at] = value */
#define BARRIER 3
#define CFLUSH 4         /* of at */
#define CAS 5            /* reg = what stood there; value -> other */
#define CAS_BY_PROVIDER 6
#define MARK 7           /* past the memory, as a message between the programs would */
#define IF_MARKED 8
#define AWAIT_MARK 9
#define AWAIT_ALONE 10    /* until all other threads have ended */
#define IF 11            /* reg == value, else the thread ends */
#define EXPECT 12
#define EXPECT_NOT 13
#define EXPECT_ORDER 14  /* reg <= other */
#define EXPECT_ANY 15    /* reg or other is not 0 */
#define EXPECT_AT_HOME 16
#define EXPECT_AS_HOME 17
#define DIE 18           /* the home's other process */
#define END 0

#define NOBODY 255
#define OTHER_PROCESS 4  /* an application at home, in a process that may die */

#define STALE_IGNORED 1
#define MAPPED_OUTSIDE_LOCK 2
#define CLEAN_BEFORE_MAPPED 3
#define TWIN_LATE 4
#define NOT_PROTECTED 5
#define UNLOCKED_PROTECT 6
#define LIVE_BYTES 7
#define MERGED_GAPS 8
#define REFETCHED_BEFORE_DELIVERY 9
#define PUBLISHED_BEFORE_DATA 10
#define NOTICE_NOT_SENT 11
#define ACKS_NOT_AWAITED 12
#define OTHERS_BATCHES_FORGOTTEN 13
#define IN_FLIGHT_FORGOTTEN 14
#define LIST_BEFORE_BATCH 15
#define ONE_ROUND 16
#define BATCH_ENDED_EARLY 17
#define DIRTY_KEPT 18
#define DIRTY_DROPPED 19
#define ACK_BEFORE_ZAP 20
#define FETCHING_FORGOTTEN 21
#define LOCKED_DESCENDING 22
#define HANDLER_MEETS_LOCK 23
#define SCAN_UNLOCKED 24
#define DEATH_NOT_PUBLISHED 25
#define ARMED_LATE 26
#define CAS_WITHOUT_BARRIER 27
#define CAS_UNPUBLISHED 28
#define CAS_UNPATCHED 29
#define CAS_TWIN_KEPT 30
#define CAS_GENERATION_IGNORED 31
#define HOME_CAS_UNPUBLISHED 32
#define LAST_AWAIT_LEFT_OUT 33

#ifndef SPIN
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { x, x2, y, y2, HOME = 3 };

struct op {
  unsigned char kind, at, value, other, reg;
};
struct thread {
  int node;
  const struct op* program;
};
struct test {
  const char* name;
  int ticks[3];       /* of each importer's timer */
  int presented_late; /* no importer has presented its token yet */
  struct thread threads[5];
};

#define THREAD(n, ...) {n, (const struct op[]){__VA_ARGS__, {END}}}
#define load(a, r) {LOAD, .at = a, .reg = r}
#define store(a, v) {STORE, .at = a, .value = v}
#define barrier {BARRIER}
#define cflush(a) {CFLUSH, .at = a}
#define cas(a, v, o, r) {CAS, .at = a, .value = v, .other = o, .reg = r}
#define provider_cas(a, v, o, r) {CAS_BY_PROVIDER, .at = a, .value = v, .other = o, .reg = r}
#define mark(m) {MARK, .value = m}
#define if_marked(m) {IF_MARKED, .value = m}
#define await_mark(m) {AWAIT_MARK, .value = m}
#define await_alone {AWAIT_ALONE}
#define only_if(r, v) {IF, .reg = r, .value = v}
#define expect(r, v) {EXPECT, .reg = r, .value = v}
#define expect_not(r, v) {EXPECT_NOT, .reg = r, .value = v}
#define expect_order(r, o) {EXPECT_ORDER, .reg = r, .other = o}
#define expect_any(r, o) {EXPECT_ANY, .reg = r, .other = o}
#define expect_at_home(a, v) {EXPECT_AT_HOME, .at = a, .value = v}
#define expect_as_home(a, r) {EXPECT_AS_HOME, .at = a, .reg = r}
#define die {DIE}

static const struct test tests[] = {
    /* Message passing. The reader has x in its cache already; two words, one page and two. */
    {"message_passing", {1, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, store(y, 1), barrier),
      THREAD(1, load(x, 0), load(y, 1), only_if(1, 1), load(x, 0), expect(0, 1))}},
    {"message_passing_in_a_page", {1, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, store(x2, 1), barrier),
      THREAD(1, load(x2, 1), only_if(1, 1), load(x, 0), expect(0, 1)),
      THREAD(1, load(x, 2))}},
    /* A published store: no load that begins after the barrier has returned misses it. */
    {"published", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, mark(0)),
      THREAD(1, load(x, 0), if_marked(0), load(x, 0), expect(0, 1)),
      THREAD(1, load(x, 1), if_marked(0), load(x, 1), expect(1, 1))}},
    {"published_to_dirty", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, mark(0)),
      THREAD(1, store(x2, 9), if_marked(0), load(x, 0), expect(0, 1), barrier, expect_at_home(x2, 9))}},
    /* By the home, with the timer's scan beside its barrier; the reader's node has two threads. */
    {"published_by_home", {0, 0, 0}, 0,
     {THREAD(HOME, store(x, 1), barrier, mark(0)), THREAD(HOME, barrier),
      THREAD(0, load(x, 0), if_marked(0), load(x, 0), expect(0, 1)),
      THREAD(0, load(x, 1), if_marked(0), load(x, 1), expect(1, 1))}},
    {"arming", {0, 0, 0}, 1,
     {THREAD(HOME, store(x, 1), barrier, mark(0), store(x, 2), barrier, mark(1)),
      THREAD(0, load(x, 0), if_marked(1), load(x, 0), expect(0, 2))}},
    {"death_at_home", {0, 0, 0}, 0,
     {THREAD(OTHER_PROCESS, store(x, 1), die, mark(0)),
      THREAD(HOME, await_mark(0), barrier, mark(1)),
      THREAD(0, load(x, 0), if_marked(1), load(x, 0), expect(0, 1))}},
    /* A barrier covers what other threads of the process have stored; so does one that runs beside it. */
    {"seen_store", {1, 0, 0}, 0,
     {THREAD(0, store(x, 1)), THREAD(0, load(x, 0), only_if(0, 1), barrier, expect_at_home(x, 1)),
      THREAD(HOME, store(x2, 1), barrier)}},
    {"two_barriers", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), store(y, 1), barrier, expect_at_home(x, 1), expect_at_home(y, 1)),
      THREAD(0, store(y2, 1), store(x2, 1), barrier, expect_at_home(y2, 1), expect_at_home(x2, 1)),
      THREAD(1, load(x, 0), load(y, 0))}},
    {"barriers_and_notices", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), store(y, 1), barrier, expect_at_home(x, 1), expect_at_home(y, 1)),
      THREAD(HOME, store(x2, 1), store(y2, 1), barrier)}},
    /* ... and what another barrier has taken from the dirty list and then finds taken by a notice. */
    {"claimed", {1, 0, 0}, 0,
     {THREAD(0, store(x, 1), store(x2, 1), barrier, expect_at_home(x2, 1)), THREAD(0, barrier),
      THREAD(HOME, store(x, 5), barrier)}},
    /* One location: a reader never goes back, whatever its node stores beside it. */
    {"one_location", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, store(x, 2), barrier),
      THREAD(1, load(x, 0), load(x, 1), expect_order(0, 1)),
      THREAD(1, load(x, 2), store(x2, 9), load(x, 3), expect_order(2, 3))}},
    /* False sharing: no byte lost, each writer reads its own. */
    {"false_sharing", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, load(x, 0), expect(0, 1), store(x, 2), barrier, load(x, 0), expect(0, 2)),
      THREAD(1, store(x2, 1), barrier, load(x2, 1), expect(1, 1)),
      THREAD(HOME, await_alone, expect_at_home(x, 2), expect_at_home(x2, 1))}},
    {"false_sharing_three", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, mark(0)), THREAD(1, store(x2, 1)),
      THREAD(2, load(x, 0), if_marked(0), load(x, 0), expect(0, 1)),
      THREAD(HOME, await_alone, expect_at_home(x, 1))}},
    {"three_publishers", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier), THREAD(1, store(x2, 1), barrier), THREAD(HOME, store(y, 1), barrier),
      THREAD(HOME, await_alone, expect_at_home(x, 1), expect_at_home(x2, 1))}},
    /* A-B-A: the last of three stores is home though the timer took the first or the second, and though the
       home stores beside it. */
    {"a_b_a", {2, 0, 0}, 0,
     {THREAD(0, store(x, 1), store(x, 2), store(x, 1), barrier, expect_at_home(x, 1)),
      THREAD(HOME, store(x2, 1), barrier, store(x2, 2), barrier)}},
    {"stored_again", {1, 0, 0}, 0,
     {THREAD(0, store(x, 1), store(x, 2), barrier, load(x, 0), expect(0, 2), expect_at_home(x, 2)),
      THREAD(0, store(x2, 1), barrier, load(x2, 1), expect(1, 1), expect_at_home(x2, 1)),
      THREAD(HOME, store(y, 1), barrier, await_alone, expect_at_home(x, 2), expect_at_home(x2, 1))}},
    {"cflush", {1, 0, 0}, 0,
     {THREAD(0, store(x, 1), store(x, 2), cflush(x), expect_at_home(x, 2)),
      THREAD(0, store(x2, 1), barrier, expect_at_home(x2, 1))}},
    {"store_buffering", {0, 0, 0}, 0,
     {THREAD(0, load(y, 0), store(x, 1), barrier, load(y, 0)),
      THREAD(1, load(x, 1), store(y, 1), barrier, load(x, 1)), THREAD(HOME, await_alone, expect_any(0, 1))}},
    {"store_buffering_home", {0, 0, 0}, 0,
     {THREAD(HOME, store(x, 1), barrier, load(y, 0), mark(0)),
      THREAD(1, load(x, 1), store(y, 1), barrier, load(x, 1)),
      THREAD(HOME, await_alone, expect_any(0, 1))}},
    /* Transitive over three importers. */
    {"transitive", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, store(y, 1), barrier),
      THREAD(2, load(y, 0), only_if(0, 1), store(y2, 1), barrier),
      THREAD(1, load(x, 2), load(y2, 3), only_if(3, 1), load(x, 2), expect(2, 1))}},
    /* Swaps: a counter by two threads of a node and one of another; the caller sees its own. */
    {"cas_counter", {0, 0, 0}, 0,
     {THREAD(0, cas(x, 0, 1, 0), expect(0, 0), load(x, 1), expect_not(1, 0)),
      THREAD(0, cas(x, 1, 2, 2), load(x, 3), expect_order(2, 3)),
      THREAD(1, load(x, 4), cas(x, 2, 3, 4)),
      THREAD(1, await_alone, load(x, 5), expect_as_home(x, 5))}},
    {"cas_by_provider", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), provider_cas(y, 0, 1, 0), expect(0, 0), load(y, 1), expect(1, 1), mark(0)),
      THREAD(1, load(y, 2), if_marked(0), load(y, 2), expect(2, 1), load(x, 3), expect(3, 1)),
      THREAD(1, load(y, 4), only_if(4, 1), load(x, 4), expect(4, 1))}},
    {"cas_release", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), cas(y, 0, 1, 0), expect(0, 0)), THREAD(0, store(y2, 5), barrier),
      THREAD(1, load(x, 1), load(y, 2), only_if(2, 1), load(x, 1), expect(1, 1)),
      THREAD(HOME, await_alone, expect_at_home(y2, 5))}},
    {"cas_neighbour", {0, 0, 0}, 0,
     {THREAD(0, cas(x, 0, 1, 0), expect(0, 0), barrier), THREAD(0, store(x2, 6), barrier),
      THREAD(1, cas(x, 1, 2, 1), only_if(1, 1), await_alone, expect_at_home(x, 2), expect_at_home(x2, 6))}},
    /* A lock that one thread lets go by a plain store while another tries to take it. */
    {"cas_unlock", {0, 0, 0}, 0,
     {THREAD(0, store(x, 1), barrier, mark(0), store(x, 0), barrier),
      THREAD(0, await_mark(0), cas(x, 0, 2, 0)),
      THREAD(0, await_alone, load(x, 1), expect_as_home(x, 1))}},
    {"cas_home", {0, 0, 0}, 0,
     {THREAD(HOME, cas(x, 0, 1, 0), mark(0)), THREAD(HOME, cas(x, 1, 2, 1)),
      THREAD(0, load(x, 2), if_marked(0), load(x, 2), expect_not(2, 0))}},
};

static inline int chosen_test(void) {
  const char* name = getenv("TEST");
  for (unsigned i = 0; name != NULL && i < sizeof tests / sizeof tests[0]; ++i) {
    if (strcmp(tests[i].name, name) == 0) return (int)i;
  }
  fprintf(stderr, "TEST names no test\n");
  exit(2);
}
static inline int chosen_mutation(void) {
  const char* number = getenv("MUTATION");
  return number == NULL ? 0 : atoi(number);
}
#endif

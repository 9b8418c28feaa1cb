/*
 * A client in plain C11 with nothing but <cmi.h> and libc. It lives the whole life of a context,
 * with allocation callbacks that count, and at the end every byte must have been freed. Then it
 * lives the same life again and again, with its first, second, third allocation failing: the call
 * that needed the memory must say CMI_ERR_NOMEM, and fini() must leave nothing behind.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */

#include <cmi.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- A heap that counts, for any thread ----------------------------------------------------- */

struct heap {
  atomic_size_t bytes;       /* out at this moment */
  atomic_size_t blocks;      /* out at this moment */
  atomic_uint allocations;   /* asked for so far, failed ones included */
  atomic_uint foreign_frees; /* of what this heap never gave */
  unsigned fail_at;          /* the number of the allocation that fails, from 1; 0: none */
};

/* How many allocations of the calling thread have failed. */
static _Thread_local unsigned failures_here;

struct block {
  alignas(max_align_t) size_t size;
  const struct heap* owner;
};

static void* counting_alloc(size_t size, void* arg) {
  struct heap* heap = arg;
  struct block* block;
  if (atomic_fetch_add(&heap->allocations, 1) + 1 == heap->fail_at) {
    ++failures_here;
    return NULL;
  }
  block = malloc(sizeof *block + size);
  if (block == NULL) return NULL;
  block->size = size;
  block->owner = heap;
  atomic_fetch_add(&heap->bytes, size);
  atomic_fetch_add(&heap->blocks, 1);
  return block + 1;
}

static void counting_free(void* ptr, void* arg) {
  struct heap* heap = arg;
  struct block* block = (struct block*)ptr - 1;
  if (ptr == NULL || block->owner != heap) {
    atomic_fetch_add(&heap->foreign_frees, 1);
    return;
  }
  block->owner = NULL;
  atomic_fetch_sub(&heap->bytes, block->size);
  atomic_fetch_sub(&heap->blocks, 1);
  free(block);
}

/* ---- One life ------------------------------------------------------------------------------- */

enum outcome { LIVED, OUT_OF_MEMORY, WRONG };

struct life {
  cmi_ctxt* ctxt; /* NULL: there is none */
  enum outcome outcome;
  const char* last_call;
  unsigned calls;
  unsigned failures_before; /* failures_here when the last call began */
};

/* Judges a call that has just been made; tells whether life goes on. */
static bool judge(struct life* life, const char* call, bool succeeded) {
  const bool hit = failures_here != life->failures_before;
  const cmi_error error = cmi_get_error(life->ctxt);
  life->failures_before = failures_here;
  life->last_call = call;
  ++life->calls;
  if (succeeded && !hit) return true;
  if (!succeeded && hit && error == CMI_ERR_NOMEM) {
    life->outcome = OUT_OF_MEMORY;
  } else {
    life->outcome = WRONG;
    fprintf(stderr, "%s %s, error %d, %s allocation failed in it\n", call,
            succeeded ? "succeeded" : "failed", (int)error, hit ? "an" : "no");
  }
  return false;
}

/* A condition that has nothing to do with memory. */
static bool expect(struct life* life, const char* what, bool holds) {
  if (!holds) {
    life->outcome = WRONG;
    fprintf(stderr, "does not hold: %s\n", what);
  }
  return holds;
}

#define CALL(fn, ...) (CMIFN(life->ctxt, 10, fn)(life->ctxt, __VA_ARGS__))
#define CALL0(fn) (CMIFN(life->ctxt, 10, fn)(life->ctxt))
#define DO(fn, succeeds) \
  if (!judge(life, #fn, (succeeds))) return
#define EXPECT(condition) \
  if (!expect(life, #condition, (condition))) return

static const size_t kSize = 1 << 16;

/* Stores through `remote` reach `home`, and the other way round. Both views are of one segment. */
static void share(struct life* life, char* home, char* remote) {
  uint64_t* word = (uint64_t*)(void*)remote;
  void* lines[1];
  uint64_t was = 1;
  cmi_fb epoch = NULL;

  DO(cmi_enb, CALL(cmi_enb, 1) == 0);
  DO(open_fb, (epoch = CALL0(open_fb)) != NULL);
  memcpy(remote + 4090, "across pages", 13);
  DO(flush_fb, CALL(flush_fb, epoch) == 0);
  EXPECT(memcmp(home + 4090, "across pages", 13) == 0);

  remote[100] = 'a';
  DO(wmb_fn, CALL0(wmb_fn) == 0);
  EXPECT(home[100] == 'a');
  home[100] = 'b';
  DO(mb_fn, CALL0(mb_fn) == 0);
  DO(rmb_fn, CALL0(rmb_fn) == 0);
  EXPECT(remote[100] == 'b');

  DO(atm_cas, CALL(atm_cas, word, 0, 7, &was) == 0);
  EXPECT(was == 0 && *(uint64_t*)(void*)home == 7);
  remote[200] = 'c';
  lines[0] = remote + 200;
  DO(cflush, CALL(cflush, lines, 1) == 0);
  EXPECT(home[200] == 'c');
  remote[300] = 'd';
  DO(close_fb, CALL(close_fb, epoch) == 0);
  EXPECT(home[300] == 'd');
  DO(cmi_enb, CALL(cmi_enb, 0) == 0);
}

/* Exports a segment, imports it on the same node and uses both. */
static void live(struct life* life) {
  const cmi_acc rights = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC;
  cmi_ctl_cfg cfg;
  cmi_ds ds;
  cmi_seg home = CMI_SEG_INVALID, import = CMI_SEG_INVALID;
  void *home_view = NULL, *import_view = NULL;
  cmi_rseg* handle = NULL;
  cmi_token* token = NULL;
  size_t size = 0, length = sizeof size;

  DO(cmi_ctl, CALL(cmi_ctl, CMI_CTL_INFO, &cfg) == 0);
  EXPECT(kSize % cfg.info.prot_units == 0);
  DO(seg_get, (home = CALL(seg_get, kSize, 0)) > 0);
  DO(seg_at, (home_view = CALL(seg_at, home, NULL, 0)) != NULL);
  DO(seg_exp, (handle = CALL(seg_exp, home, 0)) != NULL);
  DO(attr_get, CALL(attr_get, home, CMI_ATTR_RSEG_SIZE, &size, &length) == 0);
  EXPECT(size >= sizeof(cmi_rseg));
  DO(tok_new, (token = CALL(tok_new, home, CMI_NADDR_ANY, rights)) != NULL);

  DO(seg_imp, (import = CALL(seg_imp, handle)) > 0);
  ds.token.tok = token;
  DO(seg_ctl, CALL(seg_ctl, import, CMI_SEG_TOKEN, &ds) == 0);
  DO(seg_at, (import_view = CALL(seg_at, import, NULL, 0)) != NULL);
  DO(seg_ctl, CALL(seg_ctl, import, CMI_SEG_STATUS, &ds) == 0);
  EXPECT(ds.status.st_flags == (CMI_SEG_ST_IMPORTED | CMI_SEG_ST_TOKEN_SET));
  share(life, home_view, import_view);
  if (life->outcome != LIVED) return;

  EXPECT(CALL0(evt_get) == NULL);
  DO(evt_get, cmi_get_error(life->ctxt) == CMI_ERR_NONE);
  DO(seg_dt, CALL(seg_dt, import, import_view) == 0);
  DO(seg_ctl, CALL(seg_ctl, import, CMI_SEG_RM, NULL) == 0);
  DO(tok_del, CALL(tok_del, token) == 0);
  DO(rseg_del, CALL(rseg_del, handle) == 0);
  DO(seg_dt, CALL(seg_dt, home, home_view) == 0);
  DO(seg_ctl, CALL(seg_ctl, home, CMI_SEG_RM, NULL) == 0);
}

/* A life from cmi_ini() to fini(), however far it gets. `heap` must be empty again. */
static struct life one_life(struct heap* heap) {
  struct life life = {.outcome = LIVED, .failures_before = failures_here};
  cmi_cbs callbacks = {.alloc = counting_alloc, .free = counting_free, .arg = heap};

  life.ctxt = cmi_ini(CMI_VERNO, &callbacks);
  if (judge(&life, "cmi_ini", life.ctxt != NULL)) live(&life);
  if (life.ctxt != NULL) {
    const struct life ended = life;
    const bool fine = CMIFN(life.ctxt, 10, fini)(life.ctxt) == 0;
    life.ctxt = NULL;
    judge(&life, "fini", fine);
    /* What fini() needs no memory for is not worth telling; the call that failed is. */
    if (ended.outcome != LIVED && life.outcome != WRONG) life = ended;
    life.ctxt = NULL;
  }
  if (heap->blocks != 0 || heap->bytes != 0 || heap->foreign_frees != 0) {
    fprintf(stderr, "%zu bytes in %zu blocks not freed, %u foreign frees\n", (size_t)heap->bytes,
            (size_t)heap->blocks, (unsigned)heap->foreign_frees);
    life.outcome = WRONG;
  }
  return life;
}

/* ---- All lives ------------------------------------------------------------------------------ */

static bool run(void) {
  const unsigned far_too_many = 10000;
  unsigned fail_at;
  struct heap heap = {0};
  struct life life = one_life(&heap);
  if (life.outcome != LIVED) return false;
  if (heap.allocations == 0) {
    fprintf(stderr, "the callbacks were never called\n");
    return false;
  }
  printf("a life of %u calls and %u allocations, every byte freed\n", life.calls,
         (unsigned)heap.allocations);

  for (fail_at = 1; fail_at < far_too_many; ++fail_at) {
    struct heap poor = {.fail_at = fail_at};
    life = one_life(&poor);
    if (life.outcome == WRONG) {
      fprintf(stderr, "with allocation %u failing\n", fail_at);
      return false;
    }
    if (life.outcome == LIVED) break;
    printf("allocation %u fails: %s, call %u, says CMI_ERR_NOMEM\n", fail_at, life.last_call,
           life.calls);
  }
  return fail_at > 1 && fail_at < far_too_many;
}

int main(void) {
  char folder[] = "/dev/shm/cmi-c11-XXXXXX";
  bool fine;
  if (mkdtemp(folder) == NULL || setenv("CMI_RUNTIME_DIR", folder, 1) != 0) {
    perror(folder);
    return 1;
  }
  fine = run();
  if (rmdir(folder) != 0) { /* not empty: something was left */
    perror(folder);
    fine = false;
  }
  printf("%s\n", fine ? "passed" : "FAILED");
  return fine ? 0 : 1;
}

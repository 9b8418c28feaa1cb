/*
 * What every statement of the conformance program may use. The program is a client and nothing
 * else: C11, POSIX, <cmi.h> and the library as installed.
 *
 * A statement is a function named after a row of doc/conformance.md, with underscores for the
 * hyphens, and some words. It runs in a process of its own on a node of its own, with a private
 * runtime folder; other processes, its peers, are started by it and do what it asks of them. What
 * does not hold is printed and fails the statement, which goes on; NEED() ends it. To add one,
 * write it into any file here: the list file finds it by its first line.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <cmi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* ---- Statements ----------------------------------------------------------------------------- */

struct statement {
  const char* name;
  void (*show)(void);
  struct statement* next;
};
void add_statement(struct statement* statement);

#define STATEMENT(id)                                            \
  static void id(void);                                          \
  __attribute__((constructor)) static void id##_is_there(void) { \
    static struct statement statement = {#id, id, NULL};         \
    add_statement(&statement);                                   \
  }                                                              \
  static void id(void)

/* ---- What holds ----------------------------------------------------------------------------- */

bool expect(bool holds, const char* what, const char* file, int line);
_Noreturn void give_up(void);         /* ends the statement as failed */
_Noreturn void skip(const char* why); /* cannot be shown here */

#define EXPECT(condition) ((void)expect((condition), #condition, __FILE__, __LINE__))
#define NEED(condition)                                                  \
  do {                                                                   \
    if (!expect((condition), #condition, __FILE__, __LINE__)) give_up(); \
  } while (0)

/* The call gives its failure value, and cmi_get_error() the cause. */
#define FAILS(call, failure, cause) \
  (EXPECT((call) == (failure)), EXPECT(cmi_get_error(ctxt) == (cause)))

/* ---- The statement's own process ------------------------------------------------------------ */

extern cmi_ctxt* ctxt; /* NULL: none. The end of the statement calls fini(). */

#define CALL(fn, ...) (CMIFN(ctxt, 10, fn)(ctxt, __VA_ARGS__))
#define CALL0(fn) (CMIFN(ctxt, 10, fn)(ctxt))

#define ALL_RIGHTS (CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC)
#define UNITS(n) ((n)*unit())

/* The bytes of a handle, a token or an address, as a client sends them. */
struct flat {
  union {
    cmi_base base;
    unsigned char bytes[1024];
  };
  size_t size;
};

void begin(void);                    /* makes the context, without callbacks */
void begin_with(cmi_cbs* callbacks); /* with */
void end(void);                      /* the last fini() */

struct cmi_cfg_info limits(void);
size_t unit(void);
size_t attribute(cmi_seg seg, int32_t name);
struct flat copy(const void* object, size_t size);

cmi_seg new_segment(size_t units);
char* attach(cmi_seg seg);
struct flat export_of(cmi_seg seg);
cmi_token* new_token(cmi_seg seg, cmi_acc rights);
struct flat token_of(cmi_seg seg, cmi_acc rights);
cmi_seg import(const struct flat* handle);
int set_token(cmi_seg seg, const struct flat* token);
int remove_segment(cmi_seg seg);
uint32_t status_of(cmi_seg seg);
/* The segment imported by its own maker, with a token of all rights, attached and enabled. */
struct loop {
  cmi_seg home, import;
  char *near, *far; /* views of the home and of the import */
};
struct loop loop(void);

/* Until condition(arg) is true; false after ten seconds. */
bool until(bool (*condition)(void* arg), void* arg);
/* The next event, waited for, or NULL after ten seconds. Goes back with give_back(). */
cmi_event* next_event(void);
void give_back(cmi_event* event);

void in_thread(void (*body)(void*), void* arg); /* and waits for its end */

/* ---- A heap that counts, for callbacks ------------------------------------------------------ */

struct heap {
  size_t blocks;  /* out at this moment */
  size_t asked;   /* allocations so far */
  size_t foreign; /* frees of what this heap did not give */
  bool empty;     /* from now on nothing is to be had */
};
cmi_cbs callbacks_of(struct heap* heap); /* the callbacks may run on any thread */

/* ---- Exceptions ----------------------------------------------------------------------------- */

struct fault {
  int32_t caught; /* a SIGSEGV */
  int32_t code, cause, segment;
  uint64_t address, pc;
};
struct fault fault_of_load(const void* at);
struct fault fault_of_store(void* at);                /* a byte of 1 */
struct fault fault_of_word(void* at, uint64_t value); /* 8 bytes */
struct fault fault_of_cas(void* at);
struct fault fault_of_cflush(void* at);
/* Whether it is a CMI exception for this cause; 0: no fault at all. */
bool is(struct fault fault, int cause);
uint64_t load_word(const void* at);
void store_word(void* at, uint64_t value);

/* ---- Peers: other processes, on the node of that name --------------------------------------- */

struct peer;
struct peer* peer_start(const char* node);
struct peer* peer_start_plain(const char* node); /* one that has no context yet */
pid_t peer_pid(const struct peer* peer);
void peer_signal(struct peer* peer, int number);
void peer_kill(struct peer* peer); /* and waits */
/* Waits for its end, or for fini() and its exit; the status of waitpid(). */
int peer_wait(struct peer* peer);
int peer_end(struct peer* peer);
/* Of the peer's last call. */
cmi_error peer_error(const struct peer* peer);
struct fault peer_fault(const struct peer* peer);

/* The same calls, made there. Addresses are the peer's. */
cmi_seg peer_seg_get(struct peer* peer, size_t size, int32_t flags);
cmi_seg peer_seg_imp(struct peer* peer, const struct flat* handle);
uint64_t peer_seg_at(struct peer* peer, cmi_seg seg, uint64_t addr, int32_t flags);
int peer_seg_dt(struct peer* peer, cmi_seg seg, uint64_t addr);
int peer_seg_rm(struct peer* peer, cmi_seg seg);
int peer_seg_ctl(struct peer* peer, cmi_seg seg, int32_t cmd, cmi_ds* ds);
int peer_set_token(struct peer* peer, cmi_seg seg, const struct flat* token);
int peer_seg_exp(struct peer* peer, cmi_seg seg, struct flat* handle);
int peer_tok_new(struct peer* peer, cmi_seg seg, cmi_acc rights, struct flat* token);
int peer_tok_del(struct peer* peer, const struct flat* token);
int peer_rseg_del(struct peer* peer, const struct flat* handle);
int peer_cmi_ctl(struct peer* peer, int32_t cmd, cmi_ctl_cfg* cfg);
int peer_cmi_enb(struct peer* peer, int enable);
int peer_mb(struct peer* peer);
int peer_wmb(struct peer* peer);
int peer_rmb(struct peer* peer);
int peer_open_fb(struct peer* peer);
int peer_flush_fb(struct peer* peer);
int peer_close_fb(struct peer* peer);
int peer_cflush(struct peer* peer, uint64_t addr);
int peer_atm_cas(struct peer* peer, uint64_t addr, uint64_t expected, uint64_t wanted,
                 uint64_t* was);
/* 8 bytes; after a fault the value is 0 and peer_fault() tells. */
uint64_t peer_load(struct peer* peer, uint64_t addr);
void peer_store(struct peer* peer, uint64_t addr, uint64_t value);
struct flat peer_naddr(struct peer* peer);
/* Stores to the words at addr for ever, so that it has stores to lose when it is killed. */
void peer_store_without_end(struct peer* peer, uint64_t addr);
/* Gives up what lets it open the node's files. False: it has no such rights to give up. */
bool peer_lose_rights(struct peer* peer);

struct told { /* an event as a peer got it; type 0: none came */
  int32_t type;
  cmi_seg segment; /* of QUIESCE, RESUME, STORE_FAILURE, HW */
  uint32_t count;  /* of segments, addresses or nodes */
  cmi_seg segments[16];
  uint64_t first_address, request;
};
struct told peer_event(struct peer* peer); /* waits as next_event(), and gives it back */
struct told told_of(const cmi_event* event);
/* Waits for an event and gives it back as one that could not be handled. False: that ended it. */
bool peer_fail_event(struct peer* peer);

/* A segment of four pages at home, imported by a peer on another node, which is enabled. */
struct shared {
  cmi_seg home;
  char* near;
  cmi_token* token;
  struct flat handle, key;
  struct peer* peer;
  cmi_seg import;
  uint64_t far;
};
struct shared share(cmi_acc rights);
struct shared share_flags(cmi_acc rights, int32_t flags);

#endif

/* Accesses that may raise an exception, and what the client's handler is told of it. */
#include <setjmp.h>
#include <signal.h>

#include "conform.h"

/* The sanitizers would look at the address before the access faults. */
#define RAW __attribute__((no_sanitize("address"), no_sanitize("undefined"), noinline))

RAW uint64_t load_word(const void* at) { return *(const volatile uint64_t*)at; }
RAW void store_word(void* at, uint64_t value) { *(volatile uint64_t*)at = value; }

static _Thread_local sigjmp_buf escape;
static _Thread_local struct fault last;

static void on_segv(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  last.caught = 1;
  last.code = info->si_code;
  last.cause = info->si_errno;
  last.address = (uint64_t)(uintptr_t)info->si_addr;
  if (info->si_code == SEGV_CMI) {
    last.segment = info->si_id;
    last.pc = (uint64_t)(uintptr_t)info->si_pc;
  }
  siglongjmp(escape, 1);
}

static struct fault fault_of(void (*access)(void*), void* at) {
  struct sigaction handler, former;
  memset(&handler, 0, sizeof handler);
  memset(&last, 0, sizeof last);
  handler.sa_sigaction = on_segv;
  handler.sa_flags = SA_SIGINFO;
  sigemptyset(&handler.sa_mask);
  NEED(sigaction(SIGSEGV, &handler, &former) == 0);
  if (sigsetjmp(escape, 1) == 0) access(at);
  NEED(sigaction(SIGSEGV, &former, NULL) == 0);
  return last;
}

RAW static void do_load(void* at) { (void)*(volatile unsigned char*)at; }
RAW static void do_store(void* at) { *(volatile unsigned char*)at = 1; }
static uint64_t word; /* what do_store_word stores: one statement, one storing thread */
static void do_store_word(void* at) { store_word(at, word); }
static void do_cas(void* at) {
  uint64_t was;
  (void)CALL(atm_cas, at, 0, 0, &was);
}
static void do_cflush(void* at) { (void)CALL(cflush, &at, 1); }

struct fault fault_of_load(const void* at) {
  union {
    const void* in;
    void* out;
  } address = {at};
  return fault_of(do_load, address.out);
}
struct fault fault_of_store(void* at) {
  return fault_of(do_store, at);
}
struct fault fault_of_word(void* at, uint64_t value) {
  word = value;
  return fault_of(do_store_word, at);
}
struct fault fault_of_cas(void* at) {
  return fault_of(do_cas, at);
}
struct fault fault_of_cflush(void* at) {
  return fault_of(do_cflush, at);
}

bool is(struct fault fault, int cause) {
  if (cause == 0) return !fault.caught;
  return fault.caught && fault.code == SEGV_CMI && fault.cause == cause;
}

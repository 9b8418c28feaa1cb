/* Coroutines with stacks of 16 KiB load and store to an import: what lies below each stack stays as
 * it was, and the stack itself has room left. */
#include <ucontext.h>

#include "case.h"

enum { kPages = 64, kStack = 16 << 10, kBelow = 16 << 10 };

static ucontext_t caller, coroutine;
static char* view;
static int storing;

static void touch(void) {
  int page;
  for (page = 0; page < kPages; page++) {
    volatile uint64_t* const word = (uint64_t*)(view + page * PAGE);
    if (storing) {
      word[1] = 5;
    } else {
      (void)word[0];
    }
  }
}

/* Bytes of the stack that nothing was written to, from its lower end. */
static int untouched(unsigned char* memory) {
  volatile int n = 0;
  memset(memory, 0xa5, kBelow + kStack);
  EXPECT(getcontext(&coroutine) == 0);
  coroutine.uc_stack.ss_sp = memory + kBelow;
  coroutine.uc_stack.ss_size = kStack;
  coroutine.uc_link = &caller;
  makecontext(&coroutine, touch, 0);
  EXPECT(swapcontext(&caller, &coroutine) == 0);
  while (memory[n] == 0xa5) n++;
  EXPECT(n >= kBelow);
  return n - kBelow;
}

int main(void) {
  struct home home = start_home("home", kPages, 0, NULL);
  unsigned char* const memory = malloc(kBelow + kStack);
  EXPECT(memory != NULL);
  begin("peer");
  view = attach(import(&home));
  for (storing = 0; storing < 2; storing++) EXPECT(untouched(memory) > 0);
  EXPECT(cmi_wmb() == 0);
  free(memory);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}

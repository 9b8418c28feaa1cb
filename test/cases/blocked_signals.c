/* A thread that has all signals blocked, as servers' workers have, loads from an import. */
#include "case.h"

static char* view;

static void* run(void* unused) {
  sigset_t all;
  uint64_t word = 0;
  sigfillset(&all);
  EXPECT(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
  EXPECT(CALL(ini_th)(ctxt) == 0);
  EXPECT(CALL(cmi_enb)(ctxt, 1) == 0);
  EXPECT(load(view + 3 * PAGE, &word) == 0 && word == 3);
  EXPECT(store(view + 3 * PAGE, 4) == 0 && cmi_wmb() == 0);
  EXPECT(CALL(fini)(ctxt) == 0);
  return unused;
}

int main(void) {
  struct home home = start_home("home", 8, 0, NULL);
  pthread_t thread;
  begin("peer");
  view = attach(import(&home));
  EXPECT(pthread_create(&thread, NULL, run, NULL) == 0);
  EXPECT(pthread_join(thread, NULL) == 0);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}

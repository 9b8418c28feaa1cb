/* exit() by one thread, with fini and without, while another stores to an import all the time: the
 * process ends with its status, and the home's own loads go on. */
#include "case.h"

enum { kPages = 16, kTries = 5 };

static struct home home;

static long all_pages(cmi_seg seg, char* view, char letter) {
  int page, bad = 0;
  (void)seg;
  (void)letter;
  for (page = 0; page < kPages; page++) bad += load(view + page * PAGE, NULL) != 0;
  return bad;
}

static volatile sig_atomic_t working;
static void* work(void* argument) {
  char* const view = argument;
  uint64_t i;
  EXPECT(CALL(ini_th)(ctxt) == 0);
  EXPECT(CALL(cmi_enb)(ctxt, 1) == 0);
  for (i = 0;; i++) {
    *(volatile uint64_t*)(view + i % kPages * PAGE + 8) = i;
    if (i % 50 == 49) (void)cmi_wmb();
    if (i == 200) working = 1;
  }
  return NULL;
}

static void leave(void* with_fini) {
  pthread_t worker;
  long began = now_ms();
  begin("peer");
  EXPECT(pthread_create(&worker, NULL, work, attach(import(&home))) == 0);
  while (!working && now_ms() - began < 20000) pause_ms(1);
  EXPECT(working);
  if (with_fini != NULL) EXPECT(CALL(fini)(ctxt) == 0);
  exit(0);
}

int main(void) {
  int try, bad = 0;
  home = start_home("home", kPages, 0, all_pages);
  for (try = 0; try < 2 * kTries; try++) {
    const int status = in_child(leave, try % 2 == 0 ? &home : NULL);
    if (status != 0) fprintf(stderr, "try %d: status %x\n", try, (unsigned)status);
    bad += status != 0;
    EXPECT(command(&home, 'l') == 0);
  }
  EXPECT(bad == 0);
  finish_home(&home);
  return 0;
}

/* A home that is silent for longer than the reconfiguration timeout, and a page stored to: a load
 * raises TRANSIENT after that timeout; where the home's pages are mapped, they are there as long as
 * cached ones would be. atm_cas, flush_fb, cflush, a barrier and seg_dt wait until
 * the home answers again, and have done then what they say: no store is lost or in doubt. */
#include "case.h"

enum { kWays = 5, kTimeout = 100, kSilence = 500, kMost = 8000 };

static cmi_seg seg;
static char* view;
static cmi_fb batch;

static int call(int way) {
  uint64_t before = 9;
  void* lines[1];
  switch (way) {
    case 0:
      return CALL(atm_cas)(ctxt, (uint64_t*)(view + PAGE + 8), 0, 1, &before);
    case 1:
      return CALL(flush_fb)(ctxt, batch);
    case 2:
      lines[0] = view;
      return CALL(cflush)(ctxt, lines, 1);
    case 3:
      return cmi_wmb();
    default:
      return CALL(seg_dt)(ctxt, seg, view);
  }
}

static pid_t stopped;
static void* wake(void* unused) {
  pause_ms(kSilence);
  EXPECT(kill(stopped, SIGCONT) == 0);
  return unused;
}

static long word_of(cmi_seg s, char* at_home, char letter) {
  (void)s;
  return (long)((volatile uint64_t*)at_home)[letter == 's' ? PAGE / 8 + 1 : 0];
}

static void one_way(void* argument) {
  const int way = *(int*)argument;
  struct home home = start_home("home", 64, 0, word_of);
  pthread_t waker;
  cmi_ctl_cfg timeout;
  long began, raised;
  uint64_t word = 0;
  begin("peer");
  seg = import(&home);
  view = attach(seg);
  memset(&timeout, 0, sizeof timeout);
  timeout.rcfg.rcfg_tout = kTimeout;
  EXPECT(CALL(cmi_ctl)(ctxt, CMI_CTL_RECONF_TOUT, &timeout) == 0);
  EXPECT(load(view, NULL) == 0 && load(view + PAGE, NULL) == 0);
  batch = CALL(open_fb)(ctxt);
  EXPECT(store(view, 77) == 0);
  stopped = home.pid;
  stop_home(&home);
  raised = load(view + 48 * PAGE, &word);
  EXPECT(raised == CMI_ERROR_TRANSIENT || (may_map() && raised == 0 && word == 48));
  EXPECT(pthread_create(&waker, NULL, wake, NULL) == 0);
  began = now_ms();
  EXPECT(call(way) == 0);
  EXPECT(now_ms() - began < kMost);
  EXPECT(pthread_join(waker, NULL) == 0);
  EXPECT(command(&home, 'w') == 77);
  if (way == 0) EXPECT(command(&home, 's') == 1);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
}

int main(void) {
  int way;
  for (way = 0; way < kWays; way++) EXPECT(in_child(one_way, &way) == 0);
  return 0;
}

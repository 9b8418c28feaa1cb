/* A swap at a home that is stopped for a while: what atm_cas says is what has become of the word.
 */
#include "case.h"

static long word_of(cmi_seg seg, char* view, char letter) {
  (void)seg;
  (void)letter;
  return (long)*(volatile uint64_t*)view;
}

static pid_t stopped;
static void* wake(void* unused) {
  pause_ms(700);
  EXPECT(kill(stopped, SIGCONT) == 0);
  return unused;
}

static int swap(char* at, uint64_t from, uint64_t to, uint64_t* before) {
  return CALL(atm_cas)(ctxt, (uint64_t*)at, from, to, before);
}

int main(void) {
  struct home home = start_home("home", 2, 0, word_of);
  cmi_ctl_cfg wait;
  pthread_t waker;
  uint64_t before = 77;
  char* view;
  begin("peer");
  view = attach(import(&home));
  EXPECT(load(view, NULL) == 0);
  memset(&wait, 0, sizeof wait);
  wait.ctl_cfg_rcfg_tout = 5000;
  EXPECT(CALL(cmi_ctl)(ctxt, CMI_CTL_RECONF_TOUT, &wait) == 0);
  stopped = home.pid;
  stop_home(&home);
  EXPECT(pthread_create(&waker, NULL, wake, NULL) == 0);
  EXPECT(swap(view, 0, 1, &before) == 0 && before == 0);
  EXPECT(command(&home, 'w') == 1);
  EXPECT(swap(view, 0, 2, &before) == 0 && before == 1);
  EXPECT(command(&home, 'w') == 1);
  EXPECT(pthread_join(waker, NULL) == 0);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}

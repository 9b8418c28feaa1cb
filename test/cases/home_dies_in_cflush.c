/* The home dies while cflush waits for it: an exception says so, or an error of cflush, and the
 * event follows; nothing hangs. Where the home's pages are mapped, the store is in its memory
 * already and cflush does not wait; the accesses after the death raise the exception. */
#include "case.h"

static pid_t stopped;
static void* end_it(void* unused) {
  pause_ms(300);
  EXPECT(kill(stopped, SIGKILL) == 0);
  return unused;
}

static sigjmp_buf out;
static volatile sig_atomic_t raised;
static void leave(int number, siginfo_t* info, void* context) {
  (void)number;
  (void)context;
  raised = info->si_code == SEGV_CMI ? info->si_errno : -1;
  siglongjmp(out, 1);
}

int main(void) {
  struct home home = start_home("home", 2, CMI_SEG_CLIENT_CONSIST, NULL);
  struct sigaction handler;
  pthread_t killer;
  long began;
  char* view;
  begin("peer");
  view = attach(import(&home));
  EXPECT(load(view, NULL) == 0);
  memset(&handler, 0, sizeof handler);
  handler.sa_sigaction = leave;
  handler.sa_flags = SA_SIGINFO;
  EXPECT(sigaction(SIGSEGV, &handler, NULL) == 0);
  stopped = home.pid;
  stop_home(&home);
  /* After that, or the timer may bring it home first; such a segment needs no leave to store. */
  EXPECT(store(view, 1) == 0);
  EXPECT(pthread_create(&killer, NULL, end_it, NULL) == 0);
  began = now_ms();
  if (sigsetjmp(out, 1) == 0) {
    void* lines[1];
    lines[0] = view;
    if (CALL(cflush)(ctxt, lines, 1) == 0) {
      EXPECT(may_map());
      while (now_ms() - began < 9000) (void)*(volatile char*)view;
    }
  }
  EXPECT(raised == CMI_ERROR_SINVAL);
  EXPECT(now_ms() - began < 9000);
  EXPECT(pthread_join(killer, NULL) == 0);
  EXPECT(waitpid(home.pid, NULL, 0) == home.pid);
  return 0;
}

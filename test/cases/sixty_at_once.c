/* Sixty processes that start at once, each of a node of its own, and each loads as soon as it is
 * in: all of them get in, with the patience that an import has by default. */
#include "case.h"

enum { kProcesses = 60 };

int main(void) {
  struct home home = start_home("home", kProcesses, 0, NULL);
  pid_t processes[kProcesses];
  int go[2], i, status, failed = 0;
  char byte;
  EXPECT(pipe(go) == 0);
  for (i = 0; i < kProcesses; i++) {
    processes[i] = fork();
    EXPECT(processes[i] >= 0);
    if (processes[i] == 0) {
      char name[16];
      uint64_t word = 0;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      snprintf(name, sizeof name, "peer%d", i);
      close(go[1]);
      EXPECT(read(go[0], &byte, 1) == 0); /* the end of the pipe starts all of them */
      begin(name);
      EXPECT(load(attach(import(&home)) + i * PAGE, &word) == 0);
      EXPECT(word == (uint64_t)i);
      EXPECT(CALL(fini)(ctxt) == 0);
      _exit(0);
    }
  }
  close(go[0]);
  close(go[1]);
  for (i = 0; i < kProcesses; i++) {
    EXPECT(waitpid(processes[i], &status, 0) == processes[i]);
    failed += status != 0;
  }
  EXPECT(failed == 0);
  finish_home(&home);
  return 0;
}

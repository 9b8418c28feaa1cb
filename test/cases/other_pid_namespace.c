/* The first process of a pid namespace, and an ordinary user outside, who may not look into the
 * machine's own first process: cmiadm shows the right one. CMIADM names the program. */
#include <grp.h>
#include <sched.h>

#include "case.h"

enum { kSomebody = 65534 };

static void become_somebody(void) {
  EXPECT(setgroups(0, NULL) == 0 && setresgid(kSomebody, kSomebody, kSomebody) == 0);
  EXPECT(setresuid(kSomebody, kSomebody, kSomebody) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
}

/* The parent of the first process of a new namespace. */
static void be_first(const int* ends) {
  pid_t child;
  if (unshare(CLONE_NEWPID) != 0) _exit(SKIPPED);
  child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    become_somebody();
    begin("box");
    EXPECT(getpid() == 1 && write(ends[3], "b", 1) == 1);
    for (;;) pause();
  }
  EXPECT(write(ends[1], &child, sizeof child) == sizeof child);
  EXPECT(waitpid(child, NULL, 0) == child);
}

int main(void) {
  char line[600], expected[40];
  int ends[4], program, found = 0;
  pid_t parent, child = 0;
  char byte;
  FILE* listed;
  if (getenv("CMIADM") == NULL) skip("CMIADM names no cmiadm");
  if (geteuid() != 0) skip("only root makes processes of another user");
  EXPECT(chown(getenv("CMI_RUNTIME_DIR"), kSomebody, kSomebody) == 0);
  EXPECT(pipe(ends) == 0 && pipe(ends + 2) == 0);
  program = open(getenv("CMIADM"), O_RDONLY);
  parent = fork();
  EXPECT(program >= 0 && parent >= 0);
  if (parent == 0) {
    be_first(ends);
    _exit(0);
  }
  close(ends[1]);
  close(ends[3]);
  if (read(ends[0], &child, sizeof child) != sizeof child) skip("no pid namespace can be made");
  EXPECT(read(ends[2], &byte, 1) == 1);
  become_somebody();
  snprintf(line, sizeof line, "/proc/self/fd/%d list --json", program);
  snprintf(expected, sizeof expected, "\"pid\":%d,", child);
  listed = popen(line, "r");
  EXPECT(listed != NULL);
  while (fgets(line, sizeof line, listed) != NULL) found += strstr(line, expected) != NULL;
  EXPECT(pclose(listed) == 0);
  EXPECT(found > 0);
  EXPECT(kill(child, SIGKILL) == 0);
  return 0;
}

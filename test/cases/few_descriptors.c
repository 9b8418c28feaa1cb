/* A home with two to six free descriptors and healthy importers: newcomers, three at once, get in
 * or are refused, and the others lose nothing. */
#include <dirent.h>

#include "case.h"

enum { kOthers = 2, kNewcomers = 3, kRounds = 20 };

static int descriptors_of(pid_t process) {
  char path[64];
  DIR* all;
  int n = -2; /* "." and ".." */
  snprintf(path, sizeof path, "/proc/%d/fd", process);
  all = opendir(path);
  EXPECT(all != NULL);
  while (readdir(all) != NULL) n++;
  closedir(all);
  return n;
}

/* Stores and publishes for as long as the newcomer tries. */
static void work(const struct home* home, int me, int from, int to) {
  char name[16], byte;
  char* view;
  int round;
  snprintf(name, sizeof name, "old%d", me);
  begin(name);
  view = attach(import(home));
  EXPECT(load(view + me * PAGE, NULL) == 0);
  EXPECT(write(to, "i", 1) == 1);
  EXPECT(read(from, &byte, 1) == 1);
  for (round = 0; round < kRounds; round++) {
    EXPECT(store(view + me * PAGE + 8, (uint64_t)round) == 0);
    EXPECT(cmi_wmb() == 0);
    pause_ms(50);
  }
  EXPECT(CALL(fini)(ctxt) == 0);
}

/* 0: it is in, 2: it is refused. */
static pid_t come(const struct home* home, int me) {
  const pid_t child = fork();
  char name[16];
  EXPECT(child >= 0);
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  snprintf(name, sizeof name, "new%d", me);
  begin(name);
  _exit(cmi_ofi_find(ctxt, getenv("CASE_FOLDER"), home->name, 0) == CMI_SEG_INVALID ? 2 : 0);
}

static void with_free_descriptors(int free_ones) {
  struct home home = start_home("home", 8, 0, NULL);
  int ready[2], go[2], i, status;
  pid_t others[kOthers], newcomers[kNewcomers];
  struct rlimit limit;
  char byte;
  EXPECT(pipe(ready) == 0 && pipe(go) == 0);
  for (i = 0; i < kOthers; i++) {
    others[i] = fork();
    EXPECT(others[i] >= 0);
    if (others[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      work(&home, i, go[0], ready[1]);
      _exit(0);
    }
    EXPECT(read(ready[0], &byte, 1) == 1);
  }
  limit.rlim_cur = limit.rlim_max = (rlim_t)(descriptors_of(home.pid) + free_ones);
  EXPECT(prlimit(home.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
  EXPECT(write(go[1], "gg", kOthers) == kOthers);
  for (i = 0; i < kNewcomers; i++) newcomers[i] = come(&home, i);
  for (i = 0; i < kNewcomers; i++) {
    EXPECT(waitpid(newcomers[i], &status, 0) == newcomers[i]);
    EXPECT(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
  }
  for (i = 0; i < kOthers; i++) EXPECT(waitpid(others[i], &status, 0) == others[i] && status == 0);
  finish_home(&home);
}

int main(void) {
  int free_ones;
  for (free_ones = 2; free_ones <= 6; free_ones += 2) with_free_descriptors(free_ones);
  return 0;
}

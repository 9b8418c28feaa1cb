/* A home without a free descriptor, and newcomers that try for as long as they may: the home uses a
 * small part of a processor meanwhile, its importers go on, none of them loses anything, and every
 * newcomer is refused. */
#include <dirent.h>

#include "case.h"

enum { kNewcomers = 3, kTries = 2, kMostShare = 25 }; /* per cent of a processor */

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

/* Milliseconds of processor time that the process has used. */
static long used_by(pid_t process) {
  char path[64], text[1024];
  unsigned long user = 0, system = 0;
  FILE* file;
  size_t n;
  snprintf(path, sizeof path, "/proc/%d/stat", process);
  file = fopen(path, "r");
  EXPECT(file != NULL);
  n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = '\0';
  EXPECT(sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                &user, &system) == 2);
  return (long)(user + system) * 1000 / sysconf(_SC_CLK_TCK);
}

static void come(void* argument) {
  const struct home* home = argument;
  char name[32];
  int i;
  snprintf(name, sizeof name, "new%d", (int)getpid());
  begin(name);
  for (i = 0; i < kTries; i++) {
    EXPECT(cmi_ofi_find(ctxt, getenv("CASE_FOLDER"), home->name, 0) == CMI_SEG_INVALID);
  }
}

int main(void) {
  struct home home;
  struct rlimit limit;
  pid_t newcomers[kNewcomers];
  char* view;
  int i, status, left = kNewcomers;
  long began, used;
  uint64_t round = 0;
  EXPECT(setenv("CMI_JOIN_TIMEOUT", "2000", 1) == 0); /* ms */
  home = start_home("home", 2, 0, NULL);
  begin("peer");
  view = attach(import(&home));
  EXPECT(load(view, NULL) == 0);
  limit.rlim_cur = limit.rlim_max = (rlim_t)descriptors_of(home.pid) + 2;
  EXPECT(prlimit(home.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
  began = now_ms();
  used = used_by(home.pid);
  for (i = 0; i < kNewcomers; i++) {
    newcomers[i] = fork();
    EXPECT(newcomers[i] >= 0);
    if (newcomers[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      come(&home);
      _exit(0);
    }
  }
  while (left > 0) {
    EXPECT(store(view, ++round) == 0);
    EXPECT(cmi_wmb() == 0);
    EXPECT(load(view + PAGE, NULL) == 0);
    pause_ms(50);
    for (i = 0; i < kNewcomers; i++) {
      if (newcomers[i] == 0 || waitpid(newcomers[i], &status, WNOHANG) == 0) continue;
      EXPECT(status == 0);
      newcomers[i] = 0;
      left--;
    }
  }
  used = used_by(home.pid) - used;
  EXPECT(used * 100 <= (now_ms() - began) * kMostShare);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}

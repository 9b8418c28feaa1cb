/*
 * main(), and the runner: `conformance list`, `conformance run [NAME...]`, `conformance one NAME`.
 * `run` starts `one` for each statement and prints TAP; `one` gives the statement its folder and
 * its node, and sees to it that nothing is left. Exit status: 0 passed, 77 skipped, others failed.
 */
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform.h"
#include "peer.h"

enum { kSkipped = 77, kSeconds = 60 };

static struct statement* statements;
static bool all_holds = true;
static const char* program;
static char folder[] = "/dev/shm/cmi-conform-XXXXXX";
static pid_t owner; /* of the folder */

const char* program_path(void) { return program; }

void add_statement(struct statement* statement) {
  struct statement** at = &statements;
  while (*at != NULL && strcmp((*at)->name, statement->name) < 0) at = &(*at)->next;
  statement->next = *at;
  *at = statement;
}

bool expect(bool holds, const char* what, const char* file, int line) {
  if (!holds) {
    printf("# %s:%d: does not hold: %s (error %d)\n", file, line, what, (int)cmi_get_error(NULL));
    fflush(stdout);
    all_holds = false;
  }
  return holds;
}

_Noreturn void give_up(void) { exit(1); }

_Noreturn void skip(const char* why) {
  printf("# skipped: %s\n", why);
  exit(kSkipped);
}

static int remove_entry(const char* path, const struct stat* st, int kind, struct FTW* where) {
  (void)st, (void)kind, (void)where;
  return remove(path);
}

static void clean_up(void) {
  if (getpid() != owner) return;
  kill_peers();
  nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Nothing of a node may be left once its last process has ended in good order. What a killed one
 * left goes with the next that comes to its node, if there is one. */
static int count_entry(const char* path, const struct stat* st, int kind, struct FTW* where) {
  (void)st, (void)kind;
  if (where->level > 0) expect(false, path, "left in the runtime folder", 0);
  return 0;
}

static int one(const struct statement* statement) {
  owner = getpid();
  alarm(kSeconds);
  if (mkdtemp(folder) == NULL || setenv("CMI_RUNTIME_DIR", folder, 1) != 0 ||
      setenv("CMI_NODE", "home", 1) != 0 || atexit(clean_up) != 0) {
    perror(folder);
    return 1;
  }
  statement->show();
  if (ctxt != NULL) end();
  end_peers();
  if (peers_ended_in_order()) nftw(folder, count_entry, 8, FTW_PHYS);
  return all_holds ? 0 : 1;
}

static int run_one(const char* name) {
  int status;
  const pid_t child = fork();
  if (child == 0) {
    execl(program, program, "one", name, (char*)NULL);
    _exit(127);
  }
  while (child < 0 || waitpid(child, &status, 0) != child) {
    if (child < 0 || errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const struct statement* find(const char* name) {
  const struct statement* s = statements;
  while (s != NULL && strcmp(s->name, name) != 0) s = s->next;
  return s;
}

/* All of them, or those that are named. */
static int run(int count, char** names) {
  const struct statement* s;
  int number = 0, failed = 0, planned = count;
  if (count == 0) {
    for (s = statements; s != NULL; s = s->next) ++planned;
  }
  printf("TAP version 13\n1..%d\n", planned);
  for (s = statements; number < planned; ++number) {
    const char* name = count == 0 ? s->name : names[number];
    int status;
    fflush(stdout);
    status = find(name) != NULL ? run_one(name) : -1;
    if (status == 0) {
      printf("ok %d - %s\n", number + 1, name);
    } else if (status == kSkipped) {
      printf("ok %d - %s # SKIP\n", number + 1, name);
    } else {
      printf("not ok %d - %s # %s %d\n", number + 1, name, status < 0 ? "signal" : "status",
             status < 0 ? -status : status);
      ++failed;
    }
    if (count == 0) s = s->next;
  }
  return failed == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  program = argv[0];
  signal(SIGPIPE, SIG_IGN);
  if (argc == 3 && strcmp(argv[1], "peer") == 0) return serve(atoi(argv[2]));
  if (argc == 2 && strcmp(argv[1], "list") == 0) {
    const struct statement* s;
    for (s = statements; s != NULL; s = s->next) puts(s->name);
    return 0;
  }
  if (argc >= 2 && strcmp(argv[1], "run") == 0) return run(argc - 2, argv + 2);
  if (argc == 3 && strcmp(argv[1], "one") == 0) {
    const struct statement* s = find(argv[2]);
    if (s != NULL) {
      const int result = one(s);
      fflush(stdout);
      return result;
    }
    fprintf(stderr, "there is no statement %s\n", argv[2]);
    return 1;
  }
  fprintf(stderr, "usage: %s list | run [NAME ...] | one NAME\n", argv[0]);
  return 2;
}

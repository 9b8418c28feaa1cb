#include "case.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

cmi_ctxt* ctxt;

enum { kPatience = 30000 };

void expect(int ok, const char* what, const char* file, int line) {
  if (ok) return;
  fprintf(stderr, "%s:%d: expected %s (last error: %s)\n", file, line, what,
          cmi_ofi_error_text(ctxt));
  exit(1);
}

void skip(const char* why) {
  printf("skipped: %s\n", why);
  exit(SKIPPED);
}

static void say_fault(int number, siginfo_t* info, void* context);

int may_map(void) {
  const char* const local = getenv("CMI_LOCAL");
  return local == NULL || strcmp(local, "off") != 0;
}

void begin(const char* node) {
  struct sigaction handler;
  setenv("CMI_NODE", node, 1);
  memset(&handler, 0, sizeof handler);
  handler.sa_sigaction = say_fault;
  handler.sa_flags = SA_SIGINFO;
  EXPECT(sigaction(SIGSEGV, &handler, NULL) == 0);
  ctxt = cmi_ini(CMI_VERNO, NULL);
  EXPECT(ctxt != NULL);
}

static const char* folder(void) {
  const char* name = getenv("CASE_FOLDER");
  EXPECT(name != NULL);
  return name;
}

static void be_home(struct home* home, int pages, int flags, answer commands) {
  cmi_seg seg;
  char *view, letter;
  int page;
  long reply = 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  begin(home->name);
  seg = CALL(seg_get)(ctxt, (size_t)pages * PAGE, flags);
  EXPECT(seg != CMI_SEG_INVALID);
  view = CALL(seg_at)(ctxt, seg, NULL, 0);
  EXPECT(view != NULL);
  for (page = 0; page < pages; page++) *(uint64_t*)(view + page * PAGE) = (uint64_t)page;
  EXPECT(cmi_wmb() == 0);
  EXPECT(cmi_ofi_offer(ctxt, folder(), home->name, CALL(seg_exp)(ctxt, seg, 0),
                       CALL(tok_new)(ctxt, seg, CMI_NADDR_ANY,
                                     CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC)) == 0);
  EXPECT(write(home->socket, &reply, sizeof reply) == sizeof reply);
  while (read(home->socket, &letter, 1) == 1 && letter != '.') {
    reply = commands(seg, view, letter);
    EXPECT(write(home->socket, &reply, sizeof reply) == sizeof reply);
  }
  EXPECT(CALL(fini)(ctxt) == 0);
  _exit(0);
}

static long reply_of(struct home* home) {
  long reply;
  EXPECT(read(home->socket, &reply, sizeof reply) == sizeof reply);
  return reply;
}

struct home start_home(const char* name, int pages, int flags, answer commands) {
  struct home home;
  int ends[2];
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  home.name = name;
  home.pid = fork();
  EXPECT(home.pid >= 0);
  home.socket = ends[home.pid == 0];
  close(ends[home.pid != 0]);
  if (home.pid == 0) be_home(&home, pages, flags, commands);
  (void)reply_of(&home);
  return home;
}

long command(struct home* home, char letter) {
  EXPECT(write(home->socket, &letter, 1) == 1);
  return reply_of(home);
}

void stop_home(const struct home* home) {
  int status = 0;
  EXPECT(kill(home->pid, SIGSTOP) == 0);
  EXPECT(waitpid(home->pid, &status, WUNTRACED) == home->pid && WIFSTOPPED(status));
}

void finish_home(struct home* home) {
  int status = -1;
  EXPECT(write(home->socket, ".", 1) == 1);
  EXPECT(waitpid(home->pid, &status, 0) == home->pid && status == 0);
}

cmi_seg import(const struct home* home) {
  const cmi_seg seg = cmi_ofi_find(ctxt, folder(), home->name, kPatience);
  EXPECT(seg != CMI_SEG_INVALID);
  EXPECT(CALL(cmi_enb)(ctxt, 1) == 0);
  return seg;
}

char* attach(cmi_seg seg) {
  char* const view = CALL(seg_at)(ctxt, seg, NULL, 0);
  EXPECT(view != NULL);
  return view;
}

static _Thread_local sigjmp_buf back;
static _Thread_local volatile sig_atomic_t guarded, cause;

static void say_fault(int number, siginfo_t* info, void* context) {
  (void)context;
  cause = info->si_code == SEGV_CMI ? info->si_errno : -1;
  if (guarded) siglongjmp(back, 1);
  fprintf(stderr, "an access that nobody guards raised %d\n", (int)cause);
  signal(number, SIG_DFL);
}

int load(const char* at, uint64_t* word) {
  uint64_t value = 0;
  cause = 0;
  guarded = 1;
  if (sigsetjmp(back, 1) == 0) value = *(const volatile uint64_t*)at;
  guarded = 0;
  if (word != NULL && cause == 0) *word = value;
  return cause;
}

int store(char* at, uint64_t word) {
  cause = 0;
  guarded = 1;
  if (sigsetjmp(back, 1) == 0) *(volatile uint64_t*)at = word;
  guarded = 0;
  return cause;
}

long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void pause_ms(int ms) {
  const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&t, NULL);
}

int in_child(void (*body)(void* argument), void* argument) {
  int status = -1;
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(argument);
    _exit(0);
  }
  EXPECT(waitpid(child, &status, 0) == child);
  return status;
}

int set_network(int up) {
  struct ifreq lo;
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  int ok;
  memset(&lo, 0, sizeof lo);
  strcpy(lo.ifr_name, "lo");
  ok = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0;
  lo.ifr_flags = (short)(up ? lo.ifr_flags | IFF_UP : lo.ifr_flags & ~IFF_UP);
  ok = ok && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
  close(fd);
  return ok;
}

void take_own_network(void) {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    skip("no network namespace can be made");
  }
  EXPECT(set_network(1));
}

/* What libfabric's shm provider does with operations that it has to refuse, and with a peer that is
 * killed. Two processes of one machine; nothing but libfabric is needed:
 *
 *   cc -O2 -o shm_refused shm_refused.c -lfabric
 *   ./shm_refused             each case, with offsets and with virtual addresses
 *   ./shm_refused offset closed_read     one case
 *
 * Each case runs in two children of its own, which are killed after PATIENCE seconds. A line says
 * what the initiator saw: "error N", "success, data moved", "success, nothing moved", "never ends",
 * "died of signal N". What a correct provider says stands in the last column. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 4096, PATIENCE = 5 };

struct side {
  struct fi_info* info;
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_av* av;
  struct fid_cq* cq;
  struct fid_ep* ep;
};

struct offer { /* from the target to the initiator */
  size_t name_length;
  char name[128];
  uint64_t address, key;
};

static void must(const char* what, int64_t result) {
  if (result >= 0) return;
  printf("%s: %s", what, fi_strerror((int)-result));
  fflush(stdout);
  _exit(0);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void open_side(struct side* s, int virtual_addresses) {
  struct fi_info* hints = fi_allocinfo();
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT;
  hints->domain_attr->mr_mode = virtual_addresses ? FI_MR_VIRT_ADDR : 0;
  hints->fabric_attr->prov_name = strdup("shm");
  must("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &s->info));
  must("fi_fabric", fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
  must("fi_domain", fi_domain(s->fabric, s->info, &s->domain, NULL));
  struct fi_av_attr av = {.type = FI_AV_TABLE, .count = 4};
  must("fi_av_open", fi_av_open(s->domain, &av, &s->av, NULL));
  struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = 64};
  must("fi_cq_open", fi_cq_open(s->domain, &cq, &s->cq, NULL));
  must("fi_endpoint", fi_endpoint(s->domain, s->info, &s->ep, NULL));
  must("fi_ep_bind", fi_ep_bind(s->ep, &s->av->fid, 0));
  must("fi_ep_bind", fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
  must("fi_enable", fi_enable(s->ep));
}

static void target(const char* which, int virtual_addresses, int to, int from) {
  static char memory[SIZE];
  memset(memory, 'T', sizeof memory);
  struct side s = {0};
  open_side(&s, virtual_addresses);
  struct fid_mr* mr;
  const uint64_t rights =
      strcmp(which, "readonly_write") == 0 ? FI_REMOTE_READ : FI_REMOTE_READ | FI_REMOTE_WRITE;
  must("fi_mr_reg", fi_mr_reg(s.domain, memory, sizeof memory, rights, 0, 77, 0, &mr, NULL));
  struct offer o = {.name_length = sizeof o.name};
  must("fi_getname", fi_getname(&s.ep->fid, o.name, &o.name_length));
  o.key = fi_mr_key(mr);
  o.address = (s.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? (uintptr_t)memory : 0;
  if (strncmp(which, "closed", 6) == 0) must("fi_close", fi_close(&mr->fid));
  if (write(to, &o, sizeof o) != sizeof o) _exit(1);
  for (;;) { /* progress, until killed or told to end; what was written is told */
    struct fi_cq_entry e;
    (void)fi_cq_read(s.cq, &e, 1);
    struct pollfd p = {from, POLLIN, 0};
    if (poll(&p, 1, 0) <= 0) continue;
    char moved = 0;
    for (size_t i = 0; i < sizeof memory; ++i) moved |= memory[i] == 'I';
    if (write(to, &moved, 1) != 1) _exit(1);
    _exit(0);
  }
}

static void initiator(const char* which, int virtual_addresses, int to, int from, pid_t peer) {
  static char memory[SIZE];
  memset(memory, 'I', sizeof memory);
  struct offer o;
  if (read(from, &o, sizeof o) != sizeof o) {
    printf("the target could not begin");
    fflush(stdout);
    _exit(0);
  }
  struct side s = {0};
  open_side(&s, virtual_addresses);
  fi_addr_t addr;
  must("fi_av_insert", fi_av_insert(s.av, o.name, 1, &addr, 0, NULL) == 1 ? 0 : -FI_EINVAL);
  if (strncmp(which, "killed", 6) == 0) {
    kill(peer, SIGKILL);
    while (kill(peer, 0) == 0 && usleep(1000) == 0) {
      char state = 0; /* a zombie is dead enough */
      char path[64];
      snprintf(path, sizeof path, "/proc/%d/stat", (int)peer);
      FILE* f = fopen(path, "r");
      if (f == NULL || fscanf(f, "%*d %*s %c", &state) != 1) state = 'Z';
      if (f != NULL) fclose(f);
      if (state == 'Z') break;
    }
  }
  struct fi_context context;
  struct iovec local = {memory, sizeof memory};
  const int beyond = strcmp(which, "bounds_read") == 0;
  struct fi_rma_iov remote = {o.address + (beyond ? (1 << 20) : 0), sizeof memory, o.key};
  struct fi_msg_rma m = {.msg_iov = &local,
                         .iov_count = 1,
                         .addr = addr,
                         .rma_iov = &remote,
                         .rma_iov_count = 1,
                         .context = &context};
  struct fi_msg send = {.msg_iov = &local, .iov_count = 1, .addr = addr, .context = &context};
  local.iov_len = strcmp(which, "killed_send") == 0 ? 64 : sizeof memory;
  const double end = seconds() + PATIENCE - 1;
  int64_t result = -FI_EAGAIN;
  while (result == -FI_EAGAIN && seconds() < end) {
    if (strstr(which, "_send") != NULL) {
      result = fi_sendmsg(s.ep, &send, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    } else if (strstr(which, "_write") != NULL) {
      result = fi_writemsg(s.ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    } else {
      result = fi_readmsg(s.ep, &m, FI_COMPLETION);
    }
    struct fi_cq_entry ignored;
    if (result == -FI_EAGAIN) (void)fi_cq_read(s.cq, &ignored, 1);
  }
  must("post", result);
  struct fi_cq_entry entry;
  int64_t n = -FI_EAGAIN;
  while (n == -FI_EAGAIN && seconds() < end) n = fi_cq_read(s.cq, &entry, 1);
  if (n == -FI_EAGAIN) {
    printf("never ends");
  } else if (n == -FI_EAVAIL) {
    struct fi_cq_err_entry error = {0};
    (void)fi_cq_readerr(s.cq, &error, 0);
    printf("error %d (%s)", error.err, fi_strerror(error.err));
  } else if (n == 1 && strncmp(which, "killed", 6) != 0) {
    char moved = memory[0] == 'T';
    if (strstr(which, "_write") != NULL) {
      if (write(to, "?", 1) != 1 || read(from, &moved, 1) != 1) moved = 0;
    }
    printf("success, %s", moved ? "data moved" : "nothing moved");
  } else {
    printf(n == 1 ? "success" : "fi_cq_read: %d", (int)n);
  }
  fflush(stdout);
  _exit(0);
}

static void run(const char* mode, const char* which, const char* right) {
  const int virtual_addresses = strcmp(mode, "virtual") == 0;
  int forth[2], back[2];
  if (pipe(forth) != 0 || pipe(back) != 0) exit(1);
  printf("%-8s %-15s ", mode, which);
  fflush(stdout);
  const pid_t t = fork();
  if (t == 0) {
    alarm(PATIENCE + 2);
    target(which, virtual_addresses, forth[1], back[0]);
  }
  close(forth[1]);
  const pid_t i = fork();
  if (i == 0) initiator(which, virtual_addresses, back[1], forth[0], t);
  int status = 0;
  const double end = seconds() + PATIENCE;
  pid_t ended = 0;
  while ((ended = waitpid(i, &status, WNOHANG)) == 0 && seconds() < end) usleep(1000);
  if (ended == 0) {
    printf("never ends, inside a call of the provider");
    kill(i, SIGKILL);
    waitpid(i, &status, 0);
  } else if (WIFSIGNALED(status)) {
    printf("died of signal %d", WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    printf("exit %d", WEXITSTATUS(status)); /* a handler of libinfinipath makes a crash this */
  }
  kill(t, SIGKILL);
  waitpid(t, &status, 0);
  close(forth[0]), close(back[0]), close(back[1]);
  printf("   (right: %s)\n", right);
}

int main(int argc, char** argv) {
  static const char* const cases[][2] = {
      {"good_read", "success, data moved"}, {"good_write", "success, data moved"},
      {"closed_read", "an error"},          {"closed_write", "an error"},
      {"readonly_write", "an error"},       {"bounds_read", "an error"},
      {"killed_send", "an error"},          {"killed_read", "an error"}};
  const uint32_t v = fi_version();
  printf("libfabric %u.%u\n", FI_MAJOR(v), FI_MINOR(v));
  static const char* const modes[] = {"offset", "virtual"};
  for (size_t m = 0; m < 2; ++m) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; ++c) {
      if (argc == 3 && (strcmp(argv[1], modes[m]) != 0 || strcmp(argv[2], cases[c][0]) != 0))
        continue;
      run(modes[m], cases[c][0], cases[c][1]);
    }
  }
  return 0;
}

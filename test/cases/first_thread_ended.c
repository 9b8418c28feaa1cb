/* The first thread of a process ends by pthread_exit: a context begins there all the same, and a
 * sibling attaches what such a process has made. */
#include "case.h"

static int pipe_ends[2];
static pthread_t first;

static void* make(void* unused) {
  cmi_seg seg;
  EXPECT(pthread_join(first, NULL) == 0);
  begin("node");
  seg = CALL(seg_get)(ctxt, PAGE, 0);
  EXPECT(seg != CMI_SEG_INVALID);
  *(uint64_t*)attach(seg) = 42;
  EXPECT(write(pipe_ends[1], &seg, sizeof seg) == sizeof seg);
  for (;;) pause();
  return unused;
}

static void leave_first(void* unused) {
  pthread_t other;
  (void)unused;
  first = pthread_self();
  EXPECT(pthread_create(&other, NULL, make, NULL) == 0);
  pthread_exit(NULL);
}

int main(void) {
  cmi_seg seg = CMI_SEG_INVALID;
  uint64_t word = 0;
  pid_t maker;
  EXPECT(pipe(pipe_ends) == 0);
  maker = fork();
  EXPECT(maker >= 0);
  if (maker == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    leave_first(NULL);
  }
  close(pipe_ends[1]);
  EXPECT(read(pipe_ends[0], &seg, sizeof seg) == sizeof seg);
  begin("node");
  EXPECT(CALL(cmi_enb)(ctxt, 1) == 0);
  EXPECT(load(attach(seg), &word) == 0 && word == 42);
  EXPECT(kill(maker, SIGKILL) == 0 && waitpid(maker, NULL, 0) == maker);
  EXPECT(CALL(fini)(ctxt) == 0);
  return 0;
}

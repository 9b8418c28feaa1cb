/* Quiescing a segment, which an administrator asks for. [cmi(5), CMI_EVENT_QUIESCE and _RESUME] */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform.h"

/* cmiadm COMMAND for a segment of that node, which goes on until all have answered. */
static pid_t administer(const char* command, const char* node, cmi_seg seg) {
  char id[16];
  pid_t tool;
  snprintf(id, sizeof id, "%d", (int)seg);
  fflush(stdout);
  tool = fork();
  NEED(tool >= 0);
  if (tool == 0) {
    if (freopen("/dev/null", "w", stdout) == NULL) _exit(127);
    execl(CONFORM_CMIADM, "cmiadm", "--wait", "20", "--node", node, command, id, (char*)NULL);
    _exit(127);
  }
  return tool;
}
static bool ended(pid_t tool, int* status) { return waitpid(tool, status, WNOHANG) == tool; }
static int await_end(pid_t tool) {
  int status = -1;
  NEED(waitpid(tool, &status, 0) == tool);
  return status;
}

/* The next event of this process is that one, and is given back. */
static bool comes(cmi_event_type type, cmi_seg seg) {
  cmi_event* event = next_event();
  bool good;
  if (event == NULL) return false;
  good = event->type == type && told_of(event).segment == seg;
  give_back(event);
  return good;
}
static bool comes_to(struct peer* peer, cmi_event_type type, cmi_seg seg) {
  const struct told told = peer_event(peer);
  return told.type == (int32_t)type && told.segment == seg;
}

static void quiesce(const struct shared* s) {
  const pid_t tool = administer("quiesce", "home", s->home);
  EXPECT(comes(CMI_EVENT_QUIESCE, s->home));
  if (s->peer != NULL) EXPECT(comes_to(s->peer, CMI_EVENT_QUIESCE, s->import));
  EXPECT(await_end(tool) == 0);
}
static void resume(const struct shared* s) {
  EXPECT(await_end(administer("resume", "home", s->home)) == 0);
  EXPECT(comes(CMI_EVENT_RESUME, s->home));
}

STATEMENT(S_067f3b_every_importing_node_takes_part) {
  struct shared s;
  struct peer* third;
  cmi_seg import;
  pid_t tool;
  int status;
  begin();
  s = share(ALL_RIGHTS);
  third = peer_start("third");
  import = peer_seg_imp(third, &s.handle);
  NEED(import > 0);
  tool = administer("quiesce", "home", s.home);
  EXPECT(comes(CMI_EVENT_QUIESCE, s.home));
  EXPECT(comes_to(s.peer, CMI_EVENT_QUIESCE, s.import));
  EXPECT(!ended(tool, &status)); /* the third has not returned it */
  EXPECT(comes_to(third, CMI_EVENT_QUIESCE, import));
  EXPECT(await_end(tool) == 0);
  resume(&s);
  EXPECT(comes_to(s.peer, CMI_EVENT_RESUME, s.import));
  EXPECT(comes_to(third, CMI_EVENT_RESUME, import));
}
STATEMENT(S_eb7338_the_home_is_told_always) {
  struct shared s;
  begin();
  memset(&s, 0, sizeof s);
  s.home = new_segment(1);
  quiesce(&s);
  resume(&s);
}
static void attach_while_quiesced(void) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  quiesce(&s);
  FAILS(CALL(seg_at, s.home, NULL, 0), NULL, CMI_ERR_RECONFIG);
  EXPECT(peer_seg_at(s.peer, s.import, 0, 0) == 0 && peer_error(s.peer) == CMI_ERR_RECONFIG);
  EXPECT((status_of(s.home) & CMI_SEG_ST_QUIESCED) != 0);
  resume(&s);
  EXPECT(comes_to(s.peer, CMI_EVENT_RESUME, s.import));
  EXPECT((status_of(s.home) & CMI_SEG_ST_QUIESCED) == 0);
  EXPECT(CALL(seg_at, s.home, NULL, 0) != NULL);
  EXPECT(peer_seg_at(s.peer, s.import, 0, 0) != 0);
  peer_store(s.peer, s.far, 7);
  EXPECT(peer_wmb(s.peer) == 0 && load_word(s.near) == 7);
}
STATEMENT(E_seg_at_CMI_ERR_RECONFIG_of_a_quiesced_segment) { attach_while_quiesced(); }
STATEMENT(S_2df131_resume_says_that_it_may_be_used_again) { attach_while_quiesced(); }

/* An importer ends while the segment is quiesced. */
static void end_of_an_importer(void) {
  struct shared s;
  cmi_event* down;
  begin();
  s = share(ALL_RIGHTS);
  quiesce(&s);
  EXPECT(peer_end(s.peer) == 0);
  down = next_event();
  NEED(down != NULL);
  EXPECT(down->type == CMI_EVENT_RCTXT_DOWN);
  EXPECT(told_of(down).count == 1 && told_of(down).segments[0] == s.home);
  store_word(s.near, 5); /* its memory can be mended before the resume */
  EXPECT(load_word(s.near) == 5);
  give_back(down);
  resume(&s);
}
STATEMENT(S_e7dac0_the_home_gets_a_resume_whatever_else_comes) { end_of_an_importer(); }
STATEMENT(S_efd4fe_events_come_in_an_order_that_works) { end_of_an_importer(); }
STATEMENT(S_8dbec7_memory_is_usable_before_the_resume) { end_of_an_importer(); }
STATEMENT(S_6c5e40_segments_are_ready_when_the_event_comes) { end_of_an_importer(); }

/* The home ends; this process imported from it. */
static void end_of_the_home(void) {
  struct peer* home;
  struct flat handle, token;
  cmi_seg there, here;
  cmi_event* down;
  pid_t tool;
  begin();
  home = peer_start("far");
  there = peer_seg_get(home, UNITS(4), 0);
  NEED(peer_seg_exp(home, there, &handle) == 0);
  NEED(peer_tok_new(home, there, ALL_RIGHTS, &token) == 0);
  here = import(&handle);
  NEED(set_token(here, &token) == 0);
  tool = administer("quiesce", "far", there);
  EXPECT(comes_to(home, CMI_EVENT_QUIESCE, there));
  EXPECT(comes(CMI_EVENT_QUIESCE, here));
  EXPECT(await_end(tool) == 0);
  EXPECT(peer_end(home) == 0);
  down = next_event();
  NEED(down != NULL);
  EXPECT(down->type == CMI_EVENT_HCTXT_DOWN);
  EXPECT(told_of(down).count == 1 && told_of(down).segments[0] == here);
  give_back(down);
  EXPECT(CALL0(evt_get) == NULL); /* no resume */
  EXPECT((status_of(here) & CMI_SEG_ST_QUIESCED) == 0);
}
STATEMENT(S_ee4f75_no_resume_after_the_end_of_the_home) { end_of_the_home(); }
STATEMENT(S_893ad3_no_resume_after_the_end_of_the_home) { end_of_the_home(); }

/* A client says that it cannot stop. */
static void fail_to_quiesce(void) {
  struct shared s;
  int status;
  pid_t tool;
  begin();
  s = share(ALL_RIGHTS);
  quiesce(&s);
  EXPECT(await_end(administer("resume", "home", s.home)) == 0);
  EXPECT(comes(CMI_EVENT_RESUME, s.home));
  EXPECT(peer_fail_event(s.peer)); /* a resume: nothing depends on it */
  peer_store(s.peer, s.far, 6);
  EXPECT(peer_wmb(s.peer) == 0 && load_word(s.near) == 6);
  tool = administer("quiesce", "home", s.home);
  EXPECT(comes(CMI_EVENT_QUIESCE, s.home));
  EXPECT(!peer_fail_event(s.peer));
  status = peer_wait(s.peer);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  EXPECT(await_end(tool) == 0); /* nobody is left who could use it */
}
STATEMENT(S_524b10_a_failed_event_may_end_the_process) { fail_to_quiesce(); }
STATEMENT(S_afac1f_some_events_must_be_handled_well) { fail_to_quiesce(); }
STATEMENT(S_e3ef55_some_events_end_the_process_when_not_handled) { fail_to_quiesce(); }

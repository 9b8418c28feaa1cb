/* Exceptions and events. [cmi(5), Access Errors and Exceptions, Delivering CMI Exceptions, CMI
 * Events; libcmi(3), introduction, evt_get, evt_ret] */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform.h"

/* ---- Exceptions ---- */

static void token_faults(void) {
  struct shared s;
  struct flat handle;
  cmi_seg import;
  uint64_t view;
  begin();
  s = share(ALL_RIGHTS);
  handle = s.handle;
  import = peer_seg_imp(s.peer, &handle);
  view = peer_seg_at(s.peer, import, 0, 0);
  (void)peer_load(s.peer, view); /* none set */
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  EXPECT(CALL(tok_del, s.token) == 0);
  (void)peer_load(s.peer, s.far); /* revoked */
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
}
STATEMENT(S_aff08d_wrong_or_revoked_tokens_raise) { token_faults(); }

STATEMENT(S_487af9_exceptions_are_sigsegv_with_segv_cmi) {
  struct loop l;
  struct fault fault;
  begin();
  l = loop();
  EXPECT(CALL(cmi_enb, 0) == 0);
  fault = fault_of_load(l.far + 24);
  EXPECT(fault.caught && fault.code == SEGV_CMI);
  EXPECT(fault.cause == CMI_ERROR_ENABLE);
}
STATEMENT(S_55a1d6_a_handler_tells_cause_address_segment_and_pc) {
  struct loop l;
  struct fault fault;
  begin();
  l = loop();
  EXPECT(CALL(cmi_enb, 0) == 0);
  fault = fault_of_store(l.far + 24);
  EXPECT(is(fault, CMI_ERROR_ENABLE));
  EXPECT(fault.address == (uint64_t)(uintptr_t)(l.far + 24));
  EXPECT(fault.segment == l.import);
  EXPECT(fault.pc != 0);
}
static struct fault of_a_bad_address(void) {
  char* nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(nothing != MAP_FAILED);
  return fault_of_load(nothing);
}
STATEMENT(S_7f7f24_an_ordinary_fault_can_be_told_from_a_cmi_one) {
  struct fault fault;
  begin();
  fault = of_a_bad_address();
  EXPECT(fault.caught && fault.code != SEGV_CMI);
}
STATEMENT(S_ac7824_a_revoked_token_differs_from_an_ordinary_fault) {
  struct loop l;
  struct fault ordinary, ours;
  begin();
  l = loop();
  ordinary = of_a_bad_address();
  EXPECT(CALL(seg_ctl, l.home, CMI_SEG_RM, NULL) == 0);
  ours = fault_of_load(l.far);
  EXPECT(ordinary.caught && ours.caught && ordinary.code != ours.code);
  EXPECT(is(ours, CMI_ERROR_TOKEN));
}
STATEMENT(S_5b887c_si_errno_names_the_cause) {
  struct loop l;
  char* reading;
  begin();
  l = loop();
  reading = CALL(seg_at, l.import, NULL, CMI_SEG_READ);
  NEED(reading != NULL);
  EXPECT(fault_of_store(reading).cause == CMI_ERROR_ACCESS);
  EXPECT(CALL(cmi_enb, 0) == 0);
  EXPECT(fault_of_load(l.far).cause == CMI_ERROR_ENABLE);
  EXPECT(CALL(cmi_enb, 1) == 0);
  EXPECT(CALL(seg_ctl, l.home, CMI_SEG_RM, NULL) == 0);
  EXPECT(fault_of_load(l.far).cause == CMI_ERROR_TOKEN);
}
STATEMENT(S_c65f4a_swaps_raise_as_loads_and_stores_do) {
  struct shared s;
  uint64_t was;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(CALL(tok_del, s.token) == 0);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  peer_store(s.peer, s.far, 1);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  (void)peer_atm_cas(s.peer, s.far, 0, 1, &was);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
}

static volatile sig_atomic_t handled;
static void enable_and_return(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  if (info->si_code != SEGV_CMI || info->si_errno != CMI_ERROR_ENABLE) _exit(9);
  ++handled;
  if (CALL(cmi_enb, 1) != 0) _exit(8);
}
static void retry_in_handler(void) {
  struct loop l;
  struct sigaction handler, former;
  begin();
  l = loop();
  store_word(l.near, 61);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(CALL(cmi_enb, 0) == 0);
  memset(&handler, 0, sizeof handler);
  handler.sa_sigaction = enable_and_return;
  handler.sa_flags = SA_SIGINFO;
  NEED(sigaction(SIGSEGV, &handler, &former) == 0);
  EXPECT(load_word(l.far) == 61);
  EXPECT(handled == 1);
  NEED(sigaction(SIGSEGV, &former, NULL) == 0);
}
STATEMENT(S_7a331c_exceptions_can_be_caught) { retry_in_handler(); }
STATEMENT(S_9eca9b_clients_install_a_handler_with_sigaction) { retry_in_handler(); }
STATEMENT(S_bd43d8_returning_from_the_handler_tries_again) { retry_in_handler(); }

STATEMENT(S_8b2ad4_without_a_handler_the_process_dies_by_sigsegv) {
  struct shared s;
  int status;
  begin();
  s = share(CMI_ACC_READ);
  peer_store_without_end(s.peer, s.far);
  status = peer_wait(s.peer);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

struct worker {
  char* near;
  char* far;
};
static void* work_on(void* arg) {
  struct worker* worker = arg;
  uint64_t i;
  EXPECT(CALL0(ini_th) == 0 && CALL(cmi_enb, 1) == 0);
  for (i = 1; i <= 200; ++i) {
    store_word(worker->far, i);
    EXPECT(CALL0(wmb_fn) == 0);
    EXPECT(load_word(worker->near) == i);
  }
  EXPECT(CALL0(fini) == 0);
  return NULL;
}
STATEMENT(S_3d44e3_the_other_threads_go_on) {
  struct loop l;
  struct worker worker;
  pthread_t thread;
  int i;
  begin();
  l = loop();
  worker.near = l.near, worker.far = l.far;
  NEED(pthread_create(&thread, NULL, work_on, &worker) == 0);
  EXPECT(CALL(cmi_enb, 0) == 0);
  for (i = 0; i < 100; ++i) EXPECT(is(fault_of_load(l.far + UNITS(3)), CMI_ERROR_ENABLE));
  NEED(pthread_join(thread, NULL) == 0);
}

enum { kPages = 512 }; /* the last is never fetched along with the first */

/* A segment of a peer on another node, imported here. */
struct theirs {
  struct peer* peer;
  cmi_seg home, import;
  char* view;
};
static struct theirs import_theirs(void) {
  struct theirs t;
  struct flat handle, token;
  begin();
  t.peer = peer_start("far");
  t.home = peer_seg_get(t.peer, UNITS(kPages), 0);
  NEED(peer_seg_exp(t.peer, t.home, &handle) == 0);
  NEED(peer_tok_new(t.peer, t.home, ALL_RIGHTS, &token) == 0);
  t.import = import(&handle);
  NEED(set_token(t.import, &token) == 0);
  t.view = attach(t.import);
  NEED(CALL(cmi_enb, 1) == 0);
  EXPECT(is(fault_of_load(t.view), 0));
  return t;
}
static bool is_sinval(void* view) { return is(fault_of_load(view), CMI_ERROR_SINVAL); }
static void home_dies(void) {
  struct theirs t = import_theirs();
  peer_kill(t.peer);
  EXPECT(until(is_sinval, t.view));
  EXPECT(is_sinval(t.view)); /* for good */
}
STATEMENT(S_cef787_sinval_is_for_imports_whose_export_is_gone) { home_dies(); }
STATEMENT(S_d872e3_a_dead_home_raises_sinval) { home_dies(); }

static void set_timeout(uint32_t milliseconds) {
  cmi_ctl_cfg cfg;
  memset(&cfg, 0, sizeof cfg);
  cfg.rcfg.rcfg_tout = milliseconds;
  NEED(CALL(cmi_ctl, CMI_CTL_RECONF_TOUT, &cfg) == 0);
}
static void home_is_silent(void) {
  struct theirs t;
  struct fault fault;
  setenv("CMI_LOCAL", "off", 1); /* a page that is mapped needs no answer */
  t = import_theirs();
  set_timeout(300);
  peer_signal(t.peer, SIGSTOP);
  fault = fault_of_load(t.view + UNITS(kPages - 1)); /* not cached */
  EXPECT(is(fault, CMI_ERROR_TRANSIENT));
  peer_signal(t.peer, SIGCONT);
  EXPECT(is(fault_of_load(t.view + UNITS(kPages - 1)), 0));
}
STATEMENT(S_f54c79_a_silent_home_differs_from_a_dead_one) { home_is_silent(); }
STATEMENT(S_b07d4f_a_transient_failure_may_be_tried_again) { home_is_silent(); }
STATEMENT(S_8a6fb8_a_client_sets_the_reconfiguration_timeout) { home_is_silent(); }
STATEMENT(S_932446_the_timeout_bounds_the_wait) { home_is_silent(); }
STATEMENT(S_04beb0_after_the_timeout_the_access_raises) { home_is_silent(); }

/* ---- Events ---- */

static void home_ends_here(bool killed) {
  struct theirs t = import_theirs();
  cmi_event* event;
  if (killed) {
    peer_kill(t.peer);
  } else {
    EXPECT(peer_end(t.peer) == 0);
  }
  event = next_event();
  NEED(event != NULL);
  EXPECT(event->type == CMI_EVENT_HCTXT_DOWN);
  EXPECT(event->ctxt == ctxt);
  EXPECT(event->down.einfo_naddr != NULL);
  EXPECT(event->down.einfo_nsegs == 1 && event->down.einfo_segs[0] == t.import);
  EXPECT(event->info.down.einfo_nsegs == 1);
  give_back(event);
  EXPECT(is(fault_of_load(t.view), CMI_ERROR_SINVAL));
  EXPECT(CALL0(evt_get) == NULL && cmi_get_error(ctxt) == CMI_ERR_NONE);
}
STATEMENT(S_9709f5_the_end_of_a_home_lists_what_was_imported_from_it) { home_ends_here(true); }
STATEMENT(S_b10af2_access_goes_on_raising_after_the_event) { home_ends_here(true); }
STATEMENT(S_dc7edf_importers_hear_of_a_home_that_finished) { home_ends_here(false); }

static void importer_ends_there(bool killed) {
  struct shared s;
  struct told told;
  cmi_event* event;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(peer_load(s.peer, s.far) == 0);
  if (killed) {
    peer_kill(s.peer);
  } else {
    EXPECT(peer_end(s.peer) == 0);
  }
  event = next_event();
  NEED(event != NULL);
  told = told_of(event);
  EXPECT(told.type == CMI_EVENT_RCTXT_DOWN);
  EXPECT(told.count == 1 && told.segments[0] == s.home);
  give_back(event);
  EXPECT(CALL0(evt_get) == NULL);
}
STATEMENT(S_fc3867_the_end_of_an_importer_lists_what_it_used) { importer_ends_there(true); }
STATEMENT(S_89bfe6_homes_hear_of_an_importer_that_finished) { importer_ends_there(false); }

static cmi_event* one_event(void) {
  struct theirs t = import_theirs();
  cmi_event* event;
  peer_kill(t.peer);
  event = next_event();
  NEED(event != NULL);
  return event;
}
STATEMENT(S_c0e785_an_event_stays_valid_until_evt_ret) {
  cmi_event* event = one_event();
  const cmi_event kept = *event;
  int i;
  for (i = 0; i < 50; ++i) EXPECT(CALL0(evt_get) == NULL && CALL0(mb_fn) == 0);
  EXPECT(memcmp(&kept, event, sizeof kept) == 0);
  give_back(event);
}
STATEMENT(S_f481c8_an_event_is_the_clients_until_it_returns_it) {
  cmi_event* event = one_event();
  EXPECT(event->type == CMI_EVENT_HCTXT_DOWN && event->down.einfo_nsegs == 1);
  give_back(event);
}
STATEMENT(S_75acce_a_returned_event_is_freed) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  struct peer* peer;
  struct flat handle;
  cmi_event* event;
  size_t with;
  begin_with(&callbacks);
  handle = export_of(new_segment(1));
  peer = peer_start("far");
  NEED(peer_seg_imp(peer, &handle) > 0);
  EXPECT(peer_end(peer) == 0);
  event = next_event();
  NEED(event != NULL);
  with = heap.blocks;
  give_back(event);
  EXPECT(heap.blocks < with);
}
STATEMENT(S_533095_a_returned_event_is_the_librarys) {
  cmi_event* event = one_event();
  give_back(event);
  give_back(event); /* ignored */
  give_back(NULL);
  EXPECT(CALL0(evt_get) == NULL && cmi_get_error(ctxt) == CMI_ERR_NONE);
}

static void ask_for_map(uint64_t id) {
  cmi_ctl_cfg cfg;
  memset(&cfg, 0, sizeof cfg);
  cfg.cmap.cmap_reqid = id;
  EXPECT(CALL(cmi_ctl, CMI_CTL_NODE_CMAP_GET, &cfg) == 0);
}
static void two_maps(void) {
  struct told told[2];
  cmi_event* event;
  size_t i;
  (void)import_theirs();
  ask_for_map(0x1122334455667788);
  ask_for_map(7);
  for (i = 0; i < 2; ++i) {
    event = next_event();
    NEED(event != NULL);
    told[i] = told_of(event);
    EXPECT(told[i].type == CMI_EVENT_CMAP && told[i].count == 0);
    give_back(event);
  }
  EXPECT(told[0].request == 0x1122334455667788 && told[1].request == 7);
  EXPECT(CALL0(evt_get) == NULL);
}
STATEMENT(S_7984e8_each_request_gets_one_map_of_what_cannot_be_reached) { two_maps(); }
STATEMENT(S_9734fd_the_request_comes_back_as_it_was) { two_maps(); }
STATEMENT(S_81196c_the_map_comes_as_an_event) { two_maps(); }
STATEMENT(S_7f2faa_one_event_for_each_request) { two_maps(); }
STATEMENT(S_e3a76a_a_map_names_no_node_that_can_be_reached) {
  struct theirs t = import_theirs();
  cmi_event* event;
  struct told told;
  set_timeout(300);
  peer_signal(t.peer, SIGSTOP); /* silent, on a node that is there */
  ask_for_map(3);
  event = next_event();
  NEED(event != NULL);
  told = told_of(event);
  EXPECT(told.type == CMI_EVENT_CMAP && told.request == 3 && told.count == 0);
  give_back(event);
  peer_signal(t.peer, SIGCONT);
}
static void request_zero(void) {
  cmi_ctl_cfg cfg;
  begin();
  memset(&cfg, 0, sizeof cfg);
  FAILS(CALL(cmi_ctl, CMI_CTL_NODE_CMAP_GET, &cfg), -1, CMI_ERR_INVAL);
  EXPECT(CALL0(evt_get) == NULL);
}
STATEMENT(S_e1406b_request_0_is_not_for_clients) { request_zero(); }
STATEMENT(S_673bee_a_request_is_not_0) { request_zero(); }

STATEMENT(S_7f8c0b_no_event_comes_for_a_removed_segment) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(remove_segment(s.home) == 0);
  peer_kill(s.peer);
  ask_for_map(5); /* behind whatever else there is to tell */
  for (;;) {
    cmi_event* event = next_event();
    struct told told;
    NEED(event != NULL);
    told = told_of(event);
    give_back(event);
    if (told.type == CMI_EVENT_CMAP) break;
    EXPECT(told.segment != s.home);
    EXPECT(told.count == 0 || told.segments[0] != s.home);
  }
}
STATEMENT(S_ce0676_at_least_the_segment_of_lost_stores_is_named) {
  struct shared s;
  struct told told;
  int round;
  setenv("CMI_LOCAL", "off", 1); /* what is stored to mapped pages is not lost */
  begin();
  s = share(ALL_RIGHTS);
  NEED(peer_open_fb(s.peer) == 0);
  for (round = 0; round < 50; ++round) {
    NEED(peer_load(s.peer, s.far) == load_word(s.near));
    peer_store(s.peer, s.far, 100 + (uint64_t)round);
    NEED(CALL(tok_del, s.token) == 0);
    if (peer_flush_fb(s.peer) != 0) break;
    s.token = new_token(s.home, ALL_RIGHTS);
    s.key = copy(s.token, s.key.size);
    NEED(peer_set_token(s.peer, s.import, &s.key) == 0);
  }
  told = peer_event(s.peer);
  EXPECT(told.type == CMI_EVENT_STORE_FAILURE && told.segment == s.import);
}

/* Contexts, versions, threads, callbacks and errors. [cmi(5), CMI Context, CMI API; libcmi(3),
 * cmi_ini, cmi_get_error, ini_th, fini] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform.h"

/* ---- Versions ---- */

STATEMENT(S_34fabd_a_context_begins_with_version_vendor_and_device) {
  cmi_base base;
  begin();
  memcpy(&base, ctxt, sizeof base);
  EXPECT(base.verno == CMI_VERNO);
  EXPECT(base.vendor == CMI_VENDOR_OFI);
  EXPECT(base.device == CMI_DEVICE_SOFT);
}

STATEMENT(S_ae749d_the_version_is_one_that_both_sides_know) {
  ctxt = cmi_ini(10, NULL);
  NEED(ctxt != NULL);
  EXPECT(ctxt->base.verno == 10);
}

STATEMENT(S_581f12_the_version_is_the_smaller_of_both) {
  const uint16_t wanted[] = {10, 11, 12, 19};
  size_t i;
  for (i = 0; i < 4; ++i) {
    ctxt = cmi_ini(wanted[i], NULL);
    NEED(ctxt != NULL);
    EXPECT(ctxt->base.verno == (wanted[i] < CMI_VERNO ? wanted[i] : CMI_VERNO));
    end();
  }
}

STATEMENT(S_2e6e0e_the_context_tells_its_version) {
  begin();
  EXPECT(ctxt->base.verno == CMI_VERNO);
}

STATEMENT(S_aeaf2e_a_newer_minor_version_of_the_client_is_served) {
  ctxt = cmi_ini(15, NULL);
  NEED(ctxt != NULL);
  EXPECT(ctxt->base.verno == CMI_VERNO);
  EXPECT(new_segment(1) > 0);
}

STATEMENT(S_846e05_both_tables_of_functions_do_the_same) {
  cmi_seg seg;
  void* view;
  begin();
  seg = CMIFN(ctxt, 10, seg_get)(ctxt, unit(), 0);
  NEED(seg > 0);
  view = CMIFN(ctxt, 11, seg_at)(ctxt, seg, NULL, 0);
  NEED(view != NULL);
  EXPECT(CMIFN(ctxt, 10, seg_dt)(ctxt, seg, view) == 0);
}

STATEMENT(S_04bbd2_another_major_version_is_refused) {
  EXPECT(cmi_ini(20, NULL) == NULL);
  EXPECT(cmi_ini(9, NULL) == NULL);
  EXPECT(cmi_ini(0, NULL) == NULL);
}

STATEMENT(S_89221c_the_refusal_of_a_version_is_notsupp) {
  FAILS(cmi_ini(20, NULL), NULL, CMI_ERR_NOTSUPP);
}

STATEMENT(S_8b3e7d_the_error_of_another_major_version_is_notsupp) {
  FAILS(cmi_ini(30, NULL), NULL, CMI_ERR_NOTSUPP);
  FAILS(cmi_ini(UINT16_MAX, NULL), NULL, CMI_ERR_NOTSUPP);
}

STATEMENT(E_cmi_ini_CMI_ERR_NOTSUPP_an_unknown_major_version) {
  FAILS(cmi_ini(29, NULL), NULL, CMI_ERR_NOTSUPP);
  EXPECT(CMI_ERR_NOTSUP == CMI_ERR_NOTSUPP);
  begin(); /* and the next one works */
}

/* ---- Why cmi_ini() failed ---- */

STATEMENT(S_35160c_cmi_get_error_tells_why_cmi_ini_failed) {
  EXPECT(cmi_ini(20, NULL) == NULL);
  EXPECT(cmi_get_error(NULL) == CMI_ERR_NOTSUPP);
}

STATEMENT(S_306ffb_cmi_get_error_takes_null) {
  EXPECT(cmi_get_error(NULL) == CMI_ERR_NONE);
  begin();
  EXPECT(cmi_get_error(NULL) == CMI_ERR_NONE);
}

STATEMENT(S_86ea6d_cmi_get_error_works_without_a_context) {
  cmi_cbs callbacks;
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.trace_facilities = ~0u;
  EXPECT(cmi_ini(CMI_VERNO, &callbacks) == NULL);
  EXPECT(cmi_get_error(NULL) == CMI_ERR_INVAL);
}

static void expect_bound(void* arg) {
  (void)arg;
  EXPECT(CALL0(ini_th) == 0);
  EXPECT(CALL0(ini_th) == -1);
  EXPECT(cmi_get_error(NULL) == CMI_ERR_BOUND);
  EXPECT(CALL0(fini) == 0);
}
STATEMENT(S_6d0822_cmi_get_error_tells_why_ini_th_failed) {
  begin();
  in_thread(expect_bound, NULL);
}

static void ask_error(void* arg) { *(cmi_error*)arg = cmi_get_error(ctxt); }
STATEMENT(S_99b5d8_cmi_get_error_needs_no_registration) {
  cmi_error error = CMI_ERR_HW;
  begin();
  EXPECT(CALL(seg_get, 0, 0) == CMI_SEG_INVALID);
  in_thread(ask_error, &error); /* that thread's own, which has none */
  EXPECT(error == CMI_ERR_NONE);
  EXPECT(cmi_get_error(ctxt) == CMI_ERR_INVAL);
}

static void expect_init_from_seg_get(void* arg) {
  (void)arg;
  FAILS(CALL(seg_get, 4096, 0), CMI_SEG_INVALID, CMI_ERR_INIT);
}
STATEMENT(S_1ad01e_an_unregistered_thread_may_call_cmi_get_error_alone) {
  begin();
  in_thread(expect_init_from_seg_get, NULL);
}

STATEMENT(S_f2e448_calls_that_give_an_object_give_null) {
  begin();
  EXPECT(CALL(seg_exp, 12345, 0) == NULL);
  EXPECT(CALL(seg_at, 12345, NULL, 0) == NULL);
  EXPECT(CALL(tok_new, 12345, CMI_NADDR_ANY, CMI_ACC_READ) == NULL);
  EXPECT(CALL(seg_get, 1, 0) == CMI_SEG_INVALID);
  EXPECT(CALL(seg_imp, NULL) == CMI_SEG_INVALID);
}

STATEMENT(S_d51f46_cmi_get_error_tells_the_cause) {
  begin();
  FAILS(CALL(seg_exp, 12345, 0), NULL, CMI_ERR_INVAL);
  FAILS(CALL(seg_get, unit(), 0x40000000), CMI_SEG_INVALID, CMI_ERR_NOTSUPP);
  FAILS(CALL0(ini_th), -1, CMI_ERR_BOUND);
  FAILS(CALL(flush_fb, NULL), -1, CMI_ERR_INVAL);
}

/* ---- Threads ---- */

STATEMENT(S_fdadb4_cmi_ini_comes_before_all_else) {
  cmi_ctxt* no_context;
  begin();
  no_context = ctxt;
  /* The functions can only be had from a context; one that has ended serves nothing. */
  const struct cmi_fns_10* functions = ctxt->fns10;
  end();
  EXPECT(functions->seg_get(no_context, 4096, 0) == CMI_SEG_INVALID);
  EXPECT(cmi_get_error(NULL) == CMI_ERR_INVAL);
}

static void register_and_work(void* arg) {
  (void)arg;
  EXPECT(CALL0(ini_th) == 0);
  EXPECT(CALL(seg_get, unit(), 0) > 0);
  EXPECT(CALL0(fini) == 0);
}
STATEMENT(S_756ad0_a_thread_registers_before_it_calls) {
  begin();
  in_thread(expect_init_from_seg_get, NULL);
  in_thread(register_and_work, NULL);
}
STATEMENT(S_8a1711_a_registered_thread_may_call) {
  begin();
  in_thread(register_and_work, NULL);
}

static void expect_init_from_all(void* arg) {
  cmi_seg seg = *(cmi_seg*)arg;
  size_t size = 0, length = sizeof size;
  FAILS(CALL(attr_get, seg, CMI_ATTR_RSEG_SIZE, &size, &length), -1, CMI_ERR_INIT);
  FAILS(CALL(seg_at, seg, NULL, 0), NULL, CMI_ERR_INIT);
  FAILS(CALL0(mb_fn), -1, CMI_ERR_INIT);
  FAILS(CALL0(evt_get), NULL, CMI_ERR_INIT);
  FAILS(CALL0(fini), -1, CMI_ERR_INIT);
}
STATEMENT(S_3ffb43_calls_of_unregistered_threads_are_init) {
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  in_thread(expect_init_from_all, &seg);
}

static void get_same_context(void* arg) {
  (void)arg;
  EXPECT(cmi_ini(CMI_VERNO, NULL) == ctxt);
  EXPECT(CALL0(fini) == 0);
}
static void look_into_view(void* view) { EXPECT(load_word(view) == 77); }
STATEMENT(S_4617ed_a_context_serves_all_threads_of_the_process) {
  char* view;
  begin();
  in_thread(get_same_context, NULL);
  view = attach(new_segment(1));
  store_word(view, 77);
  in_thread(look_into_view, view);
}

static void use_foreign_epoch(void* arg) {
  EXPECT(CALL0(ini_th) == 0);
  FAILS(CALL(flush_fb, *(cmi_fb*)arg), -1, CMI_ERR_INVAL);
  FAILS(CALL(close_fb, *(cmi_fb*)arg), -1, CMI_ERR_INVAL);
  EXPECT(CALL0(fini) == 0);
}
STATEMENT(S_29600e_an_epoch_stays_with_its_thread) {
  cmi_fb epoch;
  begin();
  epoch = CALL0(open_fb);
  NEED(epoch != NULL);
  in_thread(use_foreign_epoch, &epoch);
  EXPECT(CALL(close_fb, epoch) == 0);
}

STATEMENT(S_04d812_no_call_is_made_after_fini) {
  const struct cmi_fns_10* functions;
  cmi_ctxt* ended;
  begin();
  functions = ctxt->fns10;
  ended = ctxt;
  end();
  EXPECT(functions->fini(ended) == -1);
  EXPECT(functions->mb_fn(ended) == -1);
}

static void leave_and_come_back(void* arg) {
  (void)arg;
  EXPECT(CALL0(ini_th) == 0);
  EXPECT(CALL0(fini) == 0);
  FAILS(CALL0(mb_fn), -1, CMI_ERR_INIT);
  EXPECT(CALL0(ini_th) == 0);
  EXPECT(CALL0(mb_fn) == 0);
  EXPECT(CALL0(fini) == 0);
}
STATEMENT(S_5278f1_a_thread_may_register_again) {
  begin();
  in_thread(leave_and_come_back, NULL);
}

static void* come_and_go(void* arg) {
  int i;
  (void)arg;
  for (i = 0; i < 50; ++i) {
    EXPECT(CALL0(ini_th) == 0);
    EXPECT(CALL0(mb_fn) == 0);
    EXPECT(CALL0(fini) == 0);
  }
  return NULL;
}
static void four_come_and_go(void) {
  pthread_t threads[4];
  int i;
  begin();
  for (i = 0; i < 4; ++i) NEED(pthread_create(&threads[i], NULL, come_and_go, NULL) == 0);
  for (i = 0; i < 4; ++i) NEED(pthread_join(threads[i], NULL) == 0);
}
STATEMENT(S_915970_threads_register_at_the_same_time) { four_come_and_go(); }
STATEMENT(S_b71764_threads_leave_at_the_same_time) { four_come_and_go(); }

/* ---- Callbacks ---- */

STATEMENT(S_687a3c_objects_come_from_the_clients_heap) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  cmi_seg seg;
  size_t before;
  begin_with(&callbacks);
  EXPECT(heap.asked > 0);
  seg = new_segment(1);
  before = heap.blocks;
  (void)new_token(seg, CMI_ACC_READ);
  EXPECT(heap.blocks == before + 1);
  end();
  EXPECT(heap.blocks == 0);
  EXPECT(heap.foreign == 0);
}

STATEMENT(S_f9ad15_clients_may_bring_allocation_callbacks) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  begin_with(&callbacks);
  EXPECT(heap.asked > 0);
}

STATEMENT(S_943941_handles_and_tokens_are_of_the_clients_heap) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  cmi_rseg* handle;
  cmi_token* token;
  size_t before;
  cmi_seg seg;
  begin_with(&callbacks);
  seg = new_segment(1);
  before = heap.blocks;
  handle = CALL(seg_exp, seg, 0);
  token = new_token(seg, CMI_ACC_READ);
  NEED(handle != NULL);
  EXPECT(heap.blocks == before + 2);
  EXPECT(CALL(rseg_del, handle) == 0);
  EXPECT(CALL(tok_del, token) == 0);
  EXPECT(heap.blocks == before);
}

STATEMENT(S_b8034c_a_revoked_token_is_freed) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  cmi_token* token;
  size_t before;
  cmi_seg seg;
  begin_with(&callbacks);
  seg = new_segment(1);
  before = heap.blocks;
  token = new_token(seg, CMI_ACC_READ);
  EXPECT(heap.blocks > before);
  EXPECT(CALL(tok_del, token) == 0);
  EXPECT(heap.blocks == before);
}

static void register_and_leave(void* arg) {
  struct heap* heap = arg;
  const size_t before = heap->blocks;
  EXPECT(CALL0(ini_th) == 0);
  EXPECT(heap->blocks > before);
  EXPECT(CALL0(fini) == 0);
  EXPECT(heap->blocks == before);
}
STATEMENT(S_7e410b_fini_frees_what_the_thread_used) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  begin_with(&callbacks);
  in_thread(register_and_leave, &heap);
}
STATEMENT(S_ca632a_each_threads_fini_frees_its_resources) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  begin_with(&callbacks);
  in_thread(register_and_leave, &heap);
  in_thread(register_and_leave, &heap);
}
STATEMENT(S_b520c3_fini_of_a_thread_takes_its_memory_back) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  begin_with(&callbacks);
  in_thread(register_and_leave, &heap);
  EXPECT(heap.blocks > 0); /* the context's own */
}

static void live_and_end(struct heap* heap) {
  cmi_cbs callbacks = callbacks_of(heap);
  begin_with(&callbacks);
  (void)loop();
  end();
  EXPECT(heap->blocks == 0);
  EXPECT(heap->foreign == 0);
}
STATEMENT(S_23bd45_after_the_last_fini_all_is_freed) {
  static struct heap heap; /* also when the context ends after the statement */
  live_and_end(&heap);
}
STATEMENT(S_bdba56_the_last_fini_frees_the_context) {
  static struct heap heap; /* also when the context ends after the statement */
  live_and_end(&heap);
  begin(); /* a fresh one */
  EXPECT(new_segment(1) > 0);
}

STATEMENT(S_eff9b4_without_callbacks_any_allocator_serves) {
  begin();
  (void)loop();
}

STATEMENT(S_2bdabd_a_failing_callback_is_nomem) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  cmi_seg seg;
  begin_with(&callbacks);
  seg = new_segment(1);
  heap.empty = true;
  FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ), NULL, CMI_ERR_NOMEM);
  heap.empty = false;
  EXPECT(CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ) != NULL);
}

STATEMENT(S_2fcf55_the_callbacks_are_copied) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  size_t before;
  begin_with(&callbacks);
  memset(&callbacks, 0xff, sizeof callbacks); /* would crash if followed */
  before = heap.asked;
  (void)new_token(new_segment(1), CMI_ACC_READ);
  EXPECT(heap.asked > before);
}

struct lines {
  pthread_mutex_t lock;
  size_t alerts, logs;
  char last[512];
};
static void count_line(void* arg, const char* line, bool alert) {
  struct lines* lines = arg;
  pthread_mutex_lock(&lines->lock);
  if (alert) {
    ++lines->alerts;
  } else {
    ++lines->logs;
  }
  snprintf(lines->last, sizeof lines->last, "%s", line);
  pthread_mutex_unlock(&lines->lock);
}
static void on_alert(void* arg, const char* line) { count_line(arg, line, true); }
static void on_log(void* arg, const char* line) { count_line(arg, line, false); }

STATEMENT(S_741b06_facilities_and_levels_choose_what_is_traced) {
  struct lines lines = {.lock = PTHREAD_MUTEX_INITIALIZER};
  cmi_cbs callbacks;
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.alert = on_alert;
  callbacks.log = on_log;
  callbacks.arg = &lines;
  callbacks.trace_facilities = CMI_TRACE_FAC_SEG;
  callbacks.trace_level = CMI_TRACE_LVL_ERROR;
  begin_with(&callbacks);
  EXPECT(CALL(seg_get, 4096, 0) > 0);
  EXPECT(lines.alerts == 0 && lines.logs == 0);
  EXPECT(CALL(tok_new, 1, CMI_NADDR_ANY, 0) == NULL); /* another facility */
  EXPECT(lines.alerts == 0 && lines.logs == 0);
  EXPECT(CALL(seg_get, 0, 0) == CMI_SEG_INVALID);
  EXPECT(lines.alerts == 1 && lines.logs == 0);
  EXPECT(strstr(lines.last, "seg_get") != NULL && strstr(lines.last, "CMI_ERR_INVAL") != NULL);
  end();

  callbacks.trace_level = CMI_TRACE_LVL_HIGHEST;
  begin_with(&callbacks);
  lines.logs = lines.alerts = 0;
  EXPECT(CALL(seg_get, 8192, 0) > 0);
  EXPECT(lines.logs == 1 && lines.alerts == 0);
  EXPECT(strstr(lines.last, "seg_get") != NULL && strstr(lines.last, "8192") != NULL);
}

/* ---- Errors ---- */

STATEMENT(E_cmi_ini_CMI_ERR_NOMEM_no_memory_for_the_context) {
  static struct heap heap = {.empty = true};
  cmi_cbs callbacks = callbacks_of(&heap);
  FAILS(cmi_ini(CMI_VERNO, &callbacks), NULL, CMI_ERR_NOMEM);
  heap.empty = false;
  begin_with(&callbacks);
}

STATEMENT(E_cmi_ini_CMI_ERR_BOUND_the_thread_has_a_context) {
  begin();
  FAILS(cmi_ini(CMI_VERNO, NULL), NULL, CMI_ERR_BOUND);
  EXPECT(CALL0(mb_fn) == 0);
}

static void register_without_memory(void* arg) {
  struct heap* heap = arg;
  heap->empty = true;
  FAILS(CALL0(ini_th), -1, CMI_ERR_NOMEM);
  heap->empty = false;
  EXPECT(CALL0(ini_th) == 0);
  EXPECT(CALL0(fini) == 0);
}
STATEMENT(E_ini_th_CMI_ERR_NOMEM_no_memory_for_the_thread) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  begin_with(&callbacks);
  in_thread(register_without_memory, &heap);
}

static void register_with_wrong_context(void* arg) {
  cmi_ctxt other;
  (void)arg;
  memcpy(&other, ctxt, sizeof other);
  EXPECT(ctxt->fns10->ini_th(&other) == -1);
  EXPECT(cmi_get_error(NULL) == CMI_ERR_INVAL);
  EXPECT(ctxt->fns10->ini_th(NULL) == -1);
  EXPECT(cmi_get_error(NULL) == CMI_ERR_INVAL);
}
STATEMENT(E_ini_th_CMI_ERR_INVAL_a_wrong_context) {
  begin();
  in_thread(register_with_wrong_context, NULL);
}

STATEMENT(E_ini_th_CMI_ERR_BOUND_registered_already) {
  begin();
  FAILS(CALL0(ini_th), -1, CMI_ERR_BOUND);
}

static void fini_here(void* arg) {
  (void)arg;
  FAILS(CALL0(fini), -1, CMI_ERR_INIT);
}
STATEMENT(E_fini_CMI_ERR_INIT_an_unregistered_thread) {
  begin();
  in_thread(fini_here, NULL);
}
STATEMENT(E_fini_CMI_ERR_INVAL_a_wrong_context) {
  cmi_ctxt other;
  begin();
  memcpy(&other, ctxt, sizeof other);
  EXPECT(ctxt->fns10->fini(&other) == -1);
  EXPECT(cmi_get_error(NULL) == CMI_ERR_INVAL);
  EXPECT(CALL0(mb_fn) == 0); /* still registered */
}

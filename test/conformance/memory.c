/* Barriers, flush epochs, cflush, swaps, and access by threads. [cmi(5), CMI Memory Model, Flush
 * barriers and Recovery; libcmi(3), mb_fn to close_fb, cflush, atm_cas, cmi_enb] */
#include <cmi/ofi/cmi_impl.h>
#include <pthread.h>
#include <stdlib.h>

#include "conform.h"

/* ---- Barriers ---- */

STATEMENT(S_1858cd_after_a_write_barrier_every_node_sees_the_store) {
  struct shared s;
  struct peer* third;
  cmi_seg import;
  uint64_t view;
  begin();
  s = share(ALL_RIGHTS);
  third = peer_start("third");
  import = peer_seg_imp(third, &s.handle);
  NEED(peer_set_token(third, import, &s.key) == 0);
  view = peer_seg_at(third, import, 0, 0);
  NEED(peer_cmi_enb(third, 1) == 0);
  EXPECT(peer_load(third, view) == 0); /* cached there */
  peer_store(s.peer, s.far, 5);
  EXPECT(peer_wmb(s.peer) == 0);
  EXPECT(load_word(s.near) == 5);
  EXPECT(peer_load(third, view) == 5);
}
STATEMENT(S_8a0061_the_barrier_macros_are_barriers_for_the_compiler) {
  struct loop l;
  uint64_t* word;
  begin();
  l = loop();
  word = (uint64_t*)(void*)l.near;
  /* A compiler that kept *word in a register, or dropped the first store, would show here. */
  *word = 1;
  EXPECT(cmi_wmb() == 0);
  EXPECT(load_word(l.far) == 1);
  *word = 2;
  EXPECT(cmi_mb() == 0);
  EXPECT(load_word(l.far) == 2);
  store_word(l.far, 3);
  EXPECT(cmi_wmb() == 0 && cmi_rmb() == 0);
  EXPECT(*word == 3);
}
STATEMENT(S_abf42d_barriers_by_function_or_by_macro) {
  struct loop l;
  begin();
  l = loop();
  store_word(l.far, 1);
  EXPECT(CALL0(mb_fn) == 0);
  EXPECT(load_word(l.near) == 1);
  store_word(l.far, 2);
  EXPECT(cmi_mb() == 0);
  EXPECT(load_word(l.near) == 2);
}
STATEMENT(S_ac3151_mb_fn_is_there_and_orders) {
  struct shared s;
  begin();
  EXPECT(ctxt->fns10->mb_fn != NULL);
  s = share(ALL_RIGHTS);
  peer_store(s.peer, s.far, 3);
  EXPECT(peer_mb(s.peer) == 0);
  EXPECT(load_word(s.near) == 3);
}
STATEMENT(S_155265_wmb_fn_is_there_and_orders) {
  struct shared s;
  begin();
  EXPECT(ctxt->fns10->wmb_fn != NULL);
  s = share(ALL_RIGHTS);
  EXPECT(peer_load(s.peer, s.far) == 0);
  store_word(s.near, 3);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(s.peer, s.far) == 3);
}
STATEMENT(S_3a406a_rmb_fn_is_there) {
  struct shared s;
  begin();
  EXPECT(ctxt->fns10->rmb_fn != NULL);
  s = share(ALL_RIGHTS);
  EXPECT(peer_load(s.peer, s.far) == 0);
  store_word(s.near, 3);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_rmb(s.peer) == 0);
  EXPECT(peer_load(s.peer, s.far) == 3);
}

static bool far_store_is_here(void* near) { return load_word(near) == 9; }
STATEMENT(S_c2de4b_stores_show_up_without_a_barrier) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  peer_store(s.peer, s.far, 9);
  EXPECT(until(far_store_is_here, s.near));
}

/* ---- Epochs ---- */

static void flush_brings_home(void) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  NEED(peer_open_fb(s.peer) == 0);
  peer_store(s.peer, s.far, 1);
  peer_store(s.peer, s.far + UNITS(3), 2);
  EXPECT(peer_flush_fb(s.peer) == 0);
  EXPECT(load_word(s.near) == 1 && load_word(s.near + UNITS(3)) == 2);
  EXPECT(peer_close_fb(s.peer) == 0);
}
STATEMENT(S_af83b0_a_flush_returns_when_its_stores_are_home) { flush_brings_home(); }
STATEMENT(S_c3d6e5_flush_fb_sends_home_what_the_epoch_tracked) { flush_brings_home(); }
STATEMENT(S_584f9d_a_flush_covers_all_since_the_last_one) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  NEED(peer_open_fb(s.peer) == 0);
  peer_store(s.peer, s.far, 1);
  EXPECT(peer_flush_fb(s.peer) == 0);
  EXPECT(load_word(s.near) == 1);
  peer_store(s.peer, s.far, 2);
  peer_store(s.peer, s.far + 8, 3);
  EXPECT(peer_flush_fb(s.peer) == 0);
  EXPECT(load_word(s.near) == 2 && load_word(s.near + 8) == 3);
}
STATEMENT(S_6ec548_after_a_flush_every_node_loads_the_new_bytes) {
  struct shared s;
  struct peer* third;
  cmi_seg import;
  uint64_t view;
  begin();
  s = share(ALL_RIGHTS);
  third = peer_start("third");
  import = peer_seg_imp(third, &s.handle);
  NEED(peer_set_token(third, import, &s.key) == 0);
  view = peer_seg_at(third, import, 0, 0);
  NEED(peer_cmi_enb(third, 1) == 0);
  EXPECT(peer_load(third, view) == 0);
  NEED(peer_open_fb(s.peer) == 0);
  peer_store(s.peer, s.far, 77);
  EXPECT(peer_flush_fb(s.peer) == 0);
  EXPECT(peer_load(third, view) == 77);
  EXPECT(load_word(s.near) == 77);
}
STATEMENT(S_9dce83_closing_an_epoch_brings_its_stores_home) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  NEED(peer_open_fb(s.peer) == 0);
  peer_store(s.peer, s.far, 6);
  EXPECT(peer_close_fb(s.peer) == 0);
  EXPECT(load_word(s.near) == 6);
}
static void second_epoch(void) {
  cmi_fb epoch;
  begin();
  epoch = CALL0(open_fb);
  NEED(epoch != NULL);
  FAILS(CALL0(open_fb), NULL, CMI_ERR_BOUND);
  EXPECT(CALL(close_fb, epoch) == 0);
  EXPECT(CALL0(open_fb) != NULL);
}
STATEMENT(S_d5c3e3_one_epoch_per_thread) { second_epoch(); }
STATEMENT(S_09084e_a_second_epoch_is_bound) { second_epoch(); }
STATEMENT(E_open_fb_CMI_ERR_BOUND_an_epoch_is_open) { second_epoch(); }

struct writer {
  char* far;
  const char* near;
};
static void* store_and_flush(void* arg) {
  const struct writer* writer = arg;
  uint64_t i;
  cmi_fb epoch;
  EXPECT(CALL0(ini_th) == 0 && CALL(cmi_enb, 1) == 0);
  epoch = CALL0(open_fb);
  NEED(epoch != NULL);
  for (i = 1; i <= 50; ++i) {
    store_word(writer->far, i);
    EXPECT(CALL(flush_fb, epoch) == 0);
    EXPECT(load_word(writer->near) == i);
  }
  EXPECT(CALL(close_fb, epoch) == 0);
  EXPECT(CALL0(fini) == 0);
  return NULL;
}
STATEMENT(S_7ba14c_threads_have_epochs_of_their_own) {
  struct loop l;
  struct writer writers[2];
  pthread_t threads[2];
  size_t i;
  begin();
  l = loop();
  for (i = 0; i < 2; ++i) {
    writers[i].far = l.far + 8 * i; /* one page */
    writers[i].near = l.near + 8 * i;
    NEED(pthread_create(&threads[i], NULL, store_and_flush, &writers[i]) == 0);
  }
  for (i = 0; i < 2; ++i) NEED(pthread_join(threads[i], NULL) == 0);
}
STATEMENT(S_8ee653_an_epoch_at_home_succeeds) {
  cmi_fb epoch;
  char* view;
  begin();
  view = attach(new_segment(1));
  epoch = CALL0(open_fb);
  NEED(epoch != NULL);
  store_word(view, 1);
  EXPECT(CALL(flush_fb, epoch) == 0);
  EXPECT(CALL(close_fb, epoch) == 0);
}
STATEMENT(E_open_fb_CMI_ERR_NOMEM_no_memory_for_the_epoch) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  begin_with(&callbacks);
  heap.empty = true;
  FAILS(CALL0(open_fb), NULL, CMI_ERR_NOMEM);
}

/* Stores that their revoked token keeps from getting home. One that was home in time tells nothing,
 * and another is made; where the home's pages are mapped each is. True: the flush has failed. */
static bool lose_stores(struct shared* s) {
  int round;
  setenv("CMI_LOCAL", "off", 1);
  begin();
  *s = share(ALL_RIGHTS);
  NEED(peer_open_fb(s->peer) == 0);
  for (round = 0; round < 50; ++round) {
    NEED(peer_load(s->peer, s->far) == load_word(s->near));
    peer_store(s->peer, s->far, 100 + (uint64_t)round);
    NEED(CALL(tok_del, s->token) == 0);
    if (peer_flush_fb(s->peer) != 0) return true;
    s->token = new_token(s->home, ALL_RIGHTS);
    s->key = copy(s->token, s->key.size);
    NEED(peer_set_token(s->peer, s->import, &s->key) == 0);
  }
  return false;
}
static void lost_stores_are_store(void) {
  struct shared s;
  NEED(lose_stores(&s));
  EXPECT(peer_error(s.peer) == CMI_ERR_STORE);
}
STATEMENT(S_1da181_a_flush_that_lost_stores_is_store) { lost_stores_are_store(); }
STATEMENT(S_c1554c_a_synchronous_failure_is_told_by_store) { lost_stores_are_store(); }
STATEMENT(S_04e1d8_a_failure_while_flushing_is_told_to_the_thread) { lost_stores_are_store(); }
STATEMENT(E_flush_fb_CMI_ERR_STORE_stores_were_lost) { lost_stores_are_store(); }

static void lost_stores_are_told(void) {
  struct shared s;
  struct told told;
  NEED(lose_stores(&s));
  told = peer_event(s.peer);
  EXPECT(told.type == CMI_EVENT_STORE_FAILURE);
  EXPECT(told.segment == s.import);
  EXPECT(told.count == 1 && told.first_address == s.far);
}
STATEMENT(S_107778_an_event_follows_to_the_importer) { lost_stores_are_told(); }
STATEMENT(S_aeb770_that_event_is_store_failure) { lost_stores_are_told(); }
STATEMENT(S_074371_lost_stores_make_an_event) { lost_stores_are_told(); }
STATEMENT(S_f4c041_a_flush_that_fails_sends_the_event_too) { lost_stores_are_told(); }
STATEMENT(S_cf080e_the_event_names_the_addresses_of_lost_stores) { lost_stores_are_told(); }
STATEMENT(S_37697a_the_node_that_lost_contact_is_told) { lost_stores_are_told(); }
STATEMENT(S_5c0b90_later_access_raises_all_the_same) {
  struct shared s;
  NEED(lose_stores(&s));
  EXPECT(peer_event(s.peer).type == CMI_EVENT_STORE_FAILURE);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
}

/* ---- cflush ---- */

static void flush_lines(void) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  peer_store(s.peer, s.far, 4);
  EXPECT(peer_cflush(s.peer, s.far) == 0);
  EXPECT(load_word(s.near) == 4);
}
STATEMENT(S_647122_cflush_sends_the_named_lines_home) { flush_lines(); }
STATEMENT(S_ced779_they_are_home_when_cflush_returns) { flush_lines(); }
STATEMENT(S_1f21cf_cflush_needs_no_epoch_and_disturbs_none) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  peer_store(s.peer, s.far, 4);
  EXPECT(peer_cflush(s.peer, s.far) == 0);
  NEED(peer_open_fb(s.peer) == 0);
  peer_store(s.peer, s.far, 5);
  peer_store(s.peer, s.far + 4096, 6);
  EXPECT(peer_cflush(s.peer, s.far) == 0);
  EXPECT(load_word(s.near) == 5);
  EXPECT(peer_close_fb(s.peer) == 0);
  EXPECT(load_word(s.near + 4096) == 6);
}

/* ---- atm_cas ---- */

STATEMENT(S_9467cb_words_of_imports_and_of_home_segments_are_swapped) {
  struct shared s;
  uint64_t was = 99;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(CALL(atm_cas, (uint64_t*)(void*)s.near, 0, 1, &was) == 0 && was == 0);
  EXPECT(peer_atm_cas(s.peer, s.far, 1, 2, &was) == 0 && was == 1);
  EXPECT(peer_atm_cas(s.peer, s.far, 1, 3, &was) == 0 && was == 2);
  EXPECT(load_word(s.near) == 2);
}
STATEMENT(S_ca72ca_a_swap_uses_no_cached_value) {
  struct shared s;
  uint64_t was = 99;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(peer_load(s.peer, s.far) == 0); /* cached */
  store_word(s.near, 5);
  EXPECT(peer_atm_cas(s.peer, s.far, 5, 6, &was) == 0);
  EXPECT(was == 5 && load_word(s.near) == 6);
}
STATEMENT(S_8dabb8_the_result_of_a_swap_is_at_home) {
  struct shared s;
  uint64_t was = 99;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(peer_atm_cas(s.peer, s.far, 0, 6, &was) == 0);
  EXPECT(load_word(s.near) == 6);
}
STATEMENT(S_259b93_a_swap_without_access_raises) {
  struct shared s;
  uint64_t was;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(CALL(tok_del, s.token) == 0);
  EXPECT(peer_atm_cas(s.peer, s.far, 0, 6, &was) == 0);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  EXPECT(load_word(s.near) == 0);
}

static void* count_up(void* arg) {
  uint64_t* word = arg;
  int i;
  EXPECT(CALL0(ini_th) == 0 && CALL(cmi_enb, 1) == 0);
  for (i = 0; i < 100; ++i) {
    uint64_t expected = 0, was = 0;
    EXPECT(CALL(atm_cas, word, expected, expected + 1, &was) == 0);
    while (was != expected) {
      expected = was;
      EXPECT(CALL(atm_cas, word, expected, expected + 1, &was) == 0);
    }
  }
  EXPECT(CALL0(fini) == 0);
  return NULL;
}
STATEMENT(S_1c038c_clients_keep_data_consistent_with_swaps) {
  struct loop l;
  pthread_t threads[3];
  char* words[3];
  int i;
  begin();
  l = loop();
  words[0] = l.near, words[1] = l.far, words[2] = l.far;
  for (i = 0; i < 3; ++i) NEED(pthread_create(&threads[i], NULL, count_up, words[i]) == 0);
  for (i = 0; i < 3; ++i) NEED(pthread_join(threads[i], NULL) == 0);
  EXPECT(load_word(l.near) == 300);
}

/* ---- cmi_enb ---- */

STATEMENT(S_b42008_access_is_switched) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(peer_cmi_enb(s.peer, 0) == 0);
  (void)peer_load(s.peer, s.far + UNITS(2));
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_ENABLE));
  EXPECT(peer_cmi_enb(s.peer, 1) == 0);
  (void)peer_load(s.peer, s.far + UNITS(2));
  EXPECT(is(peer_fault(s.peer), 0));
}
static void not_enabled(void) {
  struct shared s;
  struct peer* neighbour;
  uint64_t view;
  begin();
  s = share(ALL_RIGHTS);
  neighbour = peer_start("far");
  view = peer_seg_at(neighbour, s.import, 0, 0);
  NEED(view != 0);
  (void)peer_load(neighbour, view);
  EXPECT(is(peer_fault(neighbour), CMI_ERROR_ENABLE));
  EXPECT(peer_cmi_enb(neighbour, 1) == 0);
  (void)peer_load(neighbour, view);
  EXPECT(is(peer_fault(neighbour), 0));
}
STATEMENT(S_059c32_each_thread_enables_itself) { not_enabled(); }
STATEMENT(S_49dafb_attached_and_with_token_but_not_enabled_raises) { not_enabled(); }
STATEMENT(S_7d72f7_access_may_be_open_for_a_while_only) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  peer_store(s.peer, s.far, 1);
  EXPECT(is(peer_fault(s.peer), 0));
  EXPECT(peer_cmi_enb(s.peer, 0) == 0);
  peer_store(s.peer, s.far + UNITS(1), 1);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_ENABLE));
}

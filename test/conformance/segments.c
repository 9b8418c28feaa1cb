/* Segments on their home node, and their lifetime. [cmi(5), CMI Segment, Segment Lifetime;
 * libcmi(3), seg_get, seg_at, seg_dt, seg_ctl] */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "conform.h"

/* ---- seg_get ---- */

STATEMENT(S_ec4524_seg_get_allocates_a_segment_on_this_node) {
  cmi_seg seg;
  char* view;
  begin();
  seg = new_segment(2);
  view = attach(seg);
  EXPECT(load_word(view) == 0 && load_word(view + UNITS(2) - 8) == 0);
  store_word(view, 5);
  EXPECT(load_word(view) == 5);
}

STATEMENT(S_b7993e_sizes_are_whole_protection_units) {
  begin();
  EXPECT(CALL(seg_get, UNITS(1), 0) > 0);
  EXPECT(CALL(seg_get, UNITS(7), 0) > 0);
  EXPECT(CALL(seg_get, UNITS(7) - 1, 0) == CMI_SEG_INVALID);
}
STATEMENT(S_6f9bad_ctl_info_tells_the_protection_unit) {
  begin();
  EXPECT(limits().prot_units > 0);
  EXPECT(CALL(seg_get, limits().prot_units, 0) > 0);
}
STATEMENT(S_0cbee5_a_broken_protection_unit_is_inval) {
  begin();
  FAILS(CALL(seg_get, UNITS(1) - 1, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  FAILS(CALL(seg_get, UNITS(3) + 8, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
}
STATEMENT(S_b53923_ctl_infos_unit_is_what_sizes_are_multiples_of) {
  begin();
  FAILS(CALL(seg_get, limits().prot_units + 1, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  EXPECT(CALL(seg_get, limits().prot_units * 2, 0) > 0);
}

STATEMENT(S_f1e17d_one_process_makes_many_segments) {
  cmi_seg segs[50];
  char* views[50];
  size_t i, k;
  begin();
  for (i = 0; i < 50; ++i) {
    segs[i] = new_segment(1);
    for (k = 0; k < i; ++k) EXPECT(segs[k] != segs[i]);
    views[i] = attach(segs[i]);
    store_word(views[i], i);
  }
  for (i = 0; i < 50; ++i) EXPECT(load_word(views[i]) == i);
}

static void* make_segments(void* arg) {
  int i;
  (void)arg;
  EXPECT(CALL0(ini_th) == 0);
  for (i = 0; i < 20; ++i) EXPECT(CALL(seg_get, 4096, 0) > 0);
  EXPECT(CALL0(fini) == 0);
  return NULL;
}
STATEMENT(S_a5b0f8_threads_allocate_at_the_same_time) {
  pthread_t threads[4];
  int i;
  begin();
  for (i = 0; i < 4; ++i) NEED(pthread_create(&threads[i], NULL, make_segments, NULL) == 0);
  for (i = 0; i < 4; ++i) NEED(pthread_join(threads[i], NULL) == 0);
}

STATEMENT(S_a1664f_segments_work_without_cmi_seg_lock) {
  char* view;
  begin();
  view = attach(new_segment(8));
  store_word(view + UNITS(7), 1);
  EXPECT(load_word(view + UNITS(7)) == 1);
}

static int32_t flags_of(cmi_seg seg) {
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  NEED(CALL(seg_ctl, seg, CMI_SEG_INFO, &ds) == 0);
  return ds.info.seg_flags;
}
STATEMENT(S_e14488_a_single_segment_may_be_client_consistent) {
  cmi_seg consistent, other;
  begin();
  consistent = CALL(seg_get, unit(), CMI_SEG_CLIENT_CONSIST);
  other = CALL(seg_get, unit(), 0);
  NEED(consistent > 0 && other > 0);
  EXPECT((flags_of(consistent) & CMI_SEG_CLIENT_CONSIST) != 0);
  EXPECT((flags_of(other) & CMI_SEG_CLIENT_CONSIST) == 0);
}
STATEMENT(S_6adf78_the_default_mode_can_be_changed) {
  begin();
  EXPECT(CALL(cmi_ctl, CMI_CTL_CLIENT_CONSIST, NULL) == 0);
  EXPECT((flags_of(new_segment(1)) & CMI_SEG_CLIENT_CONSIST) != 0);
}
STATEMENT(S_2296b4_single_segments_may_be_inconsistent_after_the_change) {
  cmi_seg seg;
  begin();
  EXPECT(CALL(cmi_ctl, CMI_CTL_CLIENT_CONSIST, NULL) == 0);
  EXPECT(CALL(cmi_ctl, CMI_CTL_CLIENT_CONSIST, NULL) == 0);
  seg = CALL(seg_get, unit(), CMI_SEG_CLIENT_INCONSIST);
  NEED(seg > 0);
  EXPECT((flags_of(seg) & CMI_SEG_CLIENT_CONSIST) == 0);
}

STATEMENT(E_seg_get_CMI_ERR_NOTSUPP_an_unknown_flag) {
  begin();
  FAILS(CALL(seg_get, unit(), 0x40000000), CMI_SEG_INVALID, CMI_ERR_NOTSUPP);
  FAILS(CALL(seg_get, unit(), CMI_SEG_READ), CMI_SEG_INVALID, CMI_ERR_NOTSUPP);
  FAILS(CALL(seg_get, unit(), CMI_SEG_WRITE_THROUGH), CMI_SEG_INVALID, CMI_ERR_NOTSUPP);
}

STATEMENT(E_seg_get_CMI_ERR_NOMEM_more_than_there_is) {
  NEED(setenv("CMI_MEM_MAX", "1M", 1) == 0);
  begin();
  FAILS(CALL(seg_get, (size_t)2 << 20, 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  EXPECT(CALL(seg_get, (size_t)1 << 20, 0) > 0);
  FAILS(CALL(seg_get, unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);
}
STATEMENT(S_4961a6_without_a_reservation_allocation_may_fail) {
  NEED(setenv("CMI_MEM_MAX", "64K", 1) == 0);
  begin();
  EXPECT(CALL(seg_get, limits().max_mem_avail, 0) > 0);
  FAILS(CALL(seg_get, unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);
}
STATEMENT(S_96fcc6_an_allocation_fails_when_memory_is_used_up) {
  cmi_seg seg;
  NEED(setenv("CMI_MEM_MAX", "64K", 1) == 0);
  begin();
  seg = CALL(seg_get, limits().max_mem_avail, 0);
  FAILS(CALL(seg_get, unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  EXPECT(remove_segment(seg) == 0);
  EXPECT(CALL(seg_get, unit(), 0) > 0);
}

STATEMENT(E_seg_get_CMI_ERR_PERM_no_access_to_the_node) {
  struct peer* peer;
  begin();
  peer = peer_start("home");
  if (!peer_lose_rights(peer)) skip("only root can become somebody else");
  EXPECT(peer_seg_get(peer, unit(), 0) == CMI_SEG_INVALID);
  EXPECT(peer_error(peer) == CMI_ERR_PERM);
}

/* ---- seg_at and seg_dt ---- */

STATEMENT(S_ee6bd6_processes_at_home_attach_and_detach) {
  struct peer* peer;
  cmi_seg seg;
  char* view;
  uint64_t there;
  begin();
  seg = new_segment(1);
  view = attach(seg);
  peer = peer_start("home");
  there = peer_seg_at(peer, seg, 0, 0);
  NEED(there != 0);
  peer_store(peer, there, 4711);
  EXPECT(load_word(view) == 4711);
  EXPECT(peer_seg_dt(peer, seg, there) == 0);
  (void)peer_load(peer, there);
  EXPECT(peer_fault(peer).caught);
}
STATEMENT(S_b96604_an_id_serves_every_process_of_the_node) {
  struct peer* peer;
  cmi_seg seg;
  begin();
  peer = peer_start("home");
  seg = peer_seg_get(peer, unit(), 0);
  NEED(seg > 0);
  EXPECT(CALL(seg_at, seg, NULL, 0) != NULL);
}
STATEMENT(S_150107_the_memory_behind_an_id_is_one_for_the_node) {
  struct peer *first, *second;
  cmi_seg seg;
  uint64_t one, two;
  begin();
  seg = new_segment(1);
  first = peer_start("home");
  second = peer_start("home");
  one = peer_seg_at(first, seg, 0, 0);
  two = peer_seg_at(second, seg, 0, 0);
  NEED(one != 0 && two != 0);
  peer_store(first, one, 12);
  EXPECT(peer_load(second, two) == 12);
}

STATEMENT(S_1838c4_null_lets_the_library_choose) {
  cmi_seg seg;
  char *one, *two;
  begin();
  seg = new_segment(1);
  one = attach(seg);
  two = attach(seg);
  EXPECT(one != two);
}
static void* free_range(size_t size) {
  void* at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(at != MAP_FAILED);
  NEED(munmap(at, size) == 0);
  return at;
}
STATEMENT(S_b3e6f0_an_aligned_address_is_taken) {
  cmi_seg seg;
  void* wanted;
  begin();
  seg = new_segment(2);
  wanted = free_range(UNITS(2));
  EXPECT(CALL(seg_at, seg, wanted, 0) == wanted);
}
STATEMENT(S_cf0126_a_misaligned_address_is_inval) {
  char* wanted;
  begin();
  wanted = free_range(UNITS(4));
  FAILS(CALL(seg_at, new_segment(1), wanted + 8, 0), NULL, CMI_ERR_INVAL);
  FAILS(CALL(seg_at, new_segment(1), wanted + limits().seg_alignment / 2, 0), NULL, CMI_ERR_INVAL);
}
STATEMENT(S_a2a943_attach_addresses_are_multiples_of_seg_align) {
  cmi_ds ds;
  cmi_seg seg;
  char* wanted;
  begin();
  seg = new_segment(1);
  NEED(CALL(seg_ctl, seg, CMI_SEG_INFO, &ds) == 0);
  wanted = free_range(4 * ds.info.seg_align);
  FAILS(CALL(seg_at, seg, wanted + ds.info.seg_align / 2, 0), NULL, CMI_ERR_INVAL);
}
STATEMENT(S_e4390e_ctl_infos_alignment_is_where_segments_go) {
  cmi_seg seg;
  char* wanted;
  size_t step;
  begin();
  step = limits().seg_alignment;
  NEED(step > 0);
  EXPECT((uintptr_t)attach(new_segment(1)) % step == 0);
  seg = new_segment(1);
  wanted = free_range(16 * step);
  wanted += step - (uintptr_t)wanted % step;
  EXPECT(CALL(seg_at, seg, wanted, 0) == wanted);
}
STATEMENT(S_fbbeff_an_address_off_that_alignment_is_inval) {
  char* wanted;
  begin();
  wanted = free_range(UNITS(4));
  FAILS(CALL(seg_at, new_segment(1), wanted + limits().seg_alignment / 2, 0), NULL, CMI_ERR_INVAL);
}

STATEMENT(S_7eacea_flags_change_the_attach) {
  cmi_seg seg;
  char *both, *reading;
  begin();
  seg = new_segment(1);
  both = attach(seg);
  reading = CALL(seg_at, seg, NULL, CMI_SEG_READ);
  NEED(reading != NULL);
  EXPECT(is(fault_of_store(both), 0));
  EXPECT(load_word(reading) == 1);
  EXPECT(is(fault_of_store(reading), CMI_ERROR_ACCESS));
}
STATEMENT(S_f983ad_a_store_through_a_view_for_reading_raises) {
  struct loop l;
  char* view;
  struct fault fault;
  begin();
  l = loop();
  view = CALL(seg_at, l.import, NULL, CMI_SEG_READ);
  NEED(view != NULL);
  fault = fault_of_store(view + 16);
  EXPECT(is(fault, CMI_ERROR_ACCESS));
  EXPECT(fault.segment == l.import && fault.address == (uint64_t)(uintptr_t)(view + 16));
  EXPECT(is(fault_of_load(view), 0));
}

STATEMENT(S_86e191_several_segments_attach_in_one_process) {
  char *one, *two, *three;
  begin();
  one = attach(new_segment(1));
  two = attach(new_segment(1));
  three = attach(new_segment(1));
  store_word(one, 1), store_word(two, 2), store_word(three, 3);
  EXPECT(load_word(one) == 1 && load_word(two) == 2 && load_word(three) == 3);
}
STATEMENT(S_d2d5d8_one_segment_attaches_at_several_addresses) {
  cmi_seg seg;
  char *one, *two;
  begin();
  seg = new_segment(1);
  one = attach(seg);
  two = CALL(seg_at, seg, NULL, CMI_SEG_READ);
  NEED(two != NULL);
  store_word(one, 9);
  EXPECT(one != two && load_word(two) == 9);
}

static void attach_here(void* arg) {
  char* view;
  EXPECT(CALL0(ini_th) == 0);
  view = CALL(seg_at, *(cmi_seg*)arg, NULL, 0);
  NEED(view != NULL);
  store_word(view, 42);
  EXPECT(CALL0(fini) == 0);
}
STATEMENT(S_760cfb_any_registered_thread_attaches) {
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  in_thread(attach_here, &seg);
  EXPECT(load_word(attach(seg)) == 42);
}
struct view {
  cmi_seg seg;
  char* at;
};
static void detach_here(void* arg) {
  const struct view* view = arg;
  EXPECT(CALL0(ini_th) == 0);
  EXPECT(CALL(seg_dt, view->seg, view->at) == 0);
  EXPECT(CALL0(fini) == 0);
}
STATEMENT(S_5ac347_any_registered_thread_detaches) {
  struct view view;
  begin();
  view.seg = new_segment(1);
  view.at = attach(view.seg);
  in_thread(detach_here, &view);
  EXPECT(fault_of_load(view.at).caught);
}
static void* attach_and_detach(void* arg) {
  int i;
  EXPECT(CALL0(ini_th) == 0);
  for (i = 0; i < 30; ++i) {
    char* view = CALL(seg_at, *(cmi_seg*)arg, NULL, 0);
    NEED(view != NULL);
    store_word(view + 8 * i, 1);
    EXPECT(CALL(seg_dt, *(cmi_seg*)arg, view) == 0);
  }
  EXPECT(CALL0(fini) == 0);
  return NULL;
}
static void four_attach_and_detach(void) {
  pthread_t threads[4];
  cmi_seg seg;
  int i;
  begin();
  seg = new_segment(1);
  for (i = 0; i < 4; ++i) NEED(pthread_create(&threads[i], NULL, attach_and_detach, &seg) == 0);
  for (i = 0; i < 4; ++i) NEED(pthread_join(threads[i], NULL) == 0);
}
STATEMENT(S_675d56_threads_attach_at_the_same_time) { four_attach_and_detach(); }
STATEMENT(S_028933_threads_detach_at_the_same_time) { four_attach_and_detach(); }

STATEMENT(S_7d9bd7_segment_and_address_come_from_seg_at) {
  cmi_seg seg, other;
  char* view;
  begin();
  seg = new_segment(2);
  other = new_segment(2);
  view = attach(seg);
  FAILS(CALL(seg_dt, other, view), -1, CMI_ERR_INVAL);
  FAILS(CALL(seg_dt, seg, view + unit()), -1, CMI_ERR_INVAL);
  EXPECT(CALL(seg_dt, seg, view) == 0);
  FAILS(CALL(seg_dt, seg, view), -1, CMI_ERR_INVAL);
}
STATEMENT(S_3e8c26_access_after_a_detach_faults) {
  cmi_seg seg;
  char* view;
  begin();
  seg = new_segment(1);
  view = attach(seg);
  EXPECT(CALL(seg_dt, seg, view) == 0);
  EXPECT(fault_of_load(view).caught && !is(fault_of_load(view), CMI_ERROR_SINVAL));
  EXPECT(fault_of_store(view).caught);
}

STATEMENT(E_seg_at_CMI_ERR_NOTSUPP_an_unknown_flag) {
  begin();
  FAILS(CALL(seg_at, new_segment(1), NULL, 0x40000000), NULL, CMI_ERR_NOTSUPP);
  FAILS(CALL(seg_at, new_segment(1), NULL, CMI_SEG_LOCK), NULL, CMI_ERR_NOTSUPP);
}
STATEMENT(E_seg_at_CMI_ERR_NOMEM_the_range_is_in_use) {
  char* taken;
  begin();
  taken = attach(new_segment(1));
  store_word(taken, 3);
  FAILS(CALL(seg_at, new_segment(1), taken, 0), NULL, CMI_ERR_NOMEM);
  EXPECT(load_word(taken) == 3);
}
STATEMENT(E_seg_at_CMI_ERR_PERM_no_access_to_the_segment) {
  struct peer* peer;
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  peer = peer_start("home");
  if (!peer_lose_rights(peer)) skip("only root can become somebody else");
  EXPECT(peer_seg_at(peer, seg, 0, 0) == 0);
  EXPECT(peer_error(peer) == CMI_ERR_PERM);
}

/* ---- seg_ctl ---- */

STATEMENT(S_159576_info_works_at_home_and_on_imports) {
  struct loop l;
  cmi_ds home, import;
  begin();
  l = loop();
  memset(&home, 0, sizeof home);
  memset(&import, 0, sizeof import);
  EXPECT(CALL(seg_ctl, l.home, CMI_SEG_INFO, &home) == 0);
  EXPECT(CALL(seg_ctl, l.import, CMI_SEG_INFO, &import) == 0);
  EXPECT(home.info.seg_sz == UNITS(4) && import.info.seg_sz == UNITS(4));
  EXPECT(home.info.seg_align == import.info.seg_align);
  EXPECT(home.info.seg_flags == import.info.seg_flags);
}
STATEMENT(S_36d5a0_infos_alignment_is_that_of_ctl_info) {
  cmi_ds ds;
  begin();
  NEED(CALL(seg_ctl, new_segment(1), CMI_SEG_INFO, &ds) == 0);
  EXPECT(ds.info.seg_align == limits().seg_alignment);
}

STATEMENT(E_seg_ctl_CMI_ERR_PERM_not_the_maker_or_importer) {
  struct peer* peer;
  struct loop l;
  cmi_ds ds;
  begin();
  l = loop();
  peer = peer_start("home");
  EXPECT(peer_seg_rm(peer, l.home) == -1 && peer_error(peer) == CMI_ERR_PERM);
  EXPECT(peer_seg_rm(peer, l.import) == -1 && peer_error(peer) == CMI_ERR_PERM);
  memset(&ds, 0, sizeof ds);
  ds.reco.reco_addr = l.near;
  ds.reco.reco_size = unit();
  EXPECT(peer_seg_ctl(peer, l.home, CMI_SEG_CHECK, &ds) == -1 && peer_error(peer) == CMI_ERR_PERM);
  EXPECT(peer_seg_ctl(peer, l.home, CMI_SEG_RECO, &ds) == -1 && peer_error(peer) == CMI_ERR_PERM);
}

/* ---- Lifetime ---- */

static bool is_gone(void* arg) {
  cmi_ds ds;
  return CALL(seg_ctl, *(cmi_seg*)arg, CMI_SEG_STATUS, &ds) != 0;
}

STATEMENT(S_a913b4_removal_by_command_or_by_the_end_of_its_maker) {
  cmi_seg ours, theirs;
  struct peer* peer;
  begin();
  ours = new_segment(1);
  EXPECT(remove_segment(ours) == 0);
  FAILS(CALL(seg_at, ours, NULL, 0), NULL, CMI_ERR_INVAL);
  peer = peer_start("home");
  theirs = peer_seg_get(peer, unit(), 0);
  (void)attach(theirs);
  EXPECT(peer_end(peer) == 0);
  FAILS(CALL(seg_at, theirs, NULL, 0), NULL, CMI_ERR_INVAL);
  EXPECT((status_of(theirs) & CMI_SEG_ST_REMOVED) != 0);
}
STATEMENT(S_c71869_however_its_maker_ends) {
  cmi_seg seg;
  char* view;
  struct peer* peer;
  begin();
  peer = peer_start("home");
  seg = peer_seg_get(peer, unit(), 0);
  view = attach(seg);
  peer_kill(peer);
  FAILS(CALL(seg_at, seg, NULL, 0), NULL, CMI_ERR_INVAL);
  EXPECT(CALL(seg_dt, seg, view) == 0);
  EXPECT(until(is_gone, &seg));
}
STATEMENT(S_a896b5_nobody_attaches_after_the_mark) {
  cmi_seg seg;
  struct peer *old, *young;
  begin();
  seg = new_segment(1);
  (void)attach(seg);
  old = peer_start("home");
  EXPECT(remove_segment(seg) == 0);
  young = peer_start("home");
  FAILS(CALL(seg_at, seg, NULL, 0), NULL, CMI_ERR_INVAL);
  EXPECT(peer_seg_at(old, seg, 0, 0) == 0 && peer_error(old) == CMI_ERR_INVAL);
  EXPECT(peer_seg_at(young, seg, 0, 0) == 0 && peer_error(young) == CMI_ERR_INVAL);
}
STATEMENT(S_8f9f2b_views_made_before_the_mark_stay) {
  cmi_seg seg;
  char* view;
  begin();
  seg = new_segment(1);
  view = attach(seg);
  EXPECT(remove_segment(seg) == 0);
  store_word(view, 6);
  EXPECT(load_word(view) == 6);
  EXPECT(CALL(seg_dt, seg, view) == 0);
}
STATEMENT(S_8f8192_a_segment_is_freed_with_its_last_detach) {
  cmi_seg seg;
  char *one, *two;
  size_t before;
  begin();
  before = limits().max_mem_avail;
  seg = new_segment(4);
  one = attach(seg);
  two = attach(seg);
  EXPECT(remove_segment(seg) == 0);
  EXPECT(CALL(seg_dt, seg, one) == 0);
  EXPECT(limits().max_mem_avail < before);
  EXPECT(CALL(seg_dt, seg, two) == 0);
  EXPECT(limits().max_mem_avail == before);
  EXPECT(is_gone(&seg));
}
STATEMENT(S_ddcb7e_resources_go_with_the_last_process_that_detaches) {
  struct peer* peer;
  cmi_seg seg;
  uint64_t there;
  size_t before;
  begin();
  before = limits().max_mem_avail;
  seg = new_segment(4);
  peer = peer_start("home");
  there = peer_seg_at(peer, seg, 0, 0);
  NEED(there != 0);
  EXPECT(remove_segment(seg) == 0);
  EXPECT(limits().max_mem_avail < before);
  EXPECT(peer_seg_dt(peer, seg, there) == 0);
  EXPECT(limits().max_mem_avail == before);
}
STATEMENT(S_b88a91_its_maker_or_importer_removes_it) {
  struct loop l;
  begin();
  l = loop();
  EXPECT(remove_segment(l.import) == 0);
  EXPECT((status_of(l.import) & CMI_SEG_ST_REMOVED) != 0);
  EXPECT((status_of(l.home) & CMI_SEG_ST_REMOVED) == 0);
  EXPECT(remove_segment(l.home) == 0);
  EXPECT((status_of(l.home) & CMI_SEG_ST_REMOVED) != 0);
}
STATEMENT(S_25899f_an_id_is_not_reused_before_the_last_detach) {
  cmi_seg seg, other;
  int i;
  begin();
  seg = new_segment(1);
  (void)attach(seg);
  EXPECT(remove_segment(seg) == 0);
  for (i = 0; i < 200; ++i) {
    other = new_segment(1);
    EXPECT(other != seg);
    EXPECT(remove_segment(other) == 0);
  }
}

STATEMENT(S_d03754_no_remote_access_after_the_mark) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  store_word(s.near, 1);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(s.peer, s.far) == 1);
  EXPECT(remove_segment(s.home) == 0);
  EXPECT(peer_load(s.peer, s.far) == 0 && peer_fault(s.peer).caught);
  peer_store(s.peer, s.far, 5);
  EXPECT(peer_fault(s.peer).caught);
  EXPECT(load_word(s.near) == 1);
}
STATEMENT(S_41cbf3_the_tokens_of_a_removed_segment_are_gone) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(remove_segment(s.home) == 0);
  EXPECT(CALL(tok_new, s.home, CMI_NADDR_ANY, CMI_ACC_READ) == NULL);
  (void)peer_set_token(s.peer, s.import, &s.key);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
}
STATEMENT(S_3a67a5_remote_access_then_raises_token) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(remove_segment(s.home) == 0);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  EXPECT(is(fault_of_store(s.near), 0)); /* needs no token */
}
static bool raises_sinval(void* arg) {
  const struct shared* s = arg;
  (void)peer_load(s->peer, s->far);
  return is(peer_fault(s->peer), CMI_ERROR_SINVAL);
}
STATEMENT(S_348c96_and_sinval_after_the_last_detach_at_home) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(remove_segment(s.home) == 0);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  EXPECT(CALL(seg_dt, s.home, s.near) == 0);
  EXPECT(until(raises_sinval, &s));
}
STATEMENT(S_aaca65_exceptions_still_come_for_a_removed_segment) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(remove_segment(s.home) == 0);
  peer_store(s.peer, s.far + 8, 1);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  EXPECT(peer_fault(s.peer).segment == s.import);
  EXPECT(peer_fault(s.peer).address == s.far + 8);
}
STATEMENT(S_8c9004_a_store_to_a_removed_segment_raises_the_right_error) {
  struct shared s;
  begin();
  s = share(CMI_ACC_READ | CMI_ACC_WRITE);
  EXPECT(CALL(tok_del, s.token) == 0);
  EXPECT(remove_segment(s.home) == 0);
  peer_store(s.peer, s.far, 1);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
}

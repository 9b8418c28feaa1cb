/* Extensible segments. [cmi(5), Extensible Segments; libcmi(3), seg_get, seg_ctl with CMI_SEG_BRK]
 */
#include <stdlib.h>

#include "conform.h"

static int set_break(cmi_seg seg, size_t bytes) {
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  ds.brk.seg_brksz = bytes;
  return CALL(seg_ctl, seg, CMI_SEG_BRK, &ds);
}
static size_t break_of(cmi_seg seg) {
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  NEED(CALL(seg_ctl, seg, CMI_SEG_INFO, &ds) == 0);
  return ds.info.seg_brk;
}
static cmi_seg extensible(size_t units) {
  const cmi_seg seg = CALL(seg_get, UNITS(units), CMI_SEG_EXTENSIBLE);
  NEED(seg > 0);
  return seg;
}

STATEMENT(S_14ee34_a_capability_tells_that_they_work) {
  begin();
  EXPECT((ctxt->caps & CMI_CAP_EXTENSIBLE_SEGMENTS) != 0);
  EXPECT(set_break(extensible(4), UNITS(1)) == 0);
}
STATEMENT(S_bf4e49_maximal_sizes_may_add_up_beyond_memory) {
  cmi_seg one, two;
  NEED(setenv("CMI_MEM_MAX", "64K", 1) == 0);
  begin();
  one = extensible(16);
  two = extensible(16);
  EXPECT(set_break(one, UNITS(8)) == 0);
  EXPECT(set_break(two, UNITS(8)) == 0);
}
STATEMENT(S_12dcf0_memory_moves_from_one_segment_to_another) {
  cmi_seg one, two;
  NEED(setenv("CMI_MEM_MAX", "64K", 1) == 0);
  begin();
  one = extensible(16);
  two = extensible(16);
  EXPECT(set_break(one, UNITS(16)) == 0);
  EXPECT(set_break(one, UNITS(4)) == 0);
  EXPECT(set_break(two, UNITS(12)) == 0);
}
STATEMENT(S_5b7329_memory_in_use_never_exceeds_what_there_is) {
  cmi_seg one, two;
  NEED(setenv("CMI_MEM_MAX", "64K", 1) == 0);
  begin();
  one = extensible(16);
  two = extensible(16);
  EXPECT(set_break(one, UNITS(12)) == 0);
  FAILS(set_break(two, UNITS(5)), -1, CMI_ERR_NOMEM);
  EXPECT(break_of(two) == 0);
  EXPECT(set_break(two, UNITS(4)) == 0);
  EXPECT(limits().max_mem_avail == 0);
}
static void no_memory_to_grow(void) {
  cmi_seg seg;
  NEED(setenv("CMI_MEM_MAX", "64K", 1) == 0);
  begin();
  seg = extensible(16);
  (void)new_segment(8);
  FAILS(set_break(seg, UNITS(9)), -1, CMI_ERR_NOMEM);
  EXPECT(set_break(seg, UNITS(8)) == 0);
}
STATEMENT(S_4d3921_no_memory_to_grow_is_nomem) { no_memory_to_grow(); }
STATEMENT(E_seg_ctl_CMI_ERR_NOMEM_no_memory_to_grow) { no_memory_to_grow(); }

static void up_and_down(void) {
  cmi_seg seg;
  char* view;
  begin();
  seg = extensible(8);
  view = attach(seg);
  EXPECT(set_break(seg, UNITS(4)) == 0 && break_of(seg) == UNITS(4));
  store_word(view + UNITS(3), 5);
  EXPECT(set_break(seg, UNITS(8)) == 0 && break_of(seg) == UNITS(8));
  EXPECT(load_word(view + UNITS(3)) == 5);
  store_word(view + UNITS(7), 6);
  EXPECT(set_break(seg, UNITS(1)) == 0 && break_of(seg) == UNITS(1));
  EXPECT(is(fault_of_load(view), 0));
  EXPECT(is(fault_of_load(view + UNITS(1)), CMI_ERROR_SEG_BRK));
  EXPECT(set_break(seg, 0) == 0 && break_of(seg) == 0);
  EXPECT(is(fault_of_load(view), CMI_ERROR_SEG_BRK));
}
STATEMENT(S_7bef10_segments_grow_and_shrink) { up_and_down(); }
STATEMENT(S_cf0455_resizing_at_run_time) { up_and_down(); }
STATEMENT(S_61bbca_the_break_may_go_down) { up_and_down(); }
STATEMENT(S_08a457_resizing_moves_no_mapping) { up_and_down(); }

static void broken_unit(void) {
  cmi_seg seg;
  begin();
  seg = extensible(4);
  EXPECT(set_break(seg, UNITS(2)) == 0);
  FAILS(set_break(seg, UNITS(2) + 8), -1, CMI_ERR_INVAL);
  FAILS(set_break(seg, UNITS(3) - 1), -1, CMI_ERR_INVAL);
  EXPECT(break_of(seg) == UNITS(2));
}
STATEMENT(S_353541_breaks_are_whole_protection_units) { broken_unit(); }
STATEMENT(S_7d6ce3_a_break_is_a_multiple_of_the_unit) { broken_unit(); }
STATEMENT(S_35630b_another_size_fails) { broken_unit(); }
STATEMENT(S_0210e4_a_broken_unit_is_inval) { broken_unit(); }

static void beyond_maximum(void) {
  cmi_seg seg;
  begin();
  seg = extensible(4);
  FAILS(set_break(seg, UNITS(5)), -1, CMI_ERR_INVAL);
  EXPECT(set_break(seg, UNITS(4)) == 0);
}
STATEMENT(S_864e16_a_break_beyond_the_maximum_is_inval) { beyond_maximum(); }
STATEMENT(S_7bf1b4_the_maximum_bounds_the_break) { beyond_maximum(); }
STATEMENT(S_983bc9_the_maximal_size_is_fixed_when_made) {
  cmi_ds ds;
  cmi_seg seg;
  begin();
  seg = extensible(4);
  EXPECT(set_break(seg, UNITS(2)) == 0);
  NEED(CALL(seg_ctl, seg, CMI_SEG_INFO, &ds) == 0);
  EXPECT(ds.info.seg_sz == UNITS(4) && ds.info.seg_brk == UNITS(2));
  FAILS(set_break(seg, UNITS(8)), -1, CMI_ERR_INVAL);
}

static void normal_segment(void) {
  cmi_seg seg;
  begin();
  seg = new_segment(4);
  FAILS(set_break(seg, UNITS(2)), -1, CMI_ERR_INVAL);
  EXPECT(break_of(seg) == UNITS(4));
}
STATEMENT(S_073b5f_a_normal_segment_has_no_break) { normal_segment(); }
STATEMENT(S_635a66_a_segment_is_made_extensible_or_normal) { normal_segment(); }
STATEMENT(S_aae061_and_stays_so) { normal_segment(); }

static void no_access_before_a_break(void) {
  cmi_seg seg;
  char* view;
  struct fault fault;
  begin();
  seg = extensible(4);
  EXPECT(break_of(seg) == 0);
  view = attach(seg);
  fault = fault_of_store(view + 8);
  EXPECT(is(fault, CMI_ERROR_SEG_BRK));
  EXPECT(fault.segment == seg && fault.address == (uint64_t)(uintptr_t)(view + 8));
  EXPECT(set_break(seg, UNITS(1)) == 0);
  EXPECT(is(fault_of_store(view + 8), 0));
}
STATEMENT(S_bc0146_no_access_before_a_break_is_set) { no_access_before_a_break(); }
STATEMENT(S_5e976f_a_new_one_has_size_0_and_its_maker_extends_it) { no_access_before_a_break(); }
STATEMENT(S_3e2be4_access_past_the_break_raises) { no_access_before_a_break(); }

STATEMENT(S_de490c_growth_is_filled_with_zeros) {
  cmi_seg seg;
  char* view;
  size_t i;
  begin();
  seg = extensible(2);
  view = attach(seg);
  EXPECT(set_break(seg, UNITS(2)) == 0);
  memset(view, 0xff, UNITS(2));
  EXPECT(set_break(seg, UNITS(1)) == 0);
  EXPECT(set_break(seg, UNITS(2)) == 0);
  for (i = 0; i < UNITS(1); i += 8) EXPECT(load_word(view + UNITS(1) + i) == 0);
  EXPECT(load_word(view) == UINT64_MAX);
}
STATEMENT(S_c68abf_shrinking_frees_memory) {
  cmi_seg seg;
  size_t before;
  begin();
  seg = extensible(16);
  before = limits().max_mem_avail;
  EXPECT(set_break(seg, UNITS(16)) == 0);
  EXPECT(before - limits().max_mem_avail == UNITS(16));
  EXPECT(set_break(seg, UNITS(4)) == 0);
  EXPECT(before - limits().max_mem_avail == UNITS(4));
}

/* A segment of eight units, its break at four, with an importer on another node. */
static struct shared share_extensible(void) {
  struct shared s;
  begin();
  s.home = extensible(8);
  s.near = attach(s.home);
  s.handle = export_of(s.home);
  s.token = new_token(s.home, ALL_RIGHTS);
  s.key = copy(s.token, attribute(s.home, CMI_ATTR_TOKEN_SIZE));
  s.peer = peer_start("far");
  s.import = peer_seg_imp(s.peer, &s.handle);
  NEED(s.import > 0);
  NEED(peer_set_token(s.peer, s.import, &s.key) == 0);
  s.far = peer_seg_at(s.peer, s.import, 0, 0);
  NEED(s.far != 0);
  NEED(peer_cmi_enb(s.peer, 1) == 0);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_SEG_BRK));
  NEED(set_break(s.home, UNITS(4)) == 0);
  return s;
}
static void import_before_break(void) {
  struct shared s = share_extensible();
  peer_store(s.peer, s.far + UNITS(3), 9);
  EXPECT(is(peer_fault(s.peer), 0));
  EXPECT(peer_wmb(s.peer) == 0);
  EXPECT(load_word(s.near + UNITS(3)) == 9);
}
STATEMENT(S_413b2b_export_and_import_as_for_normal_segments) { import_before_break(); }
STATEMENT(S_6a6551_exporting_and_attaching_need_no_memory_yet) { import_before_break(); }
STATEMENT(S_3c6b21_import_and_attach_may_come_before_the_break) { import_before_break(); }
STATEMENT(S_ac7432_tokens_as_for_normal_segments) { import_before_break(); }
STATEMENT(S_95e368_an_attach_maps_the_maximal_size) {
  struct shared s = share_extensible();
  EXPECT(set_break(s.home, UNITS(8)) == 0);
  store_word(s.near + UNITS(7), 3);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(s.peer, s.far + UNITS(7)) == 3);
}
STATEMENT(S_0fc344_access_past_the_break_raises_for_importers) {
  struct shared s = share_extensible();
  (void)peer_load(s.peer, s.far + UNITS(4));
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_SEG_BRK));
  peer_store(s.peer, s.far + UNITS(7), 1);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_SEG_BRK));
  EXPECT(peer_fault(s.peer).segment == s.import);
}
STATEMENT(S_33a973_after_growth_all_who_are_attached_use_it) {
  struct shared s = share_extensible();
  (void)peer_load(s.peer, s.far + UNITS(6));
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_SEG_BRK));
  EXPECT(set_break(s.home, UNITS(7)) == 0);
  peer_store(s.peer, s.far + UNITS(6), 4);
  EXPECT(is(peer_fault(s.peer), 0));
  EXPECT(peer_wmb(s.peer) == 0);
  EXPECT(load_word(s.near + UNITS(6)) == 4);
}
static void shrunk_everywhere(void) {
  struct shared s = share_extensible();
  EXPECT(peer_load(s.peer, s.far + UNITS(3)) == 0); /* cached there */
  EXPECT(set_break(s.home, UNITS(2)) == 0);
  (void)peer_load(s.peer, s.far + UNITS(3));
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_SEG_BRK));
  EXPECT(is(fault_of_load(s.near + UNITS(3)), CMI_ERROR_SEG_BRK));
  (void)peer_load(s.peer, s.far + UNITS(1));
  EXPECT(is(peer_fault(s.peer), 0));
}
STATEMENT(S_a4a79f_after_shrinking_access_past_the_break_raises_everywhere) { shrunk_everywhere(); }
STATEMENT(S_ca9da9_seg_brk_is_for_extensible_segments) { shrunk_everywhere(); }

static void others_set_no_break(void) {
  struct shared s = share_extensible();
  struct peer* neighbour = peer_start("home");
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  ds.brk.seg_brksz = UNITS(8);
  EXPECT(peer_seg_ctl(neighbour, s.home, CMI_SEG_BRK, &ds) == -1);
  EXPECT(peer_error(neighbour) == CMI_ERR_PERM);
  EXPECT(peer_seg_ctl(s.peer, s.import, CMI_SEG_BRK, &ds) == -1);
  EXPECT(break_of(s.home) == UNITS(4));
}
STATEMENT(S_6a3413_only_the_maker_at_home_resizes) { others_set_no_break(); }
STATEMENT(S_4788e3_only_the_maker_sets_the_break) { others_set_no_break(); }
STATEMENT(E_seg_ctl_CMI_ERR_PERM_another_process_sets_the_break) { others_set_no_break(); }

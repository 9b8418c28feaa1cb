/* Exports, handles and imports. [cmi(5), CMI Segment; libcmi(3), seg_exp, rseg_del, seg_imp] */
#include "conform.h"

STATEMENT(S_64c9ba_a_handle_serves_every_node) {
  struct flat handle;
  begin();
  handle = export_of(new_segment(1));
  EXPECT(peer_seg_imp(peer_start("one"), &handle) > 0);
  EXPECT(peer_seg_imp(peer_start("two"), &handle) > 0);
}
STATEMENT(S_cfc6f4_what_a_handle_names_is_seen_in_the_whole_cluster) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  store_word(s.near, 81);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(s.peer, s.far) == 81);
}
STATEMENT(S_64b4f0_remote_processes_reach_a_segment) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  peer_store(s.peer, s.far, 4);
  EXPECT(peer_wmb(s.peer) == 0);
  EXPECT(load_word(s.near) == 4);
}
STATEMENT(S_ae7b73_an_export_is_reached_over_the_network) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  store_word(s.near + 4096, 3);
  EXPECT(CALL0(mb_fn) == 0);
  EXPECT(peer_load(s.peer, s.far + 4096) == 3);
}
STATEMENT(S_211d25_export_comes_before_remote_access) {
  cmi_seg seg;
  struct flat handle;
  begin();
  seg = new_segment(1);
  EXPECT((status_of(seg) & CMI_SEG_ST_EXPORTED) == 0);
  handle = export_of(seg);
  EXPECT((status_of(seg) & CMI_SEG_ST_EXPORTED) != 0);
  EXPECT(peer_seg_imp(peer_start("far"), &handle) > 0);
}
static void without_import(void) {
  struct peer* peer;
  cmi_seg seg;
  struct flat token;
  begin();
  seg = new_segment(1);
  (void)export_of(seg);
  token = token_of(seg, ALL_RIGHTS);
  peer = peer_start("far");
  EXPECT(peer_seg_at(peer, seg, 0, 0) == 0 && peer_error(peer) == CMI_ERR_INVAL);
  EXPECT(peer_set_token(peer, seg, &token) == -1 && peer_error(peer) == CMI_ERR_INVAL);
}
STATEMENT(S_b9f06f_import_comes_before_an_attach_elsewhere) { without_import(); }
STATEMENT(S_ba8e9e_without_import_there_is_no_access) { without_import(); }
STATEMENT(S_ff7055_an_id_of_another_node_attaches_nothing) { without_import(); }

STATEMENT(S_0423ef_handles_travel_as_bytes) {
  struct flat handle;
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  handle = export_of(seg);
  EXPECT(CALL(rseg_del, (cmi_rseg*)(void*)handle.bytes) == 0);
  EXPECT(peer_seg_imp(peer_start("far"), &handle) > 0);
}
STATEMENT(S_d55d40_attr_get_tells_a_handles_size) {
  struct flat handle;
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  handle = export_of(seg);
  EXPECT(handle.size == attribute(seg, CMI_ATTR_RSEG_SIZE));
  EXPECT(peer_seg_imp(peer_start("far"), &handle) > 0);
}
STATEMENT(S_3b2458_a_handle_may_be_longer_than_its_structure) {
  begin();
  EXPECT(attribute(new_segment(1), CMI_ATTR_RSEG_SIZE) >= sizeof(cmi_rseg));
}
STATEMENT(S_7936f1_attr_get_tells_a_tokens_size) {
  cmi_seg seg;
  struct loop l;
  begin();
  seg = new_segment(1);
  EXPECT(attribute(seg, CMI_ATTR_TOKEN_SIZE) >= sizeof(cmi_token));
  l = loop();
  EXPECT(attribute(l.import, CMI_ATTR_TOKEN_SIZE) == attribute(l.home, CMI_ATTR_TOKEN_SIZE));
}
static unsigned little(const unsigned char* bytes, size_t size) {
  unsigned value = 0;
  while (size-- > 0) value = value << 8 | bytes[size];
  return value;
}
STATEMENT(S_cf4016_objects_are_little_endian_on_every_machine) {
  struct flat objects[3];
  cmi_seg seg;
  size_t i;
  begin();
  seg = new_segment(1);
  objects[0] = export_of(seg);
  objects[1] = token_of(seg, CMI_ACC_READ);
  objects[2] = copy(ctxt->naddr, attribute(0, CMI_ATTR_NODEADDR_SIZE));
  for (i = 0; i < 3; ++i) {
    EXPECT(little(objects[i].bytes, 2) == CMI_VERNO);
    EXPECT(little(objects[i].bytes + 2, 2) == CMI_VENDOR_OFI);
    EXPECT(little(objects[i].bytes + 4, 4) == CMI_DEVICE_SOFT);
  }
}

static void foreign_export(void) {
  struct peer* peer;
  struct flat handle;
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  peer = peer_start("home");
  EXPECT(peer_seg_exp(peer, seg, &handle) == -1);
  EXPECT(peer_error(peer) == CMI_ERR_PERM);
}
STATEMENT(S_2f9ecb_only_the_maker_exports) { foreign_export(); }
STATEMENT(E_seg_exp_CMI_ERR_PERM_not_the_maker) { foreign_export(); }

static void export_of_an_import(void) {
  struct loop l;
  begin();
  l = loop();
  FAILS(CALL(seg_exp, l.import, 0), NULL, CMI_ERR_INVAL);
}
STATEMENT(S_2e8ced_only_a_segment_of_seg_get_is_exported) { export_of_an_import(); }
STATEMENT(S_4843ed_an_import_is_not_exported) { export_of_an_import(); }
STATEMENT(S_3e3c3f_exporting_an_import_is_inval) { export_of_an_import(); }

STATEMENT(E_seg_exp_CMI_ERR_NOTSUPP_an_unknown_attribute) {
  begin();
  FAILS(CALL(seg_exp, new_segment(1), 0x40000000), NULL, CMI_ERR_NOTSUPP);
  FAILS(CALL(seg_exp, new_segment(1), CMI_SEG_READ), NULL, CMI_ERR_NOTSUPP);
}
STATEMENT(E_seg_exp_CMI_ERR_NOMEM_no_memory_for_the_handle) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  cmi_seg seg;
  begin_with(&callbacks);
  seg = new_segment(1);
  heap.empty = true;
  FAILS(CALL(seg_exp, seg, 0), NULL, CMI_ERR_NOMEM);
  heap.empty = false;
  EXPECT(CALL(seg_exp, seg, 0) != NULL);
}

STATEMENT(S_dfc0d8_a_segment_is_exported_many_times) {
  cmi_rseg *one, *two;
  cmi_seg seg;
  struct flat handle;
  begin();
  seg = new_segment(1);
  one = CALL(seg_exp, seg, 0);
  two = CALL(seg_exp, seg, 0);
  NEED(one != NULL && two != NULL);
  EXPECT(one != two);
  EXPECT(limits().cur_exp_segs == 1);
  handle = copy(two, attribute(seg, CMI_ATTR_RSEG_SIZE));
  EXPECT(CALL(rseg_del, one) == 0);
  EXPECT(import(&handle) > 0);
  EXPECT(CALL(rseg_del, two) == 0);
}

STATEMENT(S_8be129_rseg_del_closes_no_access) {
  struct shared s;
  struct flat handle;
  begin();
  s = share(ALL_RIGHTS);
  handle = s.handle;
  EXPECT(CALL(rseg_del, (cmi_rseg*)(void*)handle.bytes) == 0);
  store_word(s.near, 2);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(s.peer, s.far) == 2);
  EXPECT(peer_seg_imp(s.peer, &s.handle) > 0);
}
STATEMENT(S_8cdebc_rseg_del_frees_no_segment) {
  cmi_seg seg;
  cmi_rseg* handle;
  char* view;
  begin();
  seg = new_segment(1);
  view = attach(seg);
  handle = CALL(seg_exp, seg, 0);
  NEED(handle != NULL);
  EXPECT(CALL(rseg_del, handle) == 0);
  store_word(view, 5);
  EXPECT(load_word(attach(seg)) == 5);
}

STATEMENT(S_0bbbd8_an_import_is_attached_and_controlled) {
  struct loop l;
  cmi_ds ds;
  begin();
  l = loop();
  store_word(l.near, 8);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(load_word(l.far) == 8);
  EXPECT(CALL(seg_ctl, l.import, CMI_SEG_INFO, &ds) == 0 && ds.info.seg_sz == UNITS(4));
  EXPECT(remove_segment(l.import) == 0);
}
STATEMENT(S_17e66c_at_home_no_import_is_needed) {
  struct peer* peer;
  cmi_seg seg;
  uint64_t there;
  begin();
  seg = new_segment(1);
  store_word(attach(seg), 21);
  peer = peer_start("home");
  there = peer_seg_at(peer, seg, 0, 0);
  EXPECT(peer_load(peer, there) == 21);
}
STATEMENT(S_94623d_at_home_an_import_is_a_remote_segment_too) {
  struct flat handle, token;
  cmi_seg seg, remote;
  char* view;
  begin();
  seg = new_segment(1);
  handle = export_of(seg);
  token = token_of(seg, ALL_RIGHTS);
  remote = import(&handle);
  EXPECT(remote != seg);
  view = attach(remote);
  EXPECT(CALL(cmi_enb, 1) == 0);
  EXPECT(is(fault_of_load(view), CMI_ERROR_TOKEN));
  EXPECT(set_token(remote, &token) == 0);
  EXPECT(is(fault_of_load(view), 0));
}

STATEMENT(E_seg_imp_CMI_ERR_INVAL_a_removed_segment_or_a_home_that_has_gone) {
  struct peer* peer;
  struct flat handle;
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  handle = export_of(seg);
  EXPECT(remove_segment(seg) == 0);
  FAILS(CALL(seg_imp, (cmi_rseg*)(void*)handle.bytes), CMI_SEG_INVALID, CMI_ERR_INVAL);
  peer = peer_start("far");
  NEED(peer_seg_exp(peer, peer_seg_get(peer, unit(), 0), &handle) == 0);
  EXPECT(peer_end(peer) == 0);
  FAILS(CALL(seg_imp, (cmi_rseg*)(void*)handle.bytes), CMI_SEG_INVALID, CMI_ERR_INVAL);
}
STATEMENT(E_seg_imp_CMI_ERR_PERM_no_access_to_the_node) {
  struct peer* peer;
  struct flat handle;
  begin();
  handle = export_of(new_segment(1));
  peer = peer_start("far");
  if (!peer_lose_rights(peer)) skip("only root can become somebody else");
  EXPECT(peer_seg_imp(peer, &handle) == CMI_SEG_INVALID);
  EXPECT(peer_error(peer) == CMI_ERR_PERM);
}

/* Write-through segments. [cmi(5), Flush barriers and Recovery; libcmi(3), seg_exp] */
#include "conform.h"

/* A segment of four units, exported both ways, with an importer that uses it as write-through. */
struct through {
  cmi_seg home, import;
  char* near;
  struct flat cached, through, key;
  struct peer* peer;
  uint64_t far;
};
static struct through share_through(void) {
  struct through t;
  begin();
  if ((ctxt->caps & CMI_CAP_WRITE_THROUGH) == 0) skip("there are no write-through segments here");
  t.home = new_segment(4);
  t.near = attach(t.home);
  t.cached = export_of(t.home);
  t.through =
      copy(CALL(seg_exp, t.home, CMI_SEG_WRITE_THROUGH), attribute(t.home, CMI_ATTR_RSEG_SIZE));
  t.key = token_of(t.home, ALL_RIGHTS);
  t.peer = peer_start("far");
  t.import = peer_seg_imp(t.peer, &t.through);
  NEED(t.import > 0);
  NEED(peer_set_token(t.peer, t.import, &t.key) == 0);
  t.far = peer_seg_at(t.peer, t.import, 0, 0);
  NEED(t.far != 0 && peer_cmi_enb(t.peer, 1) == 0);
  return t;
}

static void home_at_once(void) {
  struct through t = share_through();
  uint64_t i;
  for (i = 1; i <= 20; ++i) {
    peer_store(t.peer, t.far + 8, i); /* and no barrier */
    EXPECT(is(peer_fault(t.peer), 0));
    EXPECT(load_word(t.near + 8) == i);
    store_word(t.near + 16, i);
    EXPECT(peer_load(t.peer, t.far + 16) == i); /* nothing is cached */
  }
}
STATEMENT(S_36134e_write_through_stores_go_home_at_once) { home_at_once(); }
STATEMENT(S_bf1280_an_attribute_changes_how_importers_access_it) { home_at_once(); }
STATEMENT(S_ee111f_an_export_has_attributes) { home_at_once(); }

STATEMENT(S_c65f4a_stores_to_write_through_segments_raise_as_loads_do) {
  struct through t = share_through();
  cmi_token* token = new_token(t.home, ALL_RIGHTS);
  struct flat key = copy(token, attribute(t.home, CMI_ATTR_TOKEN_SIZE));
  NEED(peer_set_token(t.peer, t.import, &key) == 0);
  peer_store(t.peer, t.far, 1);
  EXPECT(is(peer_fault(t.peer), 0));
  EXPECT(CALL(tok_del, token) == 0);
  peer_store(t.peer, t.far, 2);
  EXPECT(is(peer_fault(t.peer), CMI_ERROR_TOKEN));
  EXPECT(load_word(t.near) == 1);
}

static void one_way_at_a_time(void) {
  struct through t = share_through();
  struct peer* other = peer_start("other");
  EXPECT(peer_seg_imp(other, &t.cached) == CMI_SEG_INVALID);
  EXPECT(peer_error(other) == CMI_ERR_INVAL);
  EXPECT(peer_seg_imp(t.peer, &t.cached) == CMI_SEG_INVALID); /* by the same process */
  EXPECT(peer_error(t.peer) == CMI_ERR_INVAL);
  EXPECT(peer_seg_imp(other, &t.through) > 0);
}
STATEMENT(S_bd0280_an_import_that_conflicts_is_inval) { one_way_at_a_time(); }
STATEMENT(S_ca0af1_never_write_through_and_cached_at_once) { one_way_at_a_time(); }
STATEMENT(E_seg_imp_CMI_ERR_INVAL_cached_while_it_is_write_through) { one_way_at_a_time(); }
STATEMENT(S_021198_exported_both_ways_and_imported_one_way_at_a_time) {
  struct through t = share_through();
  EXPECT(peer_end(t.peer) == 0);
  give_back(next_event());
  EXPECT(peer_seg_imp(peer_start("other"), &t.cached) > 0);
}
STATEMENT(S_d565f1_without_the_capability_the_attribute_is_notsupp) {
  cmi_rseg* handle;
  begin();
  handle = CALL(seg_exp, new_segment(1), CMI_SEG_WRITE_THROUGH);
  EXPECT((handle != NULL) == ((ctxt->caps & CMI_CAP_WRITE_THROUGH) != 0));
  if (handle == NULL) EXPECT(cmi_get_error(ctxt) == CMI_ERR_NOTSUPP);
}

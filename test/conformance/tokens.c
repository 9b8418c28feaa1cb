/* Tokens: who makes, sets and revokes them, and what they open. [cmi(5), CMI Access Control;
 * libcmi(3), tok_new, tok_del, seg_ctl] */
#include "conform.h"

STATEMENT(S_537d29_the_maker_of_a_segment_makes_its_tokens) {
  begin();
  EXPECT(new_token(new_segment(1), CMI_ACC_READ) != NULL);
}
STATEMENT(S_49af90_the_exporter_makes_tokens_that_open_it) {
  struct shared s;
  begin();
  s = share(CMI_ACC_READ);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), 0));
}
STATEMENT(S_1a4ca6_tokens_travel_as_bytes) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS); /* sent over a socket */
  EXPECT(peer_load(s.peer, s.far) == 0 && is(peer_fault(s.peer), 0));
}
STATEMENT(S_9aa1d6_a_segment_has_several_tokens) {
  cmi_seg seg;
  struct flat one, two;
  begin();
  seg = new_segment(1);
  one = token_of(seg, CMI_ACC_READ);
  two = token_of(seg, CMI_ACC_READ);
  EXPECT(memcmp(one.bytes, two.bytes, one.size) != 0);
}
static void revoke_one_of_two(void) {
  struct shared s;
  struct peer* other;
  cmi_seg import;
  struct flat token;
  uint64_t view;
  begin();
  s = share(ALL_RIGHTS);
  token = token_of(s.home, CMI_ACC_READ);
  other = peer_start("other");
  import = peer_seg_imp(other, &s.handle);
  NEED(peer_set_token(other, import, &token) == 0);
  view = peer_seg_at(other, import, 0, 0);
  NEED(peer_cmi_enb(other, 1) == 0);
  EXPECT(CALL(tok_del, s.token) == 0);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  (void)peer_load(other, view);
  EXPECT(is(peer_fault(other), 0));
}
STATEMENT(S_31af3c_many_tokens_for_many_nodes) { revoke_one_of_two(); }
STATEMENT(S_64a789_tokens_give_each_node_its_own_rights) {
  struct shared s;
  struct peer* other;
  cmi_seg import;
  struct flat token;
  uint64_t view;
  begin();
  s = share(ALL_RIGHTS);
  token = token_of(s.home, CMI_ACC_READ);
  other = peer_start("other");
  import = peer_seg_imp(other, &s.handle);
  NEED(peer_set_token(other, import, &token) == 0);
  view = peer_seg_at(other, import, 0, 0);
  NEED(peer_cmi_enb(other, 1) == 0);
  peer_store(s.peer, s.far, 3);
  EXPECT(is(peer_fault(s.peer), 0));
  peer_store(other, view, 3);
  EXPECT(is(peer_fault(other), CMI_ERROR_ACCESS));
}

static void foreign_token_set(void) {
  struct shared s;
  struct peer* neighbour;
  begin();
  s = share(ALL_RIGHTS);
  neighbour = peer_start("far");
  EXPECT(peer_set_token(neighbour, s.import, &s.key) == -1);
  EXPECT(peer_error(neighbour) == CMI_ERR_PERM);
}
STATEMENT(S_6eff22_only_the_importing_process_sets_the_token) { foreign_token_set(); }
STATEMENT(S_178662_a_neighbour_of_the_importer_sets_no_token) { foreign_token_set(); }

static void no_token(void) {
  struct peer* peer;
  struct flat handle;
  cmi_seg import;
  uint64_t view;
  begin();
  handle = export_of(new_segment(1));
  peer = peer_start("far");
  import = peer_seg_imp(peer, &handle);
  view = peer_seg_at(peer, import, 0, 0);
  NEED(view != 0);
  NEED(peer_cmi_enb(peer, 1) == 0);
  (void)peer_load(peer, view);
  EXPECT(is(peer_fault(peer), CMI_ERROR_TOKEN));
  peer_store(peer, view, 1);
  EXPECT(is(peer_fault(peer), CMI_ERROR_TOKEN));
}
STATEMENT(S_2d7fec_without_a_token_every_access_raises) { no_token(); }
STATEMENT(S_34b581_remote_nodes_present_a_token) { no_token(); }
STATEMENT(S_cd2c53_access_is_by_token) {
  struct shared s;
  begin();
  s = share(CMI_ACC_READ);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), 0));
  EXPECT(CALL(tok_del, s.token) == 0);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
}
STATEMENT(S_c77968_the_token_comes_before_the_access) { no_token(); }

static void foreign_tok_new(void) {
  struct peer* peer;
  struct flat token;
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  peer = peer_start("home");
  EXPECT(peer_tok_new(peer, seg, CMI_ACC_READ, &token) == -1);
  EXPECT(peer_error(peer) == CMI_ERR_PERM);
}
STATEMENT(S_7aa93c_only_the_maker_of_a_segment_makes_tokens) { foreign_tok_new(); }
STATEMENT(E_tok_new_CMI_ERR_PERM_not_the_maker) { foreign_tok_new(); }
STATEMENT(S_dec948_tokens_are_made_at_home) {
  struct loop l;
  begin();
  l = loop();
  FAILS(CALL(tok_new, l.import, CMI_NADDR_ANY, CMI_ACC_READ), NULL, CMI_ERR_INVAL);
}

static void revoke(void) {
  struct shared s;
  begin();
  s = share(ALL_RIGHTS);
  store_word(s.near, 7);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(s.peer, s.far) == 7);
  EXPECT(CALL(tok_del, s.token) == 0);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
  (void)peer_load(s.peer, s.far + UNITS(1)); /* what was never here */
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_TOKEN));
}
STATEMENT(S_4b100d_tok_del_at_home_revokes) { revoke(); }
STATEMENT(S_2e1498_deleting_a_token_revokes_access) { revoke(); }
STATEMENT(S_8bc3e3_every_later_access_raises) { revoke(); }

static void foreign_tok_del(void) {
  struct shared s;
  struct peer* neighbour;
  begin();
  s = share(ALL_RIGHTS);
  neighbour = peer_start("home");
  EXPECT(peer_tok_del(neighbour, &s.key) == -1);
  EXPECT(peer_error(neighbour) == CMI_ERR_PERM);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), 0));
}
STATEMENT(S_f24925_only_the_maker_of_a_token_revokes_it) { foreign_tok_del(); }
STATEMENT(E_tok_del_CMI_ERR_PERM_not_its_maker) { foreign_tok_del(); }

STATEMENT(S_9022c8_a_home_revokes_and_makes_new_ones) {
  struct shared s;
  struct flat fresh;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(CALL(tok_del, s.token) == 0);
  fresh = token_of(s.home, ALL_RIGHTS);
  EXPECT(peer_set_token(s.peer, s.import, &fresh) == 0);
  peer_store(s.peer, s.far, 5);
  EXPECT(is(peer_fault(s.peer), 0));
  EXPECT(peer_wmb(s.peer) == 0);
  EXPECT(load_word(s.near) == 5);
}
static void set_again(void) {
  struct shared s;
  struct flat reading;
  begin();
  s = share(ALL_RIGHTS);
  reading = token_of(s.home, CMI_ACC_READ);
  EXPECT(peer_set_token(s.peer, s.import, &reading) == 0);
  peer_store(s.peer, s.far, 5);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_ACCESS));
  EXPECT(peer_set_token(s.peer, s.import, &s.key) == 0);
  peer_store(s.peer, s.far, 5);
  EXPECT(is(peer_fault(s.peer), 0));
}
STATEMENT(S_8607fb_a_token_is_set_many_times) { set_again(); }
STATEMENT(S_70534c_the_token_set_last_counts_alone) { set_again(); }
STATEMENT(S_89b6bd_setting_a_token_replaces_the_former) { set_again(); }

STATEMENT(S_5714d2_the_access_fits_the_tokens_rights) {
  struct shared s;
  uint64_t was;
  begin();
  s = share(CMI_ACC_READ);
  (void)peer_load(s.peer, s.far);
  EXPECT(is(peer_fault(s.peer), 0));
  peer_store(s.peer, s.far, 1);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_ACCESS));
  (void)peer_atm_cas(s.peer, s.far, 0, 1, &was);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_ACCESS));
}
STATEMENT(S_a9be9f_rights_are_given) {
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, 0), NULL, CMI_ERR_INVAL);
  EXPECT(new_token(seg, CMI_ACC_READ | CMI_ACC_WRITE) != NULL);
}
STATEMENT(S_9eddff_write_is_the_right_to_store) {
  struct shared s;
  begin();
  s = share(CMI_ACC_READ | CMI_ACC_WRITE);
  peer_store(s.peer, s.far, 14);
  EXPECT(is(peer_fault(s.peer), 0));
  EXPECT(peer_wmb(s.peer) == 0);
  EXPECT(load_word(s.near) == 14);
}
STATEMENT(S_dd1ed2_read_is_the_right_to_load) {
  struct shared s;
  begin();
  s = share(CMI_ACC_READ);
  store_word(s.near, 15);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(s.peer, s.far) == 15);
  peer_store(s.peer, s.far, 1);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_ACCESS));
}
STATEMENT(S_d4a4dc_atomic_is_the_right_to_swap) {
  struct shared s;
  struct flat without;
  uint64_t was = 99;
  begin();
  s = share(ALL_RIGHTS);
  EXPECT(peer_atm_cas(s.peer, s.far, 0, 16, &was) == 0);
  EXPECT(was == 0 && load_word(s.near) == 16);
  without = token_of(s.home, CMI_ACC_READ | CMI_ACC_WRITE);
  EXPECT(peer_set_token(s.peer, s.import, &without) == 0);
  (void)peer_atm_cas(s.peer, s.far, 16, 17, &was);
  EXPECT(is(peer_fault(s.peer), CMI_ERROR_ACCESS));
  EXPECT(load_word(s.near) == 16);
}

/* A token for the node of `peer`. */
static cmi_token* token_for(struct peer* peer, cmi_seg seg) {
  struct flat address = peer_naddr(peer);
  return CALL(tok_new, seg, (cmi_naddr*)(void*)address.bytes, ALL_RIGHTS);
}
struct pair {
  cmi_seg home, imports[2];
  struct peer* peers[2];
};
static struct pair two_importers(void) {
  struct pair p;
  struct flat handle;
  size_t i;
  begin();
  p.home = new_segment(1);
  handle = export_of(p.home);
  for (i = 0; i < 2; ++i) {
    p.peers[i] = peer_start(i == 0 ? "one" : "two");
    p.imports[i] = peer_seg_imp(p.peers[i], &handle);
    NEED(p.imports[i] > 0);
  }
  return p;
}
static void token_for_one_node(void) {
  struct pair p = two_importers();
  cmi_token* token = token_for(p.peers[0], p.home);
  struct flat bytes = copy(token, attribute(p.home, CMI_ATTR_TOKEN_SIZE));
  uint64_t view;
  EXPECT(peer_set_token(p.peers[0], p.imports[0], &bytes) == 0);
  view = peer_seg_at(p.peers[0], p.imports[0], 0, 0);
  NEED(peer_cmi_enb(p.peers[0], 1) == 0);
  (void)peer_load(p.peers[0], view);
  EXPECT(is(peer_fault(p.peers[0]), 0));
  EXPECT(peer_set_token(p.peers[1], p.imports[1], &bytes) == -1);
  EXPECT(peer_error(p.peers[1]) == CMI_ERR_PERM);
}
STATEMENT(S_d479a8_a_token_may_be_for_one_node) { token_for_one_node(); }
STATEMENT(S_ca1f53_it_serves_that_node_alone) { token_for_one_node(); }
STATEMENT(S_a2113e_elsewhere_it_is_perm) { token_for_one_node(); }

static void second_token(void) {
  struct pair p = two_importers();
  cmi_token* token = token_for(p.peers[0], p.home);
  NEED(token != NULL);
  FAILS(token_for(p.peers[0], p.home), NULL, CMI_ERR_BOUND);
  EXPECT(token_for(p.peers[1], p.home) != NULL);
  EXPECT(CALL(tok_del, token) == 0);
  EXPECT(token_for(p.peers[0], p.home) != NULL);
}
STATEMENT(S_9d2085_one_token_for_a_node_and_a_segment) { second_token(); }
STATEMENT(S_10567e_a_second_token_for_a_node_is_bound) { second_token(); }
STATEMENT(S_3daff9_the_old_token_of_a_node_goes_before_a_new_one) { second_token(); }
STATEMENT(E_tok_new_CMI_ERR_BOUND_the_node_has_a_token) { second_token(); }

STATEMENT(S_2b47a0_a_capability_tells_of_tokens_for_one_node) {
  struct pair p = two_importers();
  EXPECT((ctxt->caps & CMI_CAP_NODE_SPECIFIC_TOKEN) != 0);
  EXPECT(token_for(p.peers[0], p.home) != NULL);
}
STATEMENT(S_9f9ad1_naddr_any_makes_a_token_for_every_node) {
  struct pair p = two_importers();
  struct flat token = token_of(p.home, ALL_RIGHTS);
  EXPECT(peer_set_token(p.peers[0], p.imports[0], &token) == 0);
  EXPECT(peer_set_token(p.peers[1], p.imports[1], &token) == 0);
}
STATEMENT(S_bbca2f_tokens_for_every_node_are_never_bound) {
  cmi_seg seg;
  int i;
  begin();
  seg = new_segment(1);
  for (i = 0; i < 100; ++i) EXPECT(CALL(tok_new, seg, CMI_NADDR_ANY, ALL_RIGHTS) != NULL);
}

STATEMENT(E_tok_new_CMI_ERR_NOMEM_no_memory_for_the_token) {
  static struct heap heap; /* also when the context ends after the statement */
  cmi_cbs callbacks = callbacks_of(&heap);
  cmi_seg seg;
  begin_with(&callbacks);
  seg = new_segment(1);
  heap.empty = true;
  FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ), NULL, CMI_ERR_NOMEM);
}

STATEMENT(S_adaa0a_one_token_serves_the_whole_node) {
  struct shared s;
  struct peer* neighbour;
  uint64_t view;
  begin();
  s = share(ALL_RIGHTS);
  store_word(s.near, 31);
  EXPECT(CALL0(wmb_fn) == 0);
  neighbour = peer_start("far");
  view = peer_seg_at(neighbour, s.import, 0, 0);
  NEED(view != 0);
  NEED(peer_cmi_enb(neighbour, 1) == 0);
  EXPECT(peer_load(neighbour, view) == 31);
}

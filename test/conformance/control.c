/* Attributes, limits and settings. [libcmi(3), attr_get, cmi_ctl] */
#include <signal.h>
#include <stdlib.h>

#include "conform.h"

/* ---- attr_get ---- */

static void short_buffer(void) {
  size_t size = 77, length = sizeof size - 1;
  begin();
  FAILS(CALL(attr_get, 0, CMI_ATTR_NODEADDR_SIZE, &size, &length), -1, CMI_ERR_NOMEM);
  EXPECT(length == sizeof size && size == 77);
}
STATEMENT(S_a778df_a_short_buffer_is_nomem_and_tells_the_size) { short_buffer(); }
STATEMENT(E_attr_get_CMI_ERR_NOMEM_a_short_buffer) { short_buffer(); }
STATEMENT(S_9131d9_the_buffer_is_a_size_t) {
  size_t answer[2] = {0, 77}, length = sizeof answer;
  begin();
  EXPECT(CALL(attr_get, new_segment(1), CMI_ATTR_TOKEN_SIZE, answer, &length) == 0);
  EXPECT(length == sizeof(size_t) && answer[0] > 0 && answer[1] == 77);
}

/* ---- CMI_CTL_INFO ---- */

STATEMENT(S_57fe83_the_library_fills_in_what_is_asked) {
  cmi_ctl_cfg cfg;
  begin();
  memset(&cfg, 0, sizeof cfg);
  EXPECT(CALL(cmi_ctl, CMI_CTL_INFO, &cfg) == 0);
  EXPECT(cfg.ctl_cfg_max_mem_cfg > 0 && cfg.ctl_cfg_cache_line_sz > 0);
  EXPECT(cfg.ctl_cfg_prot_units > 0 && cfg.ctl_cfg_max_acc_toks > 0);
  EXPECT(cfg.ctl_cfg_max_mem_cfg == cfg.info.max_mem_cfg);
}
STATEMENT(S_06b3c2_available_memory_follows_what_is_allocated) {
  cmi_seg seg;
  size_t before;
  begin();
  before = limits().max_mem_avail;
  seg = new_segment(16);
  EXPECT(before - limits().max_mem_avail == UNITS(16));
  EXPECT(remove_segment(seg) == 0);
  EXPECT(limits().max_mem_avail == before);
}
STATEMENT(S_55ca16_the_largest_segment) {
  NEED(setenv("CMI_MEM_MAX", "4M", 1) == 0);
  begin();
  EXPECT(limits().max_seg_sz == (size_t)4 << 20);
  FAILS(CALL(seg_get, limits().max_seg_sz + unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  EXPECT(CALL(seg_get, limits().max_seg_sz, 0) > 0);
}
STATEMENT(S_92d4e6_the_most_exports) {
  const size_t most = (begin(), limits().max_exp_segs);
  size_t i;
  cmi_seg seg = CMI_SEG_INVALID;
  for (i = 0; i < most; ++i) {
    cmi_rseg* handle;
    seg = new_segment(1);
    handle = CALL(seg_exp, seg, 0);
    NEED(handle != NULL);
    NEED(CALL(rseg_del, handle) == 0);
  }
  EXPECT(limits().cur_exp_segs == most);
  FAILS(CALL(seg_exp, new_segment(1), 0), NULL, CMI_ERR_NOMEM);
  EXPECT(CALL(seg_exp, seg, 0) != NULL); /* exported already */
  EXPECT(remove_segment(seg) == 0);
  EXPECT(limits().cur_exp_segs == most - 1);
  EXPECT(CALL(seg_exp, new_segment(1), 0) != NULL);
}
static void reach_most_imports(void) {
  struct peer* peer;
  struct flat handle;
  cmi_seg seg = CMI_SEG_INVALID;
  size_t i, most;
  begin();
  most = limits().max_imp_segs;
  peer = peer_start("far");
  NEED(peer_seg_exp(peer, peer_seg_get(peer, unit(), 0), &handle) == 0);
  for (i = 0; i < most; ++i) {
    seg = CALL(seg_imp, (cmi_rseg*)(void*)handle.bytes);
    NEED(seg > 0);
  }
  EXPECT(limits().cur_imp_segs == most);
  FAILS(CALL(seg_imp, (cmi_rseg*)(void*)handle.bytes), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  EXPECT(remove_segment(seg) == 0);
  EXPECT(limits().cur_imp_segs == most - 1);
  EXPECT(CALL(seg_imp, (cmi_rseg*)(void*)handle.bytes) > 0);
}
STATEMENT(S_b43581_the_most_imports) { reach_most_imports(); }
STATEMENT(E_seg_imp_CMI_ERR_NOMEM_no_more_imports) { reach_most_imports(); }
STATEMENT(S_82694b_no_write_through_segments_without_the_capability) {
  begin();
  EXPECT((limits().max_write_through_segs == 0) == ((ctxt->caps & CMI_CAP_WRITE_THROUGH) == 0));
}
STATEMENT(S_82694b_the_most_write_through_segments) {
  const size_t most = (begin(), limits().max_write_through_segs);
  size_t i;
  if (most == 0) skip("there are no write-through segments here");
  for (i = 0; i < most; ++i) {
    NEED(CALL(seg_exp, new_segment(1), CMI_SEG_WRITE_THROUGH) != NULL);
  }
  FAILS(CALL(seg_exp, new_segment(1), CMI_SEG_WRITE_THROUGH), NULL, CMI_ERR_NOMEM);
}
STATEMENT(S_d043c3_the_most_tokens) {
  size_t i, most;
  cmi_seg one, other;
  cmi_token* token = NULL;
  begin();
  most = limits().max_acc_toks;
  EXPECT(limits().max_acc_stok <= most);
  one = new_segment(1);
  other = new_segment(1);
  for (i = 0; i < most; ++i) {
    token = CALL(tok_new, i < limits().max_acc_stok ? one : other, CMI_NADDR_ANY, CMI_ACC_READ);
    NEED(token != NULL);
  }
  FAILS(CALL(tok_new, one, CMI_NADDR_ANY, CMI_ACC_READ), NULL, CMI_ERR_NOMEM);
  FAILS(CALL(tok_new, other, CMI_NADDR_ANY, CMI_ACC_READ), NULL, CMI_ERR_NOMEM);
  EXPECT(CALL(tok_del, token) == 0);
  EXPECT(CALL(tok_new, other, CMI_NADDR_ANY, CMI_ACC_READ) != NULL);
}
STATEMENT(S_fff627_the_most_memory_in_one_recovery_call) {
  cmi_seg seg;
  cmi_ds ds;
  char* view;
  begin();
  seg = CALL(seg_get, limits().max_reco_segsz + limits().cache_line_sz, CMI_SEG_NORESERVE);
  NEED(seg > 0);
  view = attach(seg);
  memset(&ds, 0, sizeof ds);
  ds.reco.reco_addr = view;
  ds.reco.reco_size = limits().max_reco_segsz;
  EXPECT(CALL(seg_ctl, seg, CMI_SEG_CHECK, &ds) == 0);
  ds.reco.reco_addr = view;
  ds.reco.reco_size = limits().max_reco_segsz + limits().cache_line_sz;
  FAILS(CALL(seg_ctl, seg, CMI_SEG_CHECK, &ds), -1, CMI_ERR_INVAL);
  FAILS(CALL(seg_ctl, seg, CMI_SEG_RECO, &ds), -1, CMI_ERR_INVAL);
}
STATEMENT(E_seg_get_CMI_ERR_NOMEM_more_than_is_configured) {
  NEED(setenv("CMI_MEM_MAX", "2M", 1) == 0);
  begin();
  EXPECT(limits().max_mem_cfg == (size_t)2 << 20);
  EXPECT(limits().max_mem_avail == limits().max_mem_cfg);
  NEED(CALL(seg_get, limits().max_mem_avail, 0) > 0);
  EXPECT(limits().max_mem_avail == 0);
  FAILS(CALL(seg_get, unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOMEM);
}
STATEMENT(S_83d4f4_which_is_whole_cache_lines) {
  begin();
  EXPECT(limits().cache_line_sz > 0 && limits().max_reco_segsz > 0);
  EXPECT(limits().max_reco_segsz % limits().cache_line_sz == 0);
}
STATEMENT(S_0e7131_units_that_waste_no_memory) {
  size_t before;
  begin();
  before = limits().max_mem_avail;
  EXPECT(CALL(seg_get, limits().seg_alloc_units, 0) > 0);
  EXPECT(before - limits().max_mem_avail == limits().seg_alloc_units);
}

/* ---- Caches ---- */

static cmi_ctl_cfg cache_of(cmi_seg seg, size_t bytes) {
  cmi_ctl_cfg cfg;
  memset(&cfg, 0, sizeof cfg);
  cfg.ctl_cfg_seg_hndl = seg;
  cfg.ctl_cfg_mpool_sz = bytes;
  return cfg;
}
static int set_cache(cmi_seg seg, size_t bytes) {
  cmi_ctl_cfg cfg = cache_of(seg, bytes);
  return CALL(cmi_ctl, CMI_CTL_CACHE_RSEG_SET, &cfg);
}
static size_t get_cache(cmi_seg seg) {
  cmi_ctl_cfg cfg = cache_of(seg, 0);
  EXPECT(CALL(cmi_ctl, CMI_CTL_CACHE_RSEG_GET, &cfg) == 0);
  return cfg.ctl_cfg_mpool_sz;
}
STATEMENT(S_c59bdb_a_small_cache_serves_a_larger_segment) {
  struct loop l;
  size_t page;
  begin();
  l = loop();
  EXPECT(set_cache(l.import, UNITS(1)) == 0);
  for (page = 0; page < 4; ++page) store_word(l.far + UNITS(page), page + 1);
  EXPECT(CALL0(wmb_fn) == 0);
  for (page = 0; page < 4; ++page) {
    EXPECT(load_word(l.near + UNITS(page)) == page + 1);
    EXPECT(load_word(l.far + UNITS(page)) == page + 1);
  }
}
STATEMENT(S_7c393b_the_client_fills_in_what_is_set) {
  struct loop l;
  begin();
  l = loop();
  EXPECT(set_cache(l.import, UNITS(3)) == 0);
  EXPECT(get_cache(l.import) == UNITS(3));
}
STATEMENT(S_4ea464_cmi_ctl_asks_and_sets) {
  struct loop l;
  begin();
  EXPECT(limits().cur_imp_segs == 0 && limits().cur_exp_segs == 0);
  l = loop();
  EXPECT(limits().cur_imp_segs == 1 && limits().cur_exp_segs == 1);
  EXPECT(set_cache(l.home, UNITS(2)) == 0);
  EXPECT(get_cache(l.home) == UNITS(2));
}
static void foreign_cache(void) {
  struct loop l;
  struct peer* peer;
  cmi_ctl_cfg cfg;
  begin();
  l = loop();
  peer = peer_start("home");
  cfg = cache_of(l.import, UNITS(1));
  EXPECT(peer_cmi_ctl(peer, CMI_CTL_CACHE_RSEG_SET, &cfg) == -1);
  EXPECT(peer_error(peer) == CMI_ERR_PERM);
  cfg = cache_of(l.home, UNITS(1));
  EXPECT(peer_cmi_ctl(peer, CMI_CTL_CACHE_RSEG_SET, &cfg) == -1);
  EXPECT(peer_error(peer) == CMI_ERR_PERM);
  EXPECT(peer_cmi_ctl(peer, CMI_CTL_CACHE_RSEG_GET, &cfg) == -1);
  EXPECT(peer_error(peer) == CMI_ERR_PERM);
}
STATEMENT(S_171afe_only_maker_or_importer_sets_the_size) { foreign_cache(); }
STATEMENT(E_cmi_ctl_CMI_ERR_PERM_the_cache_of_somebody_elses_segment) { foreign_cache(); }
STATEMENT(S_dacc5a_the_size_is_for_one_segment_or_all) {
  struct loop l;
  struct flat handle;
  begin();
  l = loop();
  EXPECT(set_cache(CMI_SEG_ALL, UNITS(2)) == 0);
  EXPECT(get_cache(l.import) == UNITS(2) && get_cache(l.home) == UNITS(2));
  handle = export_of(l.home);
  EXPECT(get_cache(import(&handle)) == UNITS(2));
  EXPECT(set_cache(l.import, UNITS(3)) == 0);
  EXPECT(get_cache(l.import) == UNITS(3) && get_cache(l.home) == UNITS(2));
}
STATEMENT(S_f2ad47_asking_for_all_is_inval) {
  cmi_ctl_cfg cfg;
  begin();
  (void)loop();
  cfg = cache_of(CMI_SEG_ALL, 0);
  FAILS(CALL(cmi_ctl, CMI_CTL_CACHE_RSEG_GET, &cfg), -1, CMI_ERR_INVAL);
}
STATEMENT(E_cmi_ctl_CMI_ERR_INVAL_a_cache_of_nothing_or_of_no_segment) {
  struct loop l;
  cmi_ctl_cfg cfg;
  begin();
  l = loop();
  cfg = cache_of(l.import, 0);
  FAILS(CALL(cmi_ctl, CMI_CTL_CACHE_RSEG_SET, &cfg), -1, CMI_ERR_INVAL);
  cfg = cache_of(987654, UNITS(1));
  FAILS(CALL(cmi_ctl, CMI_CTL_CACHE_RSEG_SET, &cfg), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, CMI_CTL_CACHE_RSEG_GET, &cfg), -1, CMI_ERR_INVAL);
}
STATEMENT(E_cmi_ctl_CMI_ERR_INVAL_a_timeout_of_0) {
  cmi_ctl_cfg cfg;
  begin();
  memset(&cfg, 0, sizeof cfg);
  FAILS(CALL(cmi_ctl, CMI_CTL_RECONF_TOUT, &cfg), -1, CMI_ERR_INVAL);
}

STATEMENT(E_cmi_ctl_CMI_ERR_NOMEM_too_many_maps_wait_to_be_taken) {
  cmi_ctl_cfg cfg;
  size_t asked = 0, came = 0;
  begin();
  memset(&cfg, 0, sizeof cfg);
  cfg.cmap.cmap_reqid = 1;
  while (asked < 100000 && CALL(cmi_ctl, CMI_CTL_NODE_CMAP_GET, &cfg) == 0) ++asked;
  EXPECT(asked < 100000 && cmi_get_error(ctxt) == CMI_ERR_NOMEM);
  for (; came < asked; ++came) {
    cmi_event* event = next_event();
    NEED(event != NULL);
    EXPECT(event->type == CMI_EVENT_CMAP && event->cmap.einfo_reqid == 1);
    give_back(event);
  }
  EXPECT(CALL(cmi_ctl, CMI_CTL_NODE_CMAP_GET, &cfg) == 0);
}

/* ---- Node addresses ---- */

STATEMENT(S_eff96e_a_bad_address_is_inval) {
  struct flat own, damaged;
  cmi_naddr* list[2];
  uint32_t indexes[2] = {55, 66};
  cmi_ctl_cfg cfg;
  begin();
  own = copy(ctxt->naddr, attribute(0, CMI_ATTR_NODEADDR_SIZE));
  damaged = own;
  damaged.bytes[30] ^= 1;
  list[0] = (cmi_naddr*)(void*)own.bytes;
  list[1] = (cmi_naddr*)(void*)damaged.bytes;
  memset(&cfg, 0, sizeof cfg);
  cfg.ctl_cfg_ncmp_naddr = list[0];
  cfg.ctl_cfg_ncmp_caddr = list;
  cfg.ctl_cfg_ncmp_addrs = 2;
  cfg.ctl_cfg_ncmp_midx = indexes;
  FAILS(CALL(cmi_ctl, CMI_CTL_NODE_ADDR_CMP, &cfg), -1, CMI_ERR_INVAL);
  cfg.ctl_cfg_ncmp_naddr = list[1];
  cfg.ctl_cfg_ncmp_addrs = 1;
  FAILS(CALL(cmi_ctl, CMI_CTL_NODE_ADDR_CMP, &cfg), -1, CMI_ERR_INVAL);
  cfg.ctl_cfg_ncmp_naddr = CMI_NADDR_ANY;
  FAILS(CALL(cmi_ctl, CMI_CTL_NODE_ADDR_CMP, &cfg), -1, CMI_ERR_INVAL);
  EXPECT(indexes[0] == 55 && indexes[1] == 66);
  cfg.ctl_cfg_ncmp_naddr = list[0];
  EXPECT(CALL(cmi_ctl, CMI_CTL_NODE_ADDR_CMP, &cfg) == 0);
  EXPECT(cfg.ctl_cfg_ncmp_addrs == 1 && indexes[0] == 0 && indexes[1] == 66);
}

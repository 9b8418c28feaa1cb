/* Memory reservations. [cmi(5), Memory Reservation; libcmi(3), cmi_ctl with CMI_CTL_MEM_RESERVE] */
#include <stdlib.h>

#include "conform.h"

/* What the node has for segments in these statements. */
#define ALL ((size_t)8 << 20)
#define PART(n) ((n) * (ALL / 8))

static void begin_small(void) {
  NEED(setenv("CMI_MEM_MAX", "8M", 1) == 0);
  begin();
}
static cmi_ctl_cfg request(size_t size, uint64_t key) {
  cmi_ctl_cfg cfg;
  memset(&cfg, 0, sizeof cfg);
  cfg.ctl_cfg_mem_reserve = size;
  cfg.ctl_cfg_mem_allocd = 4711;
  cfg.ctl_cfg_rsv_key = key;
  return cfg;
}
/* Makes one, or changes the size of that in use. */
static int resize(size_t size) {
  cmi_ctl_cfg cfg = request(size, 0);
  return CALL(cmi_ctl, CMI_CTL_MEM_RESERVE, &cfg);
}
static uint64_t reserve(size_t size) {
  cmi_ctl_cfg cfg = request(size, 0);
  NEED(CALL(cmi_ctl, CMI_CTL_MEM_RESERVE, &cfg) == 0);
  return cfg.ctl_cfg_rsv_key;
}
/* How much of the one in use is taken, after a call that changes nothing or fails. */
static size_t taken(size_t size) {
  cmi_ctl_cfg cfg = request(size, 0);
  (void)CALL(cmi_ctl, CMI_CTL_MEM_RESERVE, &cfg);
  return cfg.ctl_cfg_mem_allocd;
}
static int use(uint64_t key) {
  cmi_ctl_cfg cfg = request(0, key);
  return CALL(cmi_ctl, CMI_CTL_MEM_RESERVE_SET, &cfg);
}
static int give_up_reservation(void) { return CALL(cmi_ctl, CMI_CTL_MEM_RESERVE_DEL, NULL); }
static int peer_use(struct peer* peer, uint64_t key) {
  cmi_ctl_cfg cfg = request(0, key);
  return peer_cmi_ctl(peer, CMI_CTL_MEM_RESERVE_SET, &cfg);
}
static uint64_t peer_reserve(struct peer* peer, size_t size) {
  cmi_ctl_cfg cfg = request(size, 0);
  NEED(peer_cmi_ctl(peer, CMI_CTL_MEM_RESERVE, &cfg) == 0);
  return cfg.ctl_cfg_rsv_key;
}
static cmi_seg get(size_t size) { return CALL(seg_get, size, 0); }

/* ---- What it is for ---- */

static void allocate_within(void) {
  struct peer* greedy;
  begin_small();
  (void)reserve(PART(4));
  greedy = peer_start("home");
  EXPECT(peer_seg_get(greedy, PART(4), 0) > 0);
  EXPECT(peer_seg_get(greedy, unit(), 0) == CMI_SEG_INVALID);
  EXPECT(peer_error(greedy) == CMI_ERR_NOMEM);
  EXPECT(get(PART(1)) > 0);
  EXPECT(get(PART(3)) > 0);
  FAILS(get(unit()), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_8673da_a_reservation_guarantees_later_allocations) { allocate_within(); }
STATEMENT(S_fc2c6d_up_to_the_reserved_amount) { allocate_within(); }
STATEMENT(S_6d63b3_it_outlives_its_maker) {
  struct peer* maker;
  uint64_t key;
  begin_small();
  maker = peer_start("home");
  key = peer_reserve(maker, PART(6));
  EXPECT(peer_end(maker) == 0);
  FAILS(get(PART(3)), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  EXPECT(use(key) == 0);
  EXPECT(get(PART(6)) > 0);
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_0a4b10_none_is_needed) {
  begin_small();
  FAILS(give_up_reservation(), -1, CMI_ERR_INVAL);
  EXPECT(get(PART(8)) > 0);
}

/* ---- Who uses which ---- */

STATEMENT(S_9218bd_contexts_share_one_by_its_key) {
  struct peer* other;
  uint64_t key;
  begin_small();
  key = reserve(PART(4));
  other = peer_start("home");
  EXPECT(peer_seg_get(other, PART(5), 0) == CMI_SEG_INVALID);
  EXPECT(peer_use(other, key) == 0);
  EXPECT(peer_seg_get(other, PART(3), 0) > 0);
  EXPECT(taken(PART(4)) == PART(3));
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_748478_its_maker_uses_it_and_no_other) {
  cmi_ctl_cfg cfg;
  uint64_t key;
  begin_small();
  key = reserve(PART(2));
  EXPECT(get(PART(1)) > 0);
  cfg = request(PART(3), 0);
  EXPECT(CALL(cmi_ctl, CMI_CTL_MEM_RESERVE, &cfg) == 0); /* the same, larger */
  EXPECT(cfg.ctl_cfg_mem_allocd == PART(1));
  EXPECT(limits().max_mem_avail == ALL - PART(3));
  EXPECT(use(key) == 0);
  EXPECT(give_up_reservation() == 0);
  FAILS(give_up_reservation(), -1, CMI_ERR_INVAL);
}
STATEMENT(S_09b53d_one_at_most_for_each_context) {
  struct peer* other;
  uint64_t own, foreign;
  begin_small();
  own = reserve(PART(2));
  other = peer_start("home");
  foreign = peer_reserve(other, PART(2));
  EXPECT(own != foreign);
  EXPECT(use(foreign) == 0);
  EXPECT(get(PART(1)) > 0);
  EXPECT(taken(PART(2)) == PART(1));
  EXPECT(give_up_reservation() == 0); /* the other's */
  FAILS(give_up_reservation(), -1, CMI_ERR_INVAL);
  EXPECT(use(own) == 0);
  EXPECT(taken(PART(2)) == 0);
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_b744f3_key_0_ends_the_tie) {
  uint64_t key;
  begin_small();
  key = reserve(PART(2));
  EXPECT(use(0) == 0);
  EXPECT(get(PART(1)) > 0);
  FAILS(give_up_reservation(), -1, CMI_ERR_INVAL);
  EXPECT(use(key) == 0);
  EXPECT(taken(PART(2)) == 0);
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_ada6b0_0_is_never_a_key) {
  size_t i;
  begin_small();
  for (i = 0; i < 8; ++i) {
    EXPECT(reserve(unit()) != 0);
    EXPECT(give_up_reservation() == 0);
  }
  EXPECT(use(0) == 0);
  FAILS(give_up_reservation(), -1, CMI_ERR_INVAL);
}
STATEMENT(S_e79142_other_users_are_refused) {
  struct peer* stranger;
  uint64_t key;
  begin_small();
  key = reserve(PART(2));
  stranger = peer_start("home");
  if (peer_lose_rights(stranger)) {
    cmi_ctl_cfg cfg = request(PART(1), 0);
    EXPECT(peer_use(stranger, key) == -1 && peer_error(stranger) == CMI_ERR_PERM);
    EXPECT(peer_cmi_ctl(stranger, CMI_CTL_MEM_RESERVE, &cfg) == -1);
    EXPECT(peer_error(stranger) == CMI_ERR_PERM);
    EXPECT(taken(PART(2)) == 0);
    EXPECT(give_up_reservation() == 0);
  } else {
    EXPECT(give_up_reservation() == 0);
    skip("only root can become somebody else");
  }
}

/* ---- Its size ---- */

static void grow_and_shrink(void) {
  begin_small();
  (void)reserve(PART(2));
  EXPECT(limits().max_mem_avail == ALL - PART(2));
  EXPECT(resize(PART(5)) == 0);
  EXPECT(limits().max_mem_avail == ALL - PART(5));
  EXPECT(resize(PART(1)) == 0);
  EXPECT(limits().max_mem_avail == ALL - PART(1));
  EXPECT(give_up_reservation() == 0);
  EXPECT(limits().max_mem_avail == ALL);
}
STATEMENT(S_e5236f_it_grows_and_shrinks) { grow_and_shrink(); }
STATEMENT(S_374735_it_grows_and_shrinks) { grow_and_shrink(); }
static void shrink_too_far(void) {
  begin_small();
  (void)reserve(PART(4));
  EXPECT(get(PART(3)) > 0);
  FAILS(resize(PART(2)), -1, CMI_ERR_INVAL);
  EXPECT(resize(PART(3)) == 0);
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_ceb89c_below_what_is_in_use_is_inval) { shrink_too_far(); }
STATEMENT(S_b163ee_below_what_is_in_use_is_inval) { shrink_too_far(); }
static void grow_too_far(void) {
  begin_small();
  FAILS(resize(ALL + unit()), -1, CMI_ERR_NOMEM);
  (void)reserve(PART(4));
  FAILS(resize(ALL + unit()), -1, CMI_ERR_NOMEM);
  EXPECT(limits().max_mem_avail == ALL - PART(4)); /* as it was */
  EXPECT(resize(ALL) == 0);
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_5a1ce1_beyond_what_there_is_is_nomem) { grow_too_far(); }
STATEMENT(S_c19f30_beyond_what_there_is_is_nomem) { grow_too_far(); }
STATEMENT(S_8a8e50_what_is_in_use_is_told_always) {
  begin_small();
  EXPECT(taken(ALL + unit()) == 0);
  (void)reserve(PART(4));
  EXPECT(get(PART(3)) > 0);
  EXPECT(taken(PART(4)) == PART(3));
  EXPECT(taken(PART(1)) == PART(3)); /* refused */
  EXPECT(taken(ALL + unit()) == PART(3));
  EXPECT(give_up_reservation() == 0);
}

/* ---- Its end ---- */

STATEMENT(S_fa7b4a_it_can_be_deleted) {
  cmi_seg seg;
  begin_small();
  (void)reserve(PART(4));
  seg = get(PART(1));
  EXPECT(seg > 0);
  EXPECT(give_up_reservation() == 0);
  EXPECT(limits().max_mem_avail == ALL - PART(1)); /* the segment stays */
  EXPECT(attach(seg) != NULL);
}
static void name_a_deleted_one(void) {
  struct peer* other;
  uint64_t key;
  begin_small();
  key = reserve(PART(2));
  other = peer_start("home");
  EXPECT(peer_use(other, key) == 0);
  EXPECT(give_up_reservation() == 0);
  FAILS(use(key), -1, CMI_ERR_INVAL);
  EXPECT(peer_cmi_ctl(other, CMI_CTL_MEM_RESERVE_DEL, &(cmi_ctl_cfg){0}) == -1);
  EXPECT(peer_error(other) == CMI_ERR_INVAL);
}
STATEMENT(S_567768_a_deleted_key_is_inval) { name_a_deleted_one(); }
STATEMENT(S_3a0b20_also_to_use_it) { name_a_deleted_one(); }
STATEMENT(S_f288d2_deleting_needs_a_tie_made_either_way) {
  struct peer* other;
  begin_small();
  (void)reserve(PART(2));
  EXPECT(give_up_reservation() == 0); /* by making it */
  other = peer_start("home");
  EXPECT(use(peer_reserve(other, PART(2))) == 0);
  EXPECT(give_up_reservation() == 0); /* by naming it */
  EXPECT(limits().max_mem_avail == ALL);
}
STATEMENT(S_68d31c_without_a_tie_it_is_inval) {
  begin_small();
  FAILS(give_up_reservation(), -1, CMI_ERR_INVAL);
}
STATEMENT(S_b579c0_later_allocations_use_it) {
  struct peer* maker;
  begin_small();
  EXPECT(get(PART(1)) > 0);
  maker = peer_start("home");
  EXPECT(use(peer_reserve(maker, PART(4))) == 0);
  EXPECT(taken(PART(4)) == 0); /* what was there before is not its own */
  EXPECT(get(PART(2)) > 0);
  EXPECT(taken(PART(4)) == PART(2));
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_9aa2cd_a_bad_key_is_inval_and_the_tie_stays) {
  uint64_t key;
  begin_small();
  key = reserve(PART(2));
  FAILS(use(key ^ 1), -1, CMI_ERR_INVAL);
  FAILS(use(UINT64_MAX), -1, CMI_ERR_INVAL);
  EXPECT(get(PART(1)) > 0);
  EXPECT(taken(PART(2)) == PART(1));
  EXPECT(give_up_reservation() == 0);
}

/* ---- Extensible segments ---- */

static int set_break(cmi_seg seg, size_t bytes) {
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  ds.brk.seg_brksz = bytes;
  return CALL(seg_ctl, seg, CMI_SEG_BRK, &ds);
}
static void grow_within(void) {
  struct peer* greedy;
  cmi_seg seg;
  begin_small();
  (void)reserve(PART(4));
  greedy = peer_start("home");
  EXPECT(peer_seg_get(greedy, PART(4), 0) > 0);
  seg = CALL(seg_get, PART(4), CMI_SEG_EXTENSIBLE);
  NEED(seg > 0);
  EXPECT(taken(PART(4)) == 0);
  EXPECT(set_break(seg, PART(3)) == 0);
  EXPECT(taken(PART(4)) == PART(3));
  FAILS(get(PART(2)), CMI_SEG_INVALID, CMI_ERR_NOMEM);
  EXPECT(set_break(seg, PART(1)) == 0);
  EXPECT(taken(PART(4)) == PART(1));
  EXPECT(get(PART(3)) > 0);
  EXPECT(give_up_reservation() == 0);
}
STATEMENT(S_0b143d_growth_counts_against_it) { grow_within(); }
STATEMENT(S_b77960_what_is_freed_returns_to_it) { grow_within(); }
STATEMENT(S_e0a142_growth_uses_it) { grow_within(); }

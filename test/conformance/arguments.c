/* Two errors that nearly every call lists: CMI_ERR_INIT from a thread that is not registered, and
 * CMI_ERR_INVAL for what is not this process's context. [libcmi(3)] */
#include "conform.h"

/* What the calls below are given: all of it would do from a registered thread. */
static struct {
  cmi_seg home, import;
  char* near;
  char* far;
  cmi_rseg* handle;
  cmi_token* token;
  cmi_fb epoch;
  uint64_t word;
  size_t size, length;
  cmi_ctl_cfg cfg;
  cmi_ds ds;
} it;

static void prepare(void) {
  struct loop l;
  begin();
  l = loop();
  it.home = l.home;
  it.import = l.import;
  it.near = l.near;
  it.far = l.far;
  it.handle = CALL(seg_exp, l.home, 0);
  it.token = new_token(l.home, ALL_RIGHTS);
  it.epoch = CALL0(open_fb);
  it.length = sizeof it.size;
  NEED(it.handle != NULL && it.epoch != NULL);
}

#define UNREGISTERED(id, failure, call) \
  static void id##_call(void* arg) {    \
    (void)arg;                          \
    FAILS(call, failure, CMI_ERR_INIT); \
  }                                     \
  STATEMENT(id) {                       \
    prepare();                          \
    in_thread(id##_call, NULL);         \
  }

UNREGISTERED(E_atm_cas_CMI_ERR_INIT, -1, CALL(atm_cas, (uint64_t*)(void*)it.far, 0, 1, &it.word))
UNREGISTERED(E_attr_get_CMI_ERR_INIT, -1,
             CALL(attr_get, it.home, CMI_ATTR_RSEG_SIZE, &it.size, &it.length))
UNREGISTERED(E_cflush_CMI_ERR_INIT, -1, CALL(cflush, (void**)&it.far, 1))
UNREGISTERED(E_close_fb_CMI_ERR_INIT, -1, CALL(close_fb, it.epoch))
UNREGISTERED(E_cmi_ctl_CMI_ERR_INIT, -1, CALL(cmi_ctl, CMI_CTL_INFO, &it.cfg))
UNREGISTERED(E_cmi_enb_CMI_ERR_INIT, -1, CALL(cmi_enb, 1))
UNREGISTERED(E_flush_fb_CMI_ERR_INIT, -1, CALL(flush_fb, it.epoch))
UNREGISTERED(E_mb_fn_CMI_ERR_INIT, -1, CALL0(mb_fn))
UNREGISTERED(E_open_fb_CMI_ERR_INIT, NULL, CALL0(open_fb))
UNREGISTERED(E_rmb_fn_CMI_ERR_INIT, -1, CALL0(rmb_fn))
UNREGISTERED(E_rseg_del_CMI_ERR_INIT, -1, CALL(rseg_del, it.handle))
UNREGISTERED(E_seg_at_CMI_ERR_INIT, NULL, CALL(seg_at, it.home, NULL, 0))
UNREGISTERED(E_seg_ctl_CMI_ERR_INIT, -1, CALL(seg_ctl, it.home, CMI_SEG_STATUS, &it.ds))
UNREGISTERED(E_seg_dt_CMI_ERR_INIT, -1, CALL(seg_dt, it.home, it.near))
UNREGISTERED(E_seg_exp_CMI_ERR_INIT, NULL, CALL(seg_exp, it.home, 0))
UNREGISTERED(E_seg_get_CMI_ERR_INIT, CMI_SEG_INVALID, CALL(seg_get, 4096, 0))
UNREGISTERED(E_seg_imp_CMI_ERR_INIT, CMI_SEG_INVALID, CALL(seg_imp, it.handle))
UNREGISTERED(E_tok_del_CMI_ERR_INIT, -1, CALL(tok_del, it.token))
UNREGISTERED(E_tok_new_CMI_ERR_INIT, NULL, CALL(tok_new, it.home, CMI_NADDR_ANY, CMI_ACC_READ))
UNREGISTERED(E_wmb_fn_CMI_ERR_INIT, -1, CALL0(wmb_fn))

/* A pointer to nothing, one to other memory, and a copy of the context that is none. */
#define WRONG_CONTEXT(id, failure, fn, ...)              \
  STATEMENT(id) {                                        \
    cmi_ctxt twin;                                       \
    cmi_ctxt* wrong[3];                                  \
    size_t i;                                            \
    prepare();                                           \
    memcpy(&twin, ctxt, sizeof twin);                    \
    wrong[0] = NULL;                                     \
    wrong[1] = (cmi_ctxt*)(void*)it.far;                 \
    wrong[2] = &twin;                                    \
    for (i = 0; i < 3; ++i) {                            \
      EXPECT(ctxt->fns10->fn(__VA_ARGS__) == (failure)); \
      EXPECT(cmi_get_error(NULL) == CMI_ERR_INVAL);      \
    }                                                    \
  }

WRONG_CONTEXT(E_atm_cas_CMI_ERR_INVAL, -1, atm_cas, wrong[i], (uint64_t*)(void*)it.far, 0, 1,
              &it.word)
WRONG_CONTEXT(E_attr_get_CMI_ERR_INVAL, -1, attr_get, wrong[i], it.home, CMI_ATTR_RSEG_SIZE,
              &it.size, &it.length)
WRONG_CONTEXT(E_cflush_CMI_ERR_INVAL, -1, cflush, wrong[i], (void**)&it.far, 1)
WRONG_CONTEXT(E_close_fb_CMI_ERR_INVAL, -1, close_fb, wrong[i], it.epoch)
WRONG_CONTEXT(E_cmi_ctl_CMI_ERR_INVAL, -1, cmi_ctl, wrong[i], CMI_CTL_INFO, &it.cfg)
WRONG_CONTEXT(E_flush_fb_CMI_ERR_INVAL, -1, flush_fb, wrong[i], it.epoch)
WRONG_CONTEXT(E_mb_fn_CMI_ERR_INVAL, -1, mb_fn, wrong[i])
WRONG_CONTEXT(E_open_fb_CMI_ERR_INVAL, NULL, open_fb, wrong[i])
WRONG_CONTEXT(E_rmb_fn_CMI_ERR_INVAL, -1, rmb_fn, wrong[i])
WRONG_CONTEXT(E_rseg_del_CMI_ERR_INVAL, -1, rseg_del, wrong[i], it.handle)
WRONG_CONTEXT(E_seg_at_CMI_ERR_INVAL, NULL, seg_at, wrong[i], it.home, NULL, 0)
WRONG_CONTEXT(E_seg_ctl_CMI_ERR_INVAL, -1, seg_ctl, wrong[i], it.home, CMI_SEG_STATUS, &it.ds)
WRONG_CONTEXT(E_seg_dt_CMI_ERR_INVAL, -1, seg_dt, wrong[i], it.home, it.near)
WRONG_CONTEXT(E_seg_exp_CMI_ERR_INVAL, NULL, seg_exp, wrong[i], it.home, 0)
WRONG_CONTEXT(E_seg_get_CMI_ERR_INVAL, CMI_SEG_INVALID, seg_get, wrong[i], 4096, 0)
WRONG_CONTEXT(E_seg_imp_CMI_ERR_INVAL, CMI_SEG_INVALID, seg_imp, wrong[i], it.handle)
WRONG_CONTEXT(E_tok_del_CMI_ERR_INVAL, -1, tok_del, wrong[i], it.token)
WRONG_CONTEXT(E_tok_new_CMI_ERR_INVAL, NULL, tok_new, wrong[i], it.home, CMI_NADDR_ANY,
              CMI_ACC_READ)
WRONG_CONTEXT(E_wmb_fn_CMI_ERR_INVAL, -1, wmb_fn, wrong[i])

/* ---- The other arguments that are CMI_ERR_INVAL ---- */

static const cmi_seg kUnknown[] = {0, CMI_SEG_INVALID, CMI_SEG_ALL, 987654, INT32_MAX, INT32_MIN};
enum { kUnknowns = sizeof kUnknown / sizeof kUnknown[0] };

STATEMENT(E_attr_get_CMI_ERR_INVAL_an_unknown_segment_or_attribute) {
  size_t i, size = 0, length = sizeof size;
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  for (i = 0; i < kUnknowns; ++i) {
    FAILS(CALL(attr_get, kUnknown[i], CMI_ATTR_TOKEN_SIZE, &size, &length), -1, CMI_ERR_INVAL);
  }
  FAILS(CALL(attr_get, seg, 0, &size, &length), -1, CMI_ERR_INVAL);
  FAILS(CALL(attr_get, seg, CMI_SEG_INFO, &size, &length), -1, CMI_ERR_INVAL);
  FAILS(CALL(attr_get, seg, CMI_ATTR_RSEG_SIZE, NULL, &length), -1, CMI_ERR_INVAL);
  FAILS(CALL(attr_get, seg, CMI_ATTR_RSEG_SIZE, &size, NULL), -1, CMI_ERR_INVAL);
}

STATEMENT(E_cmi_ctl_CMI_ERR_INVAL_an_unknown_command_or_no_operand) {
  cmi_ctl_cfg cfg;
  begin();
  memset(&cfg, 0, sizeof cfg);
  FAILS(CALL(cmi_ctl, 0, &cfg), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, CMI_SEG_INFO, &cfg), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, INT32_MAX, &cfg), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, CMI_CTL_INFO, NULL), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, CMI_CTL_CACHE_RSEG_SET, NULL), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, CMI_CTL_CACHE_RSEG_GET, NULL), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, CMI_CTL_RECONF_TOUT, NULL), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, CMI_CTL_NODE_CMAP_GET, NULL), -1, CMI_ERR_INVAL);
  FAILS(CALL(cmi_ctl, CMI_CTL_NODE_ADDR_CMP, NULL), -1, CMI_ERR_INVAL);
}

STATEMENT(E_seg_at_CMI_ERR_INVAL_an_unknown_segment_or_a_misaligned_address) {
  size_t i;
  cmi_seg seg;
  begin();
  seg = new_segment(1);
  for (i = 0; i < kUnknowns; ++i) {
    FAILS(CALL(seg_at, kUnknown[i], NULL, 0), NULL, CMI_ERR_INVAL);
  }
  FAILS(CALL(seg_at, seg, (void*)(uintptr_t)0x100000001, 0), NULL, CMI_ERR_INVAL);
}

STATEMENT(E_seg_ctl_CMI_ERR_INVAL_an_unknown_segment_or_command) {
  size_t i;
  cmi_ds ds;
  begin();
  memset(&ds, 0, sizeof ds);
  for (i = 0; i < kUnknowns; ++i) {
    FAILS(CALL(seg_ctl, kUnknown[i], CMI_SEG_STATUS, &ds), -1, CMI_ERR_INVAL);
    FAILS(CALL(seg_ctl, kUnknown[i], CMI_SEG_INFO, &ds), -1, CMI_ERR_INVAL);
    FAILS(CALL(seg_ctl, kUnknown[i], CMI_SEG_RM, NULL), -1, CMI_ERR_INVAL);
  }
  FAILS(CALL(seg_ctl, new_segment(1), CMI_CTL_INFO, &ds), -1, CMI_ERR_INVAL);
  FAILS(CALL(seg_ctl, new_segment(1), CMI_SEG_STATUS, NULL), -1, CMI_ERR_INVAL);
}

STATEMENT(E_seg_dt_CMI_ERR_INVAL_an_unknown_segment) {
  size_t i;
  char* view;
  begin();
  view = attach(new_segment(1));
  for (i = 0; i < kUnknowns; ++i) FAILS(CALL(seg_dt, kUnknown[i], view), -1, CMI_ERR_INVAL);
}

STATEMENT(E_seg_exp_CMI_ERR_INVAL_an_unknown_or_removed_segment) {
  size_t i;
  cmi_seg seg;
  begin();
  for (i = 0; i < kUnknowns; ++i) FAILS(CALL(seg_exp, kUnknown[i], 0), NULL, CMI_ERR_INVAL);
  seg = new_segment(1);
  (void)attach(seg);
  EXPECT(remove_segment(seg) == 0);
  FAILS(CALL(seg_exp, seg, 0), NULL, CMI_ERR_INVAL);
}

STATEMENT(E_seg_get_CMI_ERR_INVAL_a_bad_size_or_flags_that_exclude_each_other) {
  begin();
  FAILS(CALL(seg_get, 0, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  FAILS(CALL(seg_get, unit() + 1, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  FAILS(CALL(seg_get, unit(), CMI_SEG_CLIENT_CONSIST | CMI_SEG_CLIENT_INCONSIST), CMI_SEG_INVALID,
        CMI_ERR_INVAL);
}

STATEMENT(E_tok_new_CMI_ERR_INVAL_a_bad_segment_address_or_right) {
  size_t i;
  cmi_seg seg;
  struct flat address;
  begin();
  seg = new_segment(1);
  for (i = 0; i < kUnknowns; ++i) {
    FAILS(CALL(tok_new, kUnknown[i], CMI_NADDR_ANY, CMI_ACC_READ), NULL, CMI_ERR_INVAL);
  }
  FAILS(CALL(tok_new, seg, NULL, CMI_ACC_READ), NULL, CMI_ERR_INVAL);
  FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, 0), NULL, CMI_ERR_INVAL);
  FAILS(CALL(tok_new, seg, CMI_NADDR_ANY, 0x100), NULL, CMI_ERR_INVAL);
  address = copy(ctxt->naddr, attribute(0, CMI_ATTR_NODEADDR_SIZE));
  address.bytes[40] ^= 1;
  FAILS(CALL(tok_new, seg, (cmi_naddr*)(void*)address.bytes, CMI_ACC_READ), NULL, CMI_ERR_INVAL);
}

/* Every byte of a handle, a token and an address counts. */
#define DAMAGED(object, call, failure)       \
  do {                                       \
    size_t at;                               \
    for (at = 0; at < (object).size; ++at) { \
      (object).bytes[at] ^= 0x40;            \
      FAILS(call, failure, CMI_ERR_INVAL);   \
      (object).bytes[at] ^= 0x40;            \
    }                                        \
  } while (0)

STATEMENT(E_seg_imp_CMI_ERR_INVAL_a_damaged_handle) {
  struct flat handle;
  begin();
  handle = export_of(new_segment(1));
  DAMAGED(handle, CALL(seg_imp, (cmi_rseg*)(void*)handle.bytes), CMI_SEG_INVALID);
  FAILS(CALL(seg_imp, NULL), CMI_SEG_INVALID, CMI_ERR_INVAL);
  EXPECT(import(&handle) > 0);
}

STATEMENT(E_rseg_del_CMI_ERR_INVAL_a_damaged_handle_or_one_that_is_gone) {
  struct flat handle;
  begin();
  handle = export_of(new_segment(1));
  DAMAGED(handle, CALL(rseg_del, (cmi_rseg*)(void*)handle.bytes), -1);
  FAILS(CALL(rseg_del, NULL), -1, CMI_ERR_INVAL);
  EXPECT(CALL(rseg_del, (cmi_rseg*)(void*)handle.bytes) == 0);
  FAILS(CALL(rseg_del, (cmi_rseg*)(void*)handle.bytes), -1, CMI_ERR_INVAL);
}

STATEMENT(E_tok_del_CMI_ERR_INVAL_a_damaged_token_or_one_that_is_gone) {
  struct flat token;
  begin();
  token = token_of(new_segment(1), CMI_ACC_READ);
  DAMAGED(token, CALL(tok_del, (cmi_token*)(void*)token.bytes), -1);
  FAILS(CALL(tok_del, NULL), -1, CMI_ERR_INVAL);
  EXPECT(CALL(tok_del, (cmi_token*)(void*)token.bytes) == 0);
  FAILS(CALL(tok_del, (cmi_token*)(void*)token.bytes), -1, CMI_ERR_INVAL);
}

STATEMENT(S_c86bab_a_token_is_checked_when_it_is_set) {
  struct loop l;
  struct flat token;
  begin();
  l = loop();
  token = token_of(l.home, ALL_RIGHTS);
  DAMAGED(token, set_token(l.import, &token), -1);
  EXPECT(set_token(l.import, &token) == 0);
}

STATEMENT(E_atm_cas_CMI_ERR_INVAL_a_word_in_no_view_or_misaligned) {
  struct loop l;
  uint64_t own = 0, was = 0;
  begin();
  l = loop();
  FAILS(CALL(atm_cas, &own, 0, 1, &was), -1, CMI_ERR_INVAL);
  FAILS(CALL(atm_cas, NULL, 0, 1, &was), -1, CMI_ERR_INVAL);
  FAILS(CALL(atm_cas, (uint64_t*)(void*)(l.far + 4), 0, 1, &was), -1, CMI_ERR_INVAL);
  FAILS(CALL(atm_cas, (uint64_t*)(void*)l.far, 0, 1, NULL), -1, CMI_ERR_INVAL);
  EXPECT(own == 0 && load_word(l.near) == 0);
}

STATEMENT(S_e86128_the_word_of_a_swap_lies_in_a_segment) {
  uint64_t own = 0, was = 0;
  begin();
  FAILS(CALL(atm_cas, &own, 0, 1, &was), -1, CMI_ERR_INVAL);
  EXPECT(own == 0);
}

STATEMENT(E_cflush_CMI_ERR_INVAL_no_addresses_or_a_negative_number) {
  struct loop l;
  void* line;
  begin();
  l = loop();
  line = l.far;
  FAILS(CALL(cflush, &line, -1), -1, CMI_ERR_INVAL);
  FAILS(CALL(cflush, NULL, 1), -1, CMI_ERR_INVAL);
  EXPECT(CALL(cflush, &line, 0) == 0);
}

STATEMENT(E_flush_fb_CMI_ERR_INVAL_no_epoch_of_this_thread) {
  cmi_fb epoch;
  begin();
  FAILS(CALL(flush_fb, NULL), -1, CMI_ERR_INVAL);
  epoch = CALL0(open_fb);
  NEED(epoch != NULL);
  EXPECT(CALL(close_fb, epoch) == 0);
  FAILS(CALL(flush_fb, epoch), -1, CMI_ERR_INVAL);
}

STATEMENT(E_close_fb_CMI_ERR_INVAL_no_epoch_of_this_thread) {
  cmi_fb epoch;
  begin();
  FAILS(CALL(close_fb, NULL), -1, CMI_ERR_INVAL);
  epoch = CALL0(open_fb);
  NEED(epoch != NULL);
  EXPECT(CALL(close_fb, epoch) == 0);
  FAILS(CALL(close_fb, epoch), -1, CMI_ERR_INVAL);
}

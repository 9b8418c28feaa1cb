/*
 * every_name.c: uses every name that the public headers promise, each with the type it must have,
 * so that a missing or retyped one does not compile. Also C++17. Nothing here needs to run; what
 * the functions do is for the tests of the library.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* siginfo_t, which <cmi.h> itself does not need */
#endif

#include <assert.h>
#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>

/* Values and layouts that clients compiled earlier rely on. */

static_assert(CMI_VERNO == 11, "the newest version");
static_assert(CMI_VENDOR_OFI == 0x4f46, "vendor");
static_assert(CMI_DEVICE_SOFT == 1, "device");

static_assert(sizeof(cmi_base) == 8, "cmi_base");
static_assert(offsetof(cmi_base, verno) == 0, "cmi_base");
static_assert(offsetof(cmi_base, vendor) == 2, "cmi_base");
static_assert(offsetof(cmi_base, device) == 4, "cmi_base");
static_assert(offsetof(cmi_ctxt, base) == 0, "the base comes first");
static_assert(offsetof(cmi_ctxt, caps) == 8, "cmi_ctxt");
static_assert(offsetof(cmi_ctxt, naddr) == 16, "cmi_ctxt");
static_assert(offsetof(cmi_rseg, base) == 0, "the base comes first");
static_assert(offsetof(cmi_token, base) == 0, "the base comes first");
static_assert(offsetof(cmi_naddr, base) == 0, "the base comes first");
static_assert(sizeof(cmi_rseg) == 8, "opaque bytes are not shown");
static_assert(sizeof(cmi_token) == 8, "opaque bytes are not shown");
static_assert(sizeof(cmi_naddr) == 8, "opaque bytes are not shown");

static_assert(sizeof(cmi_seg) == 4 && (cmi_seg)-1 < 0, "int32_t");
static_assert(sizeof(cmi_acc) == 4 && (cmi_acc)-1 > 0, "uint32_t");
static_assert(sizeof(cmi_fb) == sizeof(void*), "a pointer");
static_assert(CMI_SEG_INVALID == -1, "CMI_SEG_INVALID");
static_assert(CMI_SEG_ALL == -2, "CMI_SEG_ALL");

static_assert(CMI_ERR_NONE == 0, "CMI_ERR_NONE");
static_assert(sizeof(cmi_error) == sizeof(int), "an enum");
static_assert((int)CMI_ERR_NOTSUP == (int)CMI_ERR_NOTSUPP, "another spelling");
static_assert(CMI_SET_TOKEN == CMI_SEG_TOKEN, "another spelling");
static_assert(CMI_CTM_MEM_RESERVE_DEL == CMI_CTL_MEM_RESERVE_DEL, "another spelling");
static_assert(CMI_TRACE_LVL_NONE == 0, "CMI_TRACE_LVL_NONE");
static_assert(CMI_TRACE_LVL_NONE < CMI_TRACE_LVL_ERROR &&
                  CMI_TRACE_LVL_ERROR < CMI_TRACE_LVL_WARN &&
                  CMI_TRACE_LVL_WARN < CMI_TRACE_LVL_INFO &&
                  CMI_TRACE_LVL_INFO < CMI_TRACE_LVL_DEBUG &&
                  CMI_TRACE_LVL_DEBUG < CMI_TRACE_LVL_HIGHEST,
              "levels grow");

/* Flags are single bits, and no two that could be mixed up share one: then sum and union agree. */

#define IS_BIT(f) ((f) != 0 && ((f) & ((f)-1)) == 0)

static_assert(IS_BIT(CMI_SEG_NORESERVE) && IS_BIT(CMI_SEG_LOCK) && IS_BIT(CMI_SEG_LARGE_PAGES) &&
                  IS_BIT(CMI_SEG_EXTENSIBLE) && IS_BIT(CMI_SEG_CLIENT_CONSIST) &&
                  IS_BIT(CMI_SEG_CLIENT_INCONSIST) && IS_BIT(CMI_SEG_READ) &&
                  IS_BIT(CMI_SEG_WRITE_THROUGH),
              "single bits");
static_assert((CMI_SEG_NORESERVE | CMI_SEG_LOCK | CMI_SEG_LARGE_PAGES | CMI_SEG_EXTENSIBLE |
               CMI_SEG_CLIENT_CONSIST | CMI_SEG_CLIENT_INCONSIST | CMI_SEG_READ |
               CMI_SEG_WRITE_THROUGH) == CMI_SEG_NORESERVE + CMI_SEG_LOCK + CMI_SEG_LARGE_PAGES +
                                             CMI_SEG_EXTENSIBLE + CMI_SEG_CLIENT_CONSIST +
                                             CMI_SEG_CLIENT_INCONSIST + CMI_SEG_READ +
                                             CMI_SEG_WRITE_THROUGH,
              "distinct bits");

static_assert(IS_BIT(CMI_ACC_READ) && IS_BIT(CMI_ACC_WRITE) && IS_BIT(CMI_ACC_ATOMIC), "bits");
static_assert((CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC) ==
                  CMI_ACC_READ + CMI_ACC_WRITE + CMI_ACC_ATOMIC,
              "distinct bits");

static_assert(IS_BIT(CMI_CAP_EXTENSIBLE_SEGMENTS) && IS_BIT(CMI_CAP_NODE_SPECIFIC_TOKEN) &&
                  IS_BIT(CMI_CAP_WRITE_THROUGH) && IS_BIT(CMI_CAP_THREAD_ENABLE) &&
                  IS_BIT(CMI_CAP_MIXED_CONSIST),
              "single bits");
static_assert((CMI_CAP_EXTENSIBLE_SEGMENTS | CMI_CAP_NODE_SPECIFIC_TOKEN | CMI_CAP_WRITE_THROUGH |
               CMI_CAP_THREAD_ENABLE | CMI_CAP_MIXED_CONSIST) ==
                  CMI_CAP_EXTENSIBLE_SEGMENTS + CMI_CAP_NODE_SPECIFIC_TOKEN +
                      CMI_CAP_WRITE_THROUGH + CMI_CAP_THREAD_ENABLE + CMI_CAP_MIXED_CONSIST,
              "distinct bits");

static_assert(IS_BIT(CMI_SEG_ST_EXPORTED) && IS_BIT(CMI_SEG_ST_IMPORTED) &&
                  IS_BIT(CMI_SEG_ST_REMOVED) && IS_BIT(CMI_SEG_ST_QUIESCED) &&
                  IS_BIT(CMI_SEG_ST_TOKEN_SET) && IS_BIT(CMI_SEG_ST_INCONSIST),
              "single bits");
static_assert((CMI_SEG_ST_EXPORTED | CMI_SEG_ST_IMPORTED | CMI_SEG_ST_REMOVED |
               CMI_SEG_ST_QUIESCED | CMI_SEG_ST_TOKEN_SET | CMI_SEG_ST_INCONSIST) ==
                  CMI_SEG_ST_EXPORTED + CMI_SEG_ST_IMPORTED + CMI_SEG_ST_REMOVED +
                      CMI_SEG_ST_QUIESCED + CMI_SEG_ST_TOKEN_SET + CMI_SEG_ST_INCONSIST,
              "distinct bits");

static_assert(IS_BIT(CMI_TRACE_FAC_INI) && IS_BIT(CMI_TRACE_FAC_CTRL) &&
                  IS_BIT(CMI_TRACE_FAC_SEG) && IS_BIT(CMI_TRACE_FAC_TOK) &&
                  IS_BIT(CMI_TRACE_FAC_EVT) && IS_BIT(CMI_TRACE_FAC_MEM),
              "single bits");
static_assert(CMI_TRACE_FAC_ALL == CMI_TRACE_FAC_INI + CMI_TRACE_FAC_CTRL + CMI_TRACE_FAC_SEG +
                                       CMI_TRACE_FAC_TOK + CMI_TRACE_FAC_EVT + CMI_TRACE_FAC_MEM,
              "all of them, and distinct");

/* A member lies in the same place under each of its names. */

#define SAME_PLACE(type, with, without) \
  static_assert(offsetof(type, with) == offsetof(type, without), #with " and " #without)

SAME_PLACE(cmi_ctl_cfg, op.info.seg_alignment, info.seg_alignment);
SAME_PLACE(cmi_ctl_cfg, op.cache.mpool_sz, cache.mpool_sz);
SAME_PLACE(cmi_ctl_cfg, op.rcfg.rcfg_tout, rcfg.rcfg_tout);
SAME_PLACE(cmi_ctl_cfg, op.cmap.cmap_reqid, cmap.cmap_reqid);
SAME_PLACE(cmi_ctl_cfg, op.mreq.rsv_key, mreq.rsv_key);
SAME_PLACE(cmi_ctl_cfg, op.ncmp.ncmp_midx, ncmp.ncmp_midx);
SAME_PLACE(cmi_ds, op.token.tok, token.tok);
SAME_PLACE(cmi_ds, op.status.st_owner, status.st_owner);
SAME_PLACE(cmi_ds, op.reco.reco_size, reco.reco_size);
SAME_PLACE(cmi_ds, op.brk.seg_brksz, brk.seg_brksz);
SAME_PLACE(cmi_ds, op.info.seg_flags, info.seg_flags);
SAME_PLACE(cmi_event, info.seg.einfo_seg, seg.einfo_seg);
SAME_PLACE(cmi_event, info.down.einfo_segs, down.einfo_segs);
SAME_PLACE(cmi_event, info.serr.einfo_addr, serr.einfo_addr);
SAME_PLACE(cmi_event, info.cmap.einfo_nodes, cmap.einfo_nodes);

/* Version 11 begins with version 10, so that both tables can be one. */
static_assert(offsetof(struct cmi_fns_11, wmb_fn) == offsetof(struct cmi_fns_10, wmb_fn),
              "the entries of version 10 keep their places");
static_assert(offsetof(struct cmi_fns_11, seg_getva) == sizeof(struct cmi_fns_10),
              "what is new comes after them");

/* What arrives in a signal handler must not overlap. */
static_assert(SEGV_CMI == 0x434d, "SEGV_CMI");
static_assert(offsetof(siginfo_t, si_id) >= offsetof(siginfo_t, si_addr) + sizeof(void*),
              "si_id beside si_addr");
static_assert(offsetof(siginfo_t, si_pc) >= offsetof(siginfo_t, si_id) + sizeof(int),
              "si_pc beside si_id");

/* The cases of a switch must differ. */

void every_error_differs(cmi_error error);
void every_error_differs(cmi_error error) {
  switch (error) {
    case CMI_ERR_NONE:
    case CMI_ERR_INIT:
    case CMI_ERR_INVAL:
    case CMI_ERR_NOMEM:
    case CMI_ERR_PERM:
    case CMI_ERR_NOTSUPP:
    case CMI_ERR_BOUND:
    case CMI_ERR_HW:
    case CMI_ERR_STORE:
    case CMI_ERR_RECONFIG:
      break;
  }
}

void every_exception_differs(const siginfo_t* signal_info, void** pc, const int** id);
void every_exception_differs(const siginfo_t* signal_info, void** pc, const int** id) {
  switch (signal_info->si_errno) {
    case 0: /* what other signals have there */
    case CMI_ERROR_ENABLE:
    case CMI_ERROR_TOKEN:
    case CMI_ERROR_ACCESS:
    case CMI_ERROR_SINVAL:
    case CMI_ERROR_UE:
    case CMI_ERROR_TRANSIENT:
    case CMI_ERROR_SEG_BRK:
    case CMI_ERROR_CONSIST:
      break;
    default:
      break;
  }
  *pc = signal_info->si_pc;
  *id = &signal_info->si_id;
}

void every_command_differs(int32_t command);
void every_command_differs(int32_t command) {
  switch (command) {
    case CMI_SEG_RM:
    case CMI_SEG_TOKEN:
    case CMI_SEG_STATUS:
    case CMI_SEG_CHECK:
    case CMI_SEG_RECO:
    case CMI_SEG_BRK:
    case CMI_SEG_INFO:
    case CMI_CTL_INFO:
    case CMI_CTL_CACHE_RSEG_SET:
    case CMI_CTL_CACHE_RSEG_GET:
    case CMI_CTL_RECONF_TOUT:
    case CMI_CTL_CLIENT_CONSIST:
    case CMI_CTL_NODE_CMAP_GET:
    case CMI_CTL_MEM_RESERVE:
    case CMI_CTL_MEM_RESERVE_DEL:
    case CMI_CTL_MEM_RESERVE_SET:
    case CMI_CTL_NODE_ADDR_CMP:
    case CMI_ATTR_RSEG_SIZE:
    case CMI_ATTR_TOKEN_SIZE:
    case CMI_ATTR_NODEADDR_SIZE:
      break;
    default:
      break;
  }
}

void every_event_differs(cmi_event_type type, cmi_event_ret status);
void every_event_differs(cmi_event_type type, cmi_event_ret status) {
  switch (type) {
    case CMI_EVENT_QUIESCE:
    case CMI_EVENT_RESUME:
    case CMI_EVENT_RCTXT_DOWN:
    case CMI_EVENT_HCTXT_DOWN:
    case CMI_EVENT_STORE_FAILURE:
    case CMI_EVENT_HW:
    case CMI_EVENT_CMAP:
      break;
  }
  switch (status) {
    case CMI_EVENT_RET_DONE:
    case CMI_EVENT_RET_FAILED:
      break;
  }
}

/*
 * Members: HAS(lvalue, type) compiles if lvalue is one, of just that type. The address of an lvalue
 * of another type does not convert; a value, as a macro might expand to, has no address.
 */
#define HAS(lvalue, type)      \
  do {                         \
    type* pointer = &(lvalue); \
    (void)pointer;             \
  } while (0)

typedef void* alloc_callback(size_t, void*);
typedef void free_callback(void*, void*);
typedef void message_callback(void*, const char*);
typedef alloc_callback* alloc_pointer;
typedef free_callback* free_pointer;
typedef message_callback* message_pointer;

void every_member_of_objects(cmi_ctxt* ctxt, cmi_rseg* rseg, cmi_token* token, cmi_cbs* cbs);
void every_member_of_objects(cmi_ctxt* ctxt, cmi_rseg* rseg, cmi_token* token, cmi_cbs* cbs) {
  cmi_naddr* any = CMI_NADDR_ANY;

  (void)any;
  HAS(ctxt->base, cmi_base);
  HAS(ctxt->base.verno, uint16_t);
  HAS(ctxt->base.vendor, uint16_t);
  HAS(ctxt->base.device, uint32_t);
  HAS(ctxt->caps, uint64_t);
  HAS(ctxt->naddr, cmi_naddr*);
  HAS(ctxt->naddr->base, cmi_base);
  HAS(rseg->base, cmi_base);
  HAS(token->base, cmi_base);

  HAS(cbs->alloc, alloc_pointer);
  HAS(cbs->free, free_pointer);
  HAS(cbs->alert, message_pointer);
  HAS(cbs->log, message_pointer);
  HAS(cbs->arg, void*);
  HAS(cbs->trace_facilities, uint32_t);
  HAS(cbs->trace_level, uint32_t);
}

/* Under all three names. */
#define HAS_CFG(group, member, type)  \
  do {                                \
    HAS(cfg->op.group.member, type);  \
    HAS(cfg->group.member, type);     \
    HAS(cfg->ctl_cfg_##member, type); \
  } while (0)

void every_member_of_cmi_ctl_cfg(cmi_ctl_cfg* cfg);
void every_member_of_cmi_ctl_cfg(cmi_ctl_cfg* cfg) {
  HAS_CFG(info, max_mem_avail, size_t);
  HAS_CFG(info, max_mem_cfg, size_t);
  HAS_CFG(info, max_seg_sz, size_t);
  HAS_CFG(info, max_exp_segs, uint32_t);
  HAS_CFG(info, max_imp_segs, uint32_t);
  HAS_CFG(info, max_write_through_segs, uint32_t);
  HAS_CFG(info, max_acc_toks, uint32_t);
  HAS_CFG(info, max_acc_stok, uint32_t);
  HAS_CFG(info, cur_exp_segs, uint32_t);
  HAS_CFG(info, cur_imp_segs, uint32_t);
  HAS_CFG(info, cache_line_sz, size_t);
  HAS_CFG(info, max_reco_segsz, size_t);
  HAS_CFG(info, prot_units, size_t);
  HAS_CFG(info, seg_alloc_units, size_t);
  HAS_CFG(info, seg_alignment, size_t);
  HAS_CFG(info, seg_lrgpg_alignment, size_t);
  HAS_CFG(cache, seg_hndl, cmi_seg);
  HAS_CFG(cache, mpool_sz, size_t);
  HAS_CFG(rcfg, rcfg_tout, uint32_t);
  HAS_CFG(cmap, cmap_reqid, uint64_t);
  HAS_CFG(mreq, mem_reserve, size_t);
  HAS_CFG(mreq, mem_allocd, size_t);
  HAS_CFG(mreq, rsv_key, uint64_t);
  HAS_CFG(ncmp, ncmp_naddr, cmi_naddr*);
  HAS_CFG(ncmp, ncmp_caddr, cmi_naddr**);
  HAS_CFG(ncmp, ncmp_addrs, uint32_t);
  HAS_CFG(ncmp, ncmp_midx, uint32_t*);
}

#define HAS_DS(group, member, type) \
  do {                              \
    HAS(ds->op.group.member, type); \
    HAS(ds->group.member, type);    \
  } while (0)

void every_member_of_cmi_ds(cmi_ds* ds);
void every_member_of_cmi_ds(cmi_ds* ds) {
  HAS_DS(token, tok, cmi_token*);
  HAS_DS(status, st_flags, uint32_t);
  HAS_DS(status, st_nattach, uint32_t);
  HAS_DS(status, st_owner, pid_t);
  HAS_DS(reco, reco_addr, void*);
  HAS_DS(reco, reco_size, size_t);
  HAS_DS(brk, seg_brksz, size_t);
  HAS_DS(info, seg_align, size_t);
  HAS_DS(info, seg_sz, size_t);
  HAS_DS(info, seg_brk, size_t);
  HAS_DS(info, seg_flags, int32_t);
}

#define HAS_EINFO(group, member, type)   \
  do {                                   \
    HAS(event->info.group.member, type); \
    HAS(event->group.member, type);      \
  } while (0)

void every_member_of_cmi_event(cmi_event* event);
void every_member_of_cmi_event(cmi_event* event) {
  HAS(event->type, cmi_event_type);
  HAS(event->ctxt, cmi_ctxt*);
  HAS(event->info.seg, cmi_einfo_seg);
  HAS(event->info.down, cmi_einfo_down);
  HAS(event->info.serr, cmi_einfo_serr);
  HAS(event->info.cmap, cmi_einfo_cmap);
  HAS_EINFO(seg, einfo_seg, cmi_seg);
  HAS_EINFO(down, einfo_naddr, cmi_naddr*);
  HAS_EINFO(down, einfo_nsegs, uint32_t);
  HAS_EINFO(down, einfo_segs, cmi_seg*);
  HAS_EINFO(serr, einfo_seg, cmi_seg);
  HAS_EINFO(serr, einfo_naddrs, uint32_t);
  HAS_EINFO(serr, einfo_addr, void**);
  HAS_EINFO(cmap, einfo_reqid, uint64_t);
  HAS_EINFO(cmap, einfo_nnodes, uint32_t);
  HAS_EINFO(cmap, einfo_nodes, cmi_naddr**);
}

/* Functions: IS(function, result, arguments) compiles if the function has just that signature. */
#define IS(function, result, arguments)      \
  do {                                       \
    result(*pointer) arguments = (function); \
    (void)pointer;                           \
  } while (0)
/* Version 10 and later. */
#define SINCE_10(fn, result, arguments)         \
  do {                                          \
    IS(CMIFN(ctxt, 10, fn), result, arguments); \
    SINCE_11(fn, result, arguments);            \
  } while (0)
#define SINCE_11(fn, result, arguments)                \
  do {                                                 \
    IS(CMIFN(ctxt, 11, fn), result, arguments);        \
    IS(CMIFN(ctxt, CMI_VERNO, fn), result, arguments); \
  } while (0)

void every_function(cmi_ctxt* ctxt);
void every_function(cmi_ctxt* ctxt) {
  IS(cmi_ini, cmi_ctxt*, (uint16_t, cmi_cbs*));
  IS(cmi_get_error, cmi_error, (cmi_ctxt*));

  SINCE_10(atm_cas, int, (cmi_ctxt*, uint64_t*, uint64_t, uint64_t, uint64_t*));
  SINCE_10(attr_get, int, (cmi_ctxt*, cmi_seg, int32_t, void*, size_t*));
  SINCE_10(cflush, int, (cmi_ctxt*, void*[], int32_t));
  SINCE_10(close_fb, int, (cmi_ctxt*, cmi_fb));
  SINCE_10(cmi_ctl, int, (cmi_ctxt*, int32_t, cmi_ctl_cfg*));
  SINCE_10(cmi_enb, int, (cmi_ctxt*, int));
  SINCE_10(evt_get, cmi_event*, (cmi_ctxt*));
  SINCE_10(evt_ret, void, (cmi_event*, cmi_event_ret));
  SINCE_10(fini, int, (cmi_ctxt*));
  SINCE_10(flush_fb, int, (cmi_ctxt*, cmi_fb));
  SINCE_10(ini_th, int, (cmi_ctxt*));
  SINCE_10(mb_fn, int, (cmi_ctxt*));
  SINCE_10(open_fb, cmi_fb, (cmi_ctxt*));
  SINCE_10(rmb_fn, int, (cmi_ctxt*));
  SINCE_10(rseg_del, int, (cmi_ctxt*, cmi_rseg*));
  SINCE_10(seg_at, void*, (cmi_ctxt*, cmi_seg, void*, int32_t));
  SINCE_10(seg_ctl, int, (cmi_ctxt*, cmi_seg, int32_t, cmi_ds*));
  SINCE_10(seg_dt, int, (cmi_ctxt*, cmi_seg, void*));
  SINCE_10(seg_exp, cmi_rseg*, (cmi_ctxt*, cmi_seg, int32_t));
  SINCE_10(seg_get, cmi_seg, (cmi_ctxt*, size_t, int32_t));
  SINCE_10(seg_imp, cmi_seg, (cmi_ctxt*, cmi_rseg*));
  SINCE_10(tok_del, int, (cmi_ctxt*, cmi_token*));
  SINCE_10(tok_new, cmi_token*, (cmi_ctxt*, cmi_seg, cmi_naddr*, cmi_acc));
  SINCE_10(wmb_fn, int, (cmi_ctxt*));

  SINCE_11(seg_getva, cmi_seg, (cmi_ctxt*, void*, size_t, int32_t));
  SINCE_11(tok_newva, cmi_token*, (cmi_ctxt*, cmi_seg, void*, size_t, cmi_naddr*, cmi_acc));
}

/* <cmi/ofi/cmi_impl.h> */

int every_extension(cmi_ctxt* ctxt, struct cmi_ofi_stats* stats);
int every_extension(cmi_ctxt* ctxt, struct cmi_ofi_stats* stats) {
  IS(cmi_ofi_mb, int, (void));
  IS(cmi_ofi_wmb, int, (void));
  IS(cmi_ofi_get_stats, int, (cmi_ctxt*, struct cmi_ofi_stats*));
  IS(cmi_ofi_stats, int, (cmi_ctxt*, struct cmi_ofi_stats*));
  IS(cmi_ofi_strerror, const char*, (cmi_error));
  IS(cmi_ofi_error_name, const char*, (cmi_error));
  IS(cmi_ofi_exception_name, const char*, (int));
  IS(cmi_ofi_event_name, const char*, (cmi_event_type));
  IS(cmi_ofi_error_text, const char*, (cmi_ctxt*));
  IS(cmi_ofi_format, int, (const void*, char*, size_t*));
  IS(cmi_ofi_parse, int, (const char*, void*, size_t*));
  IS(cmi_ofi_prefetch, int, (cmi_ctxt*, const void*, size_t));
  IS(cmi_ofi_offer, int, (cmi_ctxt*, const char*, const char*, const cmi_rseg*, const cmi_token*));
  IS(cmi_ofi_find, cmi_seg, (cmi_ctxt*, const char*, const char*, uint32_t));
  static_assert(CMI_OFI_TEXT_SIZE == 1056, "buffers of clients have it");

  static_assert(offsetof(struct cmi_ofi_stats, size) == 0, "the size comes first");
  stats->size = sizeof *stats;
  HAS(stats->size, size_t);
  HAS(stats->load_misses, uint64_t);
  HAS(stats->store_misses, uint64_t);
  HAS(stats->store_faults, uint64_t);
  HAS(stats->pages_fetched, uint64_t);
  HAS(stats->bytes_fetched, uint64_t);
  HAS(stats->bytes_written_back, uint64_t);
  HAS(stats->pages_written_back, uint64_t);
  HAS(stats->publications, uint64_t);
  HAS(stats->invalidations_received, uint64_t);
  HAS(stats->cas_calls, uint64_t);
  HAS(stats->cas_lost, uint64_t);
  HAS(stats->exceptions, uint64_t);
  HAS(stats->messages_dropped, uint64_t);
  HAS(stats->pages_evicted, uint64_t);
  HAS(stats->most_unanswered, uint64_t);
  HAS(stats->ticks, uint64_t);
  HAS(stats->pages_updated, uint64_t);
  HAS(stats->publications_received, uint64_t);
  HAS(stats->invalidations_useless, uint64_t);
  HAS(stats->intents_asked, uint64_t);
  HAS(stats->swaps_with_page, uint64_t);
  HAS(stats->requests_held_back, uint64_t);
  HAS(stats->twins_short, uint64_t);

  static_assert(sizeof(cmi_mb()) == sizeof(int), "an int value");
  static_assert(sizeof(cmi_wmb()) == sizeof(int), "an int value");
  static_assert(sizeof(cmi_rmb()) == sizeof(int), "an int value");
  cmi_rmb(); /* as a statement, without a warning about an unused value */
  return cmi_mb() + cmi_wmb() + cmi_rmb() + cmi_ofi_stats(ctxt, stats);
}

// Every entry of the function table that takes a context, as a table: a call that would be legal,
// were the context right and the thread registered.
#pragma once

#include <cmi.h>

#include <iterator>

namespace cmi::one_process {

// What a case has to hand to the calls. A member that is unset makes the call's arguments wrong,
// which is as good where the context or the thread is what shall be found wrong first.
struct Arguments {
  cmi_seg seg = 1;
  void* view = nullptr;
  cmi_rseg* rseg = nullptr;
  cmi_token* tok = nullptr;
  cmi_fb epoch = nullptr;
};

struct Entry {
  const char* name;
  // Whether the call gave its failure value.
  bool (*fails)(const cmi_fns_11& fns, cmi_ctxt* ctxt, const Arguments& args);
};

// The name of the entry is said once, and cannot differ from the call.
#define CMI_ENTRY(fn, failure, ...)                                               \
  {                                                                               \
#fn, [](const cmi_fns_11& fns, cmi_ctxt* ctxt, const Arguments& args) -> bool { \
      (void)args;                                                                 \
      return fns.fn(ctxt __VA_OPT__(, ) __VA_ARGS__) == failure;                  \
    } \
  }

inline cmi_ctl_cfg* any_cfg() {
  static cmi_ctl_cfg cfg;
  return &cfg;
}
inline cmi_ds* any_ds() {
  static cmi_ds ds;
  return &ds;
}
inline size_t* any_size() {
  static size_t size = sizeof size;
  return &size;
}
inline uint64_t* any_word() {
  static uint64_t word;
  return &word;
}

// All but evt_ret(), which takes no context.
inline const Entry kEveryCall[] = {
    CMI_ENTRY(atm_cas, -1, static_cast<uint64_t*>(args.view), 0, 0, any_word()),
    CMI_ENTRY(attr_get, -1, args.seg, CMI_ATTR_RSEG_SIZE, any_size(), any_size()),
    CMI_ENTRY(cflush, -1, const_cast<void**>(&args.view), 1),
    CMI_ENTRY(close_fb, -1, args.epoch),
    CMI_ENTRY(cmi_ctl, -1, CMI_CTL_INFO, any_cfg()),
    CMI_ENTRY(cmi_enb, -1, 1),
    CMI_ENTRY(evt_get, nullptr),
    CMI_ENTRY(fini, -1),
    CMI_ENTRY(flush_fb, -1, args.epoch),
    CMI_ENTRY(ini_th, -1),
    CMI_ENTRY(mb_fn, -1),
    CMI_ENTRY(open_fb, nullptr),
    CMI_ENTRY(rmb_fn, -1),
    CMI_ENTRY(rseg_del, -1, args.rseg),
    CMI_ENTRY(seg_at, nullptr, args.seg, nullptr, 0),
    CMI_ENTRY(seg_ctl, -1, args.seg, CMI_SEG_STATUS, any_ds()),
    CMI_ENTRY(seg_dt, -1, args.seg, args.view),
    CMI_ENTRY(seg_exp, nullptr, args.seg, 0),
    CMI_ENTRY(seg_get, CMI_SEG_INVALID, 4096, 0),
    CMI_ENTRY(seg_getva, CMI_SEG_INVALID, nullptr, 4096, 0),
    CMI_ENTRY(seg_imp, CMI_SEG_INVALID, args.rseg),
    CMI_ENTRY(tok_del, -1, args.tok),
    CMI_ENTRY(tok_new, nullptr, args.seg, CMI_NADDR_ANY, CMI_ACC_READ),
    CMI_ENTRY(tok_newva, nullptr, args.seg, args.view, 4096, CMI_NADDR_ANY, CMI_ACC_READ),
    CMI_ENTRY(wmb_fn, -1),
};
constexpr size_t kTableEntries = sizeof(cmi_fns_11) / sizeof(void (*)());
static_assert(std::size(kEveryCall) == kTableEntries - 1);

#undef CMI_ENTRY

}  // namespace cmi::one_process

// The C entries behind the function tables. Arguments that are flat values are checked here or in
// the context; pointers of clients are read and written with no lock of the library held, because
// they may lie in a view.
//
// Calls that may take a lock block the thread's signals: a client's handler that touched a view in
// the middle of one would wait for its own thread.
#include "core/api/calls.hpp"

#include <cmi/ofi/cmi_impl.h>

#include <cstring>

#include "core/api/entry.hpp"

namespace cmi::api {

static_assert(kFacIni == CMI_TRACE_FAC_INI && kFacCtrl == CMI_TRACE_FAC_CTRL &&
              kFacSeg == CMI_TRACE_FAC_SEG && kFacTok == CMI_TRACE_FAC_TOK &&
              kFacEvt == CMI_TRACE_FAC_EVT && kFacMem == CMI_TRACE_FAC_MEM);
static_assert(kHighest == CMI_TRACE_LVL_HIGHEST && kError == CMI_TRACE_LVL_ERROR);
static_assert(static_cast<int>(memory::Exception::kEnable) == CMI_ERROR_ENABLE &&
              static_cast<int>(memory::Exception::kToken) == CMI_ERROR_TOKEN &&
              static_cast<int>(memory::Exception::kAccess) == CMI_ERROR_ACCESS &&
              static_cast<int>(memory::Exception::kSinval) == CMI_ERROR_SINVAL &&
              static_cast<int>(memory::Exception::kUe) == CMI_ERROR_UE &&
              static_cast<int>(memory::Exception::kTransient) == CMI_ERROR_TRANSIENT &&
              static_cast<int>(memory::Exception::kSegBrk) == CMI_ERROR_SEG_BRK &&
              static_cast<int>(memory::Exception::kConsist) == CMI_ERROR_CONSIST);
static_assert(fabric::kRead == CMI_ACC_READ && fabric::kWrite == CMI_ACC_WRITE &&
              fabric::kAtomic == CMI_ACC_ATOMIC);

int atm_cas(cmi_ctxt* ctxt, uint64_t* addr, uint64_t cmpval, uint64_t swpval, uint64_t* rval) {
  for (;;) {
    Context* c = enter(ctxt);
    if (c == nullptr) return -1;
    Context::Raised raised;
    uint64_t found = 0;
    const int rc = finish(kFacMem, "atm_cas", [&] {
      SignalsBlocked quiet;
      return rval == nullptr ? Status::kInval : c->cas(addr, cmpval, swpval, &found, &raised);
    });
    if (rc != 0) return rc;
    if (raised.exception == memory::Exception::kNone) {
      *rval = found;
      return 0;
    }
    memory::count(c->engine().stats().exceptions);
    // Returning from the client's handler tries again; siglongjmp leaves for good.
    memory::raise_in_call(raised.exception, raised.addr, raised.segment,
                          __builtin_return_address(0));
  }
}

int attr_get(cmi_ctxt* ctxt, cmi_seg seg, int32_t cmd, void* optval, size_t* optlen) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  size_t size = 0;
  const size_t room = optlen != nullptr ? *optlen : 0;
  const int rc = finish(kFacCtrl, "attr_get", [&] {
    SignalsBlocked quiet;
    if (optlen == nullptr) return Status::kInval;
    if (Status s = c->attribute(seg, cmd, &size); !ok(s)) return s;
    if (room < sizeof(size_t)) return Status::kNoMem;
    return optval == nullptr ? Status::kInval : Status::kOk;
  });
  if (optlen != nullptr && size != 0 && (rc == 0 || context::t_error == CMI_ERR_NOMEM)) {
    *optlen = sizeof(size_t);
  }
  if (rc == 0) std::memcpy(optval, &size, sizeof size);
  return rc;
}

int cflush(cmi_ctxt* ctxt, void* vaddr[], int32_t addrcnt) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  Context::Raised raised;
  const int rc = finish(kFacMem, "cflush", [&] {
    if (addrcnt < 0 || (vaddr == nullptr && addrcnt > 0)) return Status::kInval;
    std::vector<void*> addrs(vaddr, vaddr + addrcnt);
    SignalsBlocked quiet;
    return c->cflush(addrs.data(), addrcnt, &raised);
  });
  if (raised.exception != memory::Exception::kNone) {
    const cmi_error error = context::t_error;
    memory::count(c->engine().stats().exceptions);
    memory::raise_in_call(raised.exception, raised.addr, raised.segment,
                          __builtin_return_address(0));
    context::t_error = error;
  }
  return rc;
}

cmi_fb open_fb(cmi_ctxt* ctxt) {
  Context* c = enter(ctxt);
  if (c == nullptr) return nullptr;
  return finish_object<cmi_fb>(kFacMem, "open_fb", nullptr, [&] { return c->open_epoch(); });
}

int flush_fb(cmi_ctxt* ctxt, cmi_fb epoch) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  return finish(kFacMem, "flush_fb", [&] { return c->flush_epoch(epoch); });
}

int close_fb(cmi_ctxt* ctxt, cmi_fb epoch) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  return finish(kFacMem, "close_fb", [&] { return c->close_epoch(epoch); });
}

static int barrier_call(cmi_ctxt* ctxt) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  // Not through finish: the empty barrier is a hot path.
  Status s = Status::kNoMem;
  try {
    s = c->barrier();
  } catch (const std::bad_alloc&) {
  }
  if (ok(s)) return 0;
  trace(kFacMem, kInfo, "barrier: {}", status_name(s));
  context::t_error = translate(s);
  return -1;
}

int mb_fn(cmi_ctxt* ctxt) { return barrier_call(ctxt); }
int wmb_fn(cmi_ctxt* ctxt) { return barrier_call(ctxt); }

int rmb_fn(cmi_ctxt* ctxt) {
  if (enter(ctxt) == nullptr) return -1;
  // Invalidations are pushed: what a returned barrier published is not in any cache any more.
  std::atomic_thread_fence(std::memory_order_acquire);
  return 0;
}

int cmi_enb(cmi_ctxt* ctxt, int enable) {
  if (enter(ctxt) == nullptr) return -1;
  memory::t_access_enabled = enable != 0;
  return 0;
}

int cmi_ctl(cmi_ctxt* ctxt, int32_t cmd, cmi_ctl_cfg* cfg) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  cmi_ctl_cfg out{};
  bool copy = false;
  const int rc = finish(kFacCtrl, "cmi_ctl", [&] {
    SignalsBlocked quiet;
    switch (cmd) {
      case CMI_CTL_INFO:
        if (cfg == nullptr) return Status::kInval;
        c->info(&out);
        copy = true;
        return Status::kOk;
      case CMI_CTL_CACHE_RSEG_SET:
      case CMI_CTL_CACHE_RSEG_GET:
      case CMI_CTL_RECONF_TOUT:
      case CMI_CTL_CLIENT_CONSIST:
      case CMI_CTL_NODE_CMAP_GET:
      case CMI_CTL_MEM_RESERVE:
      case CMI_CTL_MEM_RESERVE_DEL:
      case CMI_CTL_MEM_RESERVE_SET:
      case CMI_CTL_NODE_ADDR_CMP:
        return Status::kNotSupp;
      default:
        return Status::kInval;
    }
  });
  if (rc == 0 && copy) *cfg = out;
  return rc;
}

cmi_event* evt_get(cmi_ctxt* ctxt) {
  // Nothing makes events yet: none waits.
  enter(ctxt);
  return nullptr;
}

void evt_ret(cmi_event* event, cmi_event_ret status) {
  if (Context::current() == nullptr) return;
  trace(kFacEvt, kWarn, "evt_ret: {} (status {}) is no event of this context",
        static_cast<void*>(event), static_cast<int>(status));
}

int fini(cmi_ctxt* ctxt) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  return finish(kFacIni, "fini", [&] {
    SignalsBlocked quiet;
    return c->leave_thread();
  });
}

int ini_th(cmi_ctxt* ctxt) {
  Context* c = enter(ctxt, false);
  if (c == nullptr) return -1;
  return finish(kFacIni, "ini_th", [&] {
    SignalsBlocked quiet;
    return c->join_thread();
  });
}

cmi_rseg* seg_exp(cmi_ctxt* ctxt, cmi_seg seg, int32_t attrib) {
  Context* c = enter(ctxt);
  if (c == nullptr) return nullptr;
  return finish_object<cmi_rseg*>(kFacSeg, "seg_exp", nullptr, [&] {
    SignalsBlocked quiet;
    return c->seg_exp(seg, attrib);
  });
}

cmi_seg seg_get(cmi_ctxt* ctxt, size_t size, int32_t flags) {
  Context* c = enter(ctxt);
  if (c == nullptr) return CMI_SEG_INVALID;
  return finish_object<cmi_seg>(kFacSeg, "seg_get", CMI_SEG_INVALID, [&] {
    SignalsBlocked quiet;
    return c->seg_get(size, flags);
  });
}

cmi_seg seg_imp(cmi_ctxt* ctxt, cmi_rseg* rseg) {
  Context* c = enter(ctxt);
  if (c == nullptr) return CMI_SEG_INVALID;
  return finish_object<cmi_seg>(kFacSeg, "seg_imp", CMI_SEG_INVALID, [&] {
    SignalsBlocked quiet;
    return c->seg_imp(rseg);
  });
}

void* seg_at(cmi_ctxt* ctxt, cmi_seg seg, void* addr, int32_t flags) {
  Context* c = enter(ctxt);
  if (c == nullptr) return nullptr;
  return finish_object<void*>(kFacSeg, "seg_at", nullptr, [&] {
    SignalsBlocked quiet;
    return c->seg_at(seg, addr, flags);
  });
}

int seg_dt(cmi_ctxt* ctxt, cmi_seg seg, void* addr) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  return finish(kFacSeg, "seg_dt", [&] {
    SignalsBlocked quiet;
    return c->seg_dt(seg, addr);
  });
}

int seg_ctl(cmi_ctxt* ctxt, cmi_seg seg, int32_t cmd, cmi_ds* ds) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  cmi_ds out{};
  bool copy = false;
  const cmi_token* token = cmd == CMI_SEG_TOKEN && ds != nullptr ? ds->token.tok : nullptr;
  const int rc = finish(kFacCtrl, "seg_ctl", [&] {
    SignalsBlocked quiet;
    switch (cmd) {
      case CMI_SEG_RM:
        return c->seg_remove(seg);
      case CMI_SEG_TOKEN:
        return c->set_token(seg, token);
      case CMI_SEG_STATUS:
      case CMI_SEG_INFO:
        if (ds == nullptr) return Status::kInval;
        copy = true;
        return cmd == CMI_SEG_STATUS ? c->seg_status(seg, &out) : c->seg_info(seg, &out);
      case CMI_SEG_CHECK:
      case CMI_SEG_RECO:
      case CMI_SEG_BRK:
        return c->node().find(seg) ? Status::kNotSupp : Status::kInval;
      default:
        return Status::kInval;
    }
  });
  if (rc == 0 && copy) *ds = out;
  return rc;
}

int rseg_del(cmi_ctxt* ctxt, cmi_rseg* rseg) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  return finish(kFacSeg, "rseg_del", [&] {
    SignalsBlocked quiet;
    return c->rseg_del(rseg);
  });
}

int tok_del(cmi_ctxt* ctxt, cmi_token* tok) {
  Context* c = enter(ctxt);
  if (c == nullptr) return -1;
  return finish(kFacTok, "tok_del", [&] {
    SignalsBlocked quiet;
    return c->tok_del(tok);
  });
}

cmi_token* tok_new(cmi_ctxt* ctxt, cmi_seg seg, cmi_naddr* naddr, cmi_acc flags) {
  Context* c = enter(ctxt);
  if (c == nullptr) return nullptr;
  return finish_object<cmi_token*>(kFacTok, "tok_new", nullptr, [&] {
    SignalsBlocked quiet;
    return c->tok_new(seg, naddr, flags);
  });
}

cmi_seg seg_getva(cmi_ctxt* ctxt, void*, size_t, int32_t) {
  if (enter(ctxt) != nullptr) context::t_error = CMI_ERR_NOTSUPP;
  return CMI_SEG_INVALID;
}

cmi_token* tok_newva(cmi_ctxt* ctxt, cmi_seg, void*, size_t, cmi_naddr*, cmi_acc) {
  if (enter(ctxt) != nullptr) context::t_error = CMI_ERR_NOTSUPP;
  return nullptr;
}

}  // namespace cmi::api

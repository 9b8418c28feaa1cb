// The C entries behind the function tables. Arguments that are flat values are checked here or in
// the context; pointers of clients are read and written with no lock of the library held, because
// they may lie in a view.
//
// Calls that read an object of the client's do so before they block signals: it may lie in a view.
// Calls that may take a lock block the thread's signals: a client's handler that touched a view in
// the middle of one would wait for its own thread.
#include "core/api/calls.hpp"

#include <cmi/ofi/cmi_impl.h>

#include <cstring>

#include "core/api/compare_nodes.hpp"
#include "core/api/entry.hpp"
#include "core/api/names.hpp"

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
  for (bool again = false;; again = true) {
    Context* c = enter(ctxt, kFacMem, "atm_cas");
    if (c == nullptr) return -1;
    Context::Raised raised;
    uint64_t found = 0;
    const int rc = finish(
        kFacMem,
        [&] {
          SignalsBlocked quiet;
          return rval == nullptr ? because(Status::kInval, "rval is null")
                                 : c->cas(addr, cmpval, swpval, &again, again, &found, &raised);
        },
        "atm_cas({}, {:#x}, {:#x})", fmt::ptr(addr), cmpval, swpval);
    if (rc != 0) return rc;
    if (raised.exception == memory::Exception::kNone) {
      *rval = found;
      return 0;
    }
    memory::count(c->engine().stats().exceptions);
    // Returning from the client's handler tries again; siglongjmp leaves for good.
    memory::raise_in_call(raised.exception, raised.addr, raised.segment,
                          __builtin_return_address(0));
    if (raised
            .final) {  // whether it happened is not known: only the client can decide to repeat it
      fail(kFacMem, CMI_ERR_HW, "atm_cas({}): CMI_ERR_HW, whether it was made is not known",
           fmt::ptr(addr));
      return -1;
    }
  }
}

int attr_get(cmi_ctxt* ctxt, cmi_seg seg, int32_t cmd, void* optval, size_t* optlen) {
  Context* c = enter(ctxt, kFacCtrl, "attr_get");
  if (c == nullptr) return -1;
  size_t size = 0;
  const size_t room = optlen != nullptr ? *optlen : 0;
  const int rc = finish(
      kFacCtrl,
      [&] {
        SignalsBlocked quiet;
        if (optlen == nullptr) return because(Status::kInval, "optlen is null");
        if (Status s = c->attribute(seg, cmd, &size); !ok(s)) return s;
        if (room < sizeof(size_t)) return because(Status::kNoMem, "the buffer is too small");
        return optval == nullptr ? because(Status::kInval, "optval is null") : Status::kOk;
      },
      "attr_get(segment {}, {} {:#x})", seg, command_name(cmd), cmd);
  if (optlen != nullptr && size != 0 && (rc == 0 || context::t_error == CMI_ERR_NOMEM)) {
    *optlen = sizeof(size_t);
  }
  if (rc == 0) std::memcpy(optval, &size, sizeof size);
  return rc;
}

// The lines of a cflush that has raised an exception. One that still may not be accessed is not
// flushed.
static int flush_once_more(Context* c, void** vaddr, int32_t addrcnt) {
  return finish(
      kFacMem,
      [&] {
        std::vector<void*> addrs(vaddr, vaddr + addrcnt);
        SignalsBlocked quiet;
        Context::Raised raised;
        const Status s = c->cflush(addrs.data(), addrcnt, &raised);
        if (!ok(s) || raised.exception == memory::Exception::kNone) return s;
        return because(Status::kStore, "a line may not be accessed");
      },
      "cflush({} addresses, once more)", addrcnt);
}

int cflush(cmi_ctxt* ctxt, void* vaddr[], int32_t addrcnt) {
  Context* c = enter(ctxt, kFacMem, "cflush");
  if (c == nullptr) return -1;
  Context::Raised raised;
  int rc = finish(
      kFacMem,
      [&] {
        if (addrcnt < 0 || (vaddr == nullptr && addrcnt > 0)) {
          return because(Status::kInval, "no addresses, or a negative number of them");
        }
        std::vector<void*> addrs(vaddr, vaddr + addrcnt);
        SignalsBlocked quiet;
        return c->cflush(addrs.data(), addrcnt, &raised);
      },
      "cflush({} addresses)", addrcnt);
  if (raised.exception != memory::Exception::kNone) {
    const cmi_error error = context::t_error;
    memory::count(c->engine().stats().exceptions);
    memory::raise_in_call(raised.exception, raised.addr, raised.segment,
                          __builtin_return_address(0));
    context::t_error = error;
    // The client's handler has returned: it may have mended the line, or not. It may have left by a
    // jump as well, so nothing with a destructor is alive here.
    if (rc == 0) rc = flush_once_more(c, vaddr, addrcnt);
  }
  return rc;
}

cmi_fb open_fb(cmi_ctxt* ctxt) {
  Context* c = enter(ctxt, kFacMem, "open_fb");
  if (c == nullptr) return nullptr;
  return finish_object<cmi_fb>(
      kFacMem, nullptr, [&] { return c->open_epoch(); }, "open_fb()");
}

int flush_fb(cmi_ctxt* ctxt, cmi_fb epoch) {
  Context* c = enter(ctxt, kFacMem, "flush_fb");
  if (c == nullptr) return -1;
  return finish(
      kFacMem, [&] { return c->flush_epoch(epoch); }, "flush_fb({})", fmt::ptr(epoch));
}

int close_fb(cmi_ctxt* ctxt, cmi_fb epoch) {
  Context* c = enter(ctxt, kFacMem, "close_fb");
  if (c == nullptr) return -1;
  return finish(
      kFacMem, [&] { return c->close_epoch(epoch); }, "close_fb({})", fmt::ptr(epoch));
}

static int barrier_call(cmi_ctxt* ctxt, const char* call) {
  Context* c = enter(ctxt, kFacMem, call);
  if (c == nullptr) return -1;
  // Traced before it is done, so that a barrier that hangs can be seen to.
  trace(kFacMem, kHighest, "{}()", call);
  Status s = Status::kNoMem;
  try {
    s = c->barrier();
  } catch (const std::bad_alloc&) {
  }
  if (ok(s)) return 0;
  trace_call(kFacMem, s, "ok", "{}()", call);
  context::t_error = translate(s);
  return -1;
}

int mb_fn(cmi_ctxt* ctxt) { return barrier_call(ctxt, "mb_fn"); }
int wmb_fn(cmi_ctxt* ctxt) { return barrier_call(ctxt, "wmb_fn"); }

int rmb_fn(cmi_ctxt* ctxt) {
  if (enter(ctxt, kFacMem, "rmb_fn") == nullptr) return -1;
  trace(kFacMem, kHighest, "rmb_fn()");
  // Invalidations are pushed: what a returned barrier published is not in any cache any more.
  std::atomic_thread_fence(std::memory_order_acquire);
  return 0;
}

int cmi_enb(cmi_ctxt* ctxt, int enable) {
  Context* c = enter(ctxt, kFacMem, "cmi_enb");
  if (c == nullptr) return -1;
  const bool enabled = enable != 0;
  return finish(
      kFacMem,
      [&] {
        if (memory::t_access_enabled == enabled) return Status::kOk;
        memory::t_access_enabled = false;  // before the views are closed, or until there is memory
        c->engine().importer().thread_enabled(enabled);
        memory::t_access_enabled = enabled;
        return Status::kOk;
      },
      "cmi_enb({})", enable);
}

int cmi_ctl(cmi_ctxt* ctxt, int32_t cmd, cmi_ctl_cfg* cfg) {
  Context* c = enter(ctxt, kFacCtrl, "cmi_ctl");
  if (c == nullptr) return -1;
  cmi_ctl_cfg out{};
  bool copy = false, always = false;  // whether to copy it out: on success, also on failure
  // Read while no signal is blocked: it may lie in a segment. What INFO fills need not be readable.
  if (cfg != nullptr && cmd != CMI_CTL_INFO) out = *cfg;
  const int rc = finish(
      kFacCtrl,
      [&] {
        const bool operand_may_lack =
            cmd == CMI_CTL_CLIENT_CONSIST || cmd == CMI_CTL_MEM_RESERVE_DEL;
        if (cfg == nullptr && !operand_may_lack) {
          return because(Status::kInval, "the operand is null, or the command is unknown");
        }
        if (cmd == CMI_CTL_NODE_ADDR_CMP) return compare_nodes(cfg);
        SignalsBlocked quiet;
        switch (cmd) {
          case CMI_CTL_INFO:
            c->info(&out);
            copy = true;
            return Status::kOk;
          case CMI_CTL_CACHE_RSEG_SET:
            return c->set_cache_size(out.cache.seg_hndl, out.cache.mpool_sz);
          case CMI_CTL_CACHE_RSEG_GET: {
            auto size = c->cache_size(out.cache.seg_hndl);
            if (!size) return size.status();
            out.cache.mpool_sz = *size;
            copy = true;
            return Status::kOk;
          }
          case CMI_CTL_CLIENT_CONSIST:
            c->assume_client_consistent();
            return Status::kOk;
          case CMI_CTL_RECONF_TOUT:
            return c->set_reconf_timeout(out.rcfg.rcfg_tout);
          case CMI_CTL_NODE_CMAP_GET:
            return c->request_map(out.cmap.cmap_reqid);
          case CMI_CTL_MEM_RESERVE:
            always = true;
            return c->reserve_memory(&out.mreq);
          case CMI_CTL_MEM_RESERVE_SET:
            return c->use_reservation(out.mreq.rsv_key);
          case CMI_CTL_MEM_RESERVE_DEL:
            return c->delete_reservation();
          default:
            return because(Status::kInval, "the command is unknown");
        }
      },
      "cmi_ctl({} {:#x})", command_name(cmd), cmd);
  if (always) cfg->mreq = out.mreq;
  if (rc == 0 && copy) *cfg = out;
  return rc;
}

cmi_event* evt_get(cmi_ctxt* ctxt) {
  Context* c = enter(ctxt, kFacEvt, "evt_get");
  if (c == nullptr) return nullptr;
  // Signals stay as they are: the event is made with the client's allocator, in its memory.
  cmi_event* event = finish_object<cmi_event*>(
      kFacEvt, nullptr, [&] { return c->next_event(); }, "evt_get()");
  if (event != nullptr)
    trace(kFacEvt, kInfo, "evt_get: event of type {}", static_cast<int>(event->type));
  return event;
}

void evt_ret(cmi_event* event, cmi_event_ret status) {
  Context* c = Context::current();
  if (c == nullptr || context::t_thread == nullptr || context::t_thread->context != c) {
    fail(kFacEvt, CMI_ERR_INIT, "evt_ret({}): CMI_ERR_INIT, this thread is not registered",
         fmt::ptr(event));
    return;
  }
  const bool ours = c->return_event(event, status);
  trace(kFacEvt, ours ? kDebug : kWarn, "evt_ret({}, status {}): {}", fmt::ptr(event),
        static_cast<int>(status), ours ? "ok" : "no event of this context that is out");
}

int fini(cmi_ctxt* ctxt) {
  Context* c = enter(ctxt, kFacIni, "fini");
  if (c == nullptr) return -1;
  return finish(
      kFacIni,
      [&] {
        SignalsBlocked quiet;
        return c->leave_thread();
      },
      "fini()");
}

int ini_th(cmi_ctxt* ctxt) {
  if (enter(ctxt, kFacIni, "ini_th", false) == nullptr) return -1;
  return finish(
      kFacIni,
      [&] {
        SignalsBlocked quiet;
        return Context::join(ctxt);
      },
      "ini_th()");
}

cmi_rseg* seg_exp(cmi_ctxt* ctxt, cmi_seg seg, int32_t attrib) {
  Context* c = enter(ctxt, kFacSeg, "seg_exp");
  if (c == nullptr) return nullptr;
  return finish_object<cmi_rseg*>(
      kFacSeg, nullptr,
      [&] {
        SignalsBlocked quiet;
        return c->seg_exp(seg, attrib);
      },
      "seg_exp(segment {}, attributes {:#x})", seg, attrib);
}

cmi_seg seg_get(cmi_ctxt* ctxt, size_t size, int32_t flags) {
  Context* c = enter(ctxt, kFacSeg, "seg_get");
  if (c == nullptr) return CMI_SEG_INVALID;
  return finish_object<cmi_seg>(
      kFacSeg, CMI_SEG_INVALID,
      [&] {
        SignalsBlocked quiet;
        return c->seg_get(size, flags);
      },
      "seg_get({} bytes, flags {:#x})", size, flags);
}

cmi_seg seg_imp(cmi_ctxt* ctxt, cmi_rseg* rseg) {
  Context* c = enter(ctxt, kFacSeg, "seg_imp");
  if (c == nullptr) return CMI_SEG_INVALID;
  return finish_object<cmi_seg>(
      kFacSeg, CMI_SEG_INVALID,
      [&] {
        return c->seg_imp(rseg);  // blocks signals once it has read the object
      },
      "seg_imp({})", fmt::ptr(rseg));
}

void* seg_at(cmi_ctxt* ctxt, cmi_seg seg, void* addr, int32_t flags) {
  Context* c = enter(ctxt, kFacSeg, "seg_at");
  if (c == nullptr) return nullptr;
  return finish_object<void*>(
      kFacSeg, nullptr,
      [&] {
        SignalsBlocked quiet;
        return c->seg_at(seg, addr, flags);
      },
      "seg_at(segment {}, {}, flags {:#x})", seg, addr, flags);
}

int seg_dt(cmi_ctxt* ctxt, cmi_seg seg, void* addr) {
  Context* c = enter(ctxt, kFacSeg, "seg_dt");
  if (c == nullptr) return -1;
  return finish(
      kFacSeg,
      [&] {
        SignalsBlocked quiet;
        return c->seg_dt(seg, addr);
      },
      "seg_dt(segment {}, {})", seg, addr);
}

int seg_ctl(cmi_ctxt* ctxt, cmi_seg seg, int32_t cmd, cmi_ds* ds) {
  Context* c = enter(ctxt, kFacCtrl, "seg_ctl");
  if (c == nullptr) return -1;
  cmi_ds out{};
  bool copy = false;
  const bool recovers = cmd == CMI_SEG_CHECK || cmd == CMI_SEG_RECO;
  if (recovers && ds != nullptr) out.reco = ds->reco;
  const size_t brk = cmd == CMI_SEG_BRK && ds != nullptr ? ds->brk.seg_brksz : 0;
  const cmi_token* token = cmd == CMI_SEG_TOKEN && ds != nullptr ? ds->token.tok : nullptr;
  const int rc = finish(
      kFacCtrl,
      [&] {
        if (cmd == CMI_SEG_TOKEN) return c->set_token(seg, token);  // reads the token first
        SignalsBlocked quiet;
        switch (cmd) {
          case CMI_SEG_RM:
            return c->seg_remove(seg);
          case CMI_SEG_STATUS:
          case CMI_SEG_INFO:
            if (ds == nullptr) return because(Status::kInval, "the operand is null");
            copy = true;
            return cmd == CMI_SEG_STATUS ? c->seg_status(seg, &out) : c->seg_info(seg, &out);
          case CMI_SEG_CHECK:
          case CMI_SEG_RECO:
            if (ds == nullptr) return because(Status::kInval, "the operand is null");
            copy = cmd == CMI_SEG_CHECK;
            return copy ? c->seg_check(seg, &out) : c->seg_recover(seg, out);
          case CMI_SEG_BRK:
            return ds != nullptr ? c->set_break(seg, brk) : Status::kInval;
          default:
            return because(Status::kInval, "the command is unknown");
        }
      },
      "seg_ctl(segment {}, {} {:#x})", seg, command_name(cmd), cmd);
  if (rc == 0 && copy) *ds = out;
  return rc;
}

int rseg_del(cmi_ctxt* ctxt, cmi_rseg* rseg) {
  Context* c = enter(ctxt, kFacSeg, "rseg_del");
  if (c == nullptr) return -1;
  return finish(
      kFacSeg,
      [&] {
        return c->rseg_del(rseg);  // blocks signals once it has read the object
      },
      "rseg_del({})", fmt::ptr(rseg));
}

int tok_del(cmi_ctxt* ctxt, cmi_token* tok) {
  Context* c = enter(ctxt, kFacTok, "tok_del");
  if (c == nullptr) return -1;
  return finish(
      kFacTok,
      [&] {
        return c->tok_del(tok);  // blocks signals once it has read the object
      },
      "tok_del({})", fmt::ptr(tok));
}

cmi_token* tok_new(cmi_ctxt* ctxt, cmi_seg seg, cmi_naddr* naddr, cmi_acc flags) {
  Context* c = enter(ctxt, kFacTok, "tok_new");
  if (c == nullptr) return nullptr;
  return finish_object<cmi_token*>(
      kFacTok, nullptr,
      [&] {
        return c->tok_new(seg, naddr, flags);  // blocks signals once it has read the object
      },
      "tok_new(segment {}, {}, rights {:#x})", seg, fmt::ptr(naddr), flags);
}

cmi_seg seg_getva(cmi_ctxt* ctxt, void* va, size_t size, int32_t flags) {
  Context* c = enter(ctxt, kFacSeg, "seg_getva");
  if (c == nullptr) return CMI_SEG_INVALID;
  return finish_object<cmi_seg>(
      kFacSeg, CMI_SEG_INVALID,
      [&] {
        SignalsBlocked quiet;
        return c->seg_getva(va, size, flags);
      },
      "seg_getva({}, {} bytes, flags {:#x})", va, size, flags);
}

cmi_token* tok_newva(cmi_ctxt* ctxt, cmi_seg seg, void* va, size_t size, cmi_naddr* naddr,
                     cmi_acc flags) {
  Context* c = enter(ctxt, kFacTok, "tok_newva");
  if (c == nullptr) return nullptr;
  return finish_object<cmi_token*>(
      kFacTok, nullptr,
      [&] {
        return c->tok_newva(seg, va, size, naddr, flags);  // as tok_new
      },
      "tok_newva(segment {}, {}, {} bytes, {}, rights {:#x})", seg, va, size, fmt::ptr(naddr),
      flags);
}

}  // namespace cmi::api

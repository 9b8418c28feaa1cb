// The C entries that access and publish memory: barriers, epochs, cflush, atm_cas, cmi_enb.
#include <atomic>

#include "core/api/calls.hpp"
#include "core/api/entry.hpp"
#include "core/base/usdt.hpp"

namespace cmi::api {

static_assert(static_cast<int>(memory::Exception::kEnable) == CMI_ERROR_ENABLE &&
              static_cast<int>(memory::Exception::kToken) == CMI_ERROR_TOKEN &&
              static_cast<int>(memory::Exception::kAccess) == CMI_ERROR_ACCESS &&
              static_cast<int>(memory::Exception::kSinval) == CMI_ERROR_SINVAL &&
              static_cast<int>(memory::Exception::kUe) == CMI_ERROR_UE &&
              static_cast<int>(memory::Exception::kTransient) == CMI_ERROR_TRANSIENT &&
              static_cast<int>(memory::Exception::kSegBrk) == CMI_ERROR_SEG_BRK &&
              static_cast<int>(memory::Exception::kConsist) == CMI_ERROR_CONSIST);

int atm_cas(cmi_ctxt* ctxt, uint64_t* addr, uint64_t cmpval, uint64_t swpval, uint64_t* rval) {
  for (bool again = false;; again = true) {
    Context* c = enter(ctxt, kFacMem, "atm_cas");
    if (c == nullptr) return -1;
    context::Raised raised;
    uint64_t found = 0;
    const int rc = finish(
        kFacMem,
        [&] {
          SignalsBlocked quiet;
          return rval == nullptr
                     ? because(Status::kInval, "rval is null")
                     : c->barriers().cas({addr, cmpval, swpval, &again, again}, &found, &raised);
        },
        "atm_cas({}, {:#x}, {:#x})", fmt::ptr(addr), cmpval, swpval);
    if (rc != 0) return rc;
    if (raised.exception == memory::Exception::kNone) {
      *rval = found;
      return 0;
    }
    memory::count(c->engine().stats().exceptions);
    CMI_PROBE3(exception, raised.segment, raised.addr, static_cast<int>(raised.exception));
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

// The lines of a cflush that has raised an exception. One that still may not be accessed is not
// flushed.
static int flush_once_more(Context* c, void** vaddr, int32_t addrcnt) {
  return finish(
      kFacMem,
      [&] {
        std::vector<void*> addrs(vaddr, vaddr + addrcnt);
        SignalsBlocked quiet;
        context::Raised raised;
        const Status s = c->barriers().cflush(addrs.data(), addrcnt, &raised);
        if (!ok(s) || raised.exception == memory::Exception::kNone) return s;
        return because(Status::kStore, "a line may not be accessed");
      },
      "cflush({} addresses, once more)", addrcnt);
}

int cflush(cmi_ctxt* ctxt, void* vaddr[], int32_t addrcnt) {
  Context* c = enter(ctxt, kFacMem, "cflush");
  if (c == nullptr) return -1;
  context::Raised raised;
  int rc = finish(
      kFacMem,
      [&] {
        if (addrcnt < 0 || (vaddr == nullptr && addrcnt > 0)) {
          return because(Status::kInval, "no addresses, or a negative number of them");
        }
        std::vector<void*> addrs(vaddr, vaddr + addrcnt);
        SignalsBlocked quiet;
        return c->barriers().cflush(addrs.data(), addrcnt, &raised);
      },
      "cflush({} addresses)", addrcnt);
  if (raised.exception != memory::Exception::kNone) {
    const cmi_error error = context::t_error;
    memory::count(c->engine().stats().exceptions);
    CMI_PROBE3(exception, raised.segment, raised.addr, static_cast<int>(raised.exception));
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
      kFacMem, nullptr, [&] { return c->barriers().open_epoch(); }, "open_fb()");
}

int flush_fb(cmi_ctxt* ctxt, cmi_fb epoch) {
  Context* c = enter(ctxt, kFacMem, "flush_fb");
  if (c == nullptr) return -1;
  return finish(
      kFacMem, [&] { return c->barriers().flush_epoch(epoch); }, "flush_fb({})", fmt::ptr(epoch));
}

int close_fb(cmi_ctxt* ctxt, cmi_fb epoch) {
  Context* c = enter(ctxt, kFacMem, "close_fb");
  if (c == nullptr) return -1;
  return finish(
      kFacMem, [&] { return c->barriers().close_epoch(epoch); }, "close_fb({})", fmt::ptr(epoch));
}

static int barrier_call(cmi_ctxt* ctxt, const char* call) {
  Context* c = enter(ctxt, kFacMem, call);
  if (c == nullptr) return -1;
  // Traced before it is done, so that a barrier that hangs can be seen to.
  trace(kFacMem, kHighest, "{}()", call);
  Status s = Status::kNoMem;
  try {
    s = c->barriers().barrier();
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
  if (enabled) let_faults_in();
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

}  // namespace cmi::api

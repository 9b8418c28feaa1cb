// The symbols of the library: cmi_ini, cmi_get_error, cmi_ofi_*; and the tables that CMIFN reaches.
#include <cmi/ofi/cmi_impl.h>

#include <algorithm>
#include <cstring>

#include "core/api/calls.hpp"
#include "core/api/entry.hpp"

using namespace cmi;  // the C names live outside of any namespace

namespace {

constexpr cmi_fns_11 kTable11 = {
    api::atm_cas,   api::attr_get, api::cflush,   api::close_fb, api::cmi_ctl, api::cmi_enb,
    api::evt_get,   api::evt_ret,  api::fini,     api::flush_fb, api::ini_th,  api::mb_fn,
    api::open_fb,   api::rmb_fn,   api::rseg_del, api::seg_at,   api::seg_ctl, api::seg_dt,
    api::seg_exp,   api::seg_get,  api::seg_imp,  api::tok_del,  api::tok_new, api::wmb_fn,
    api::seg_getva, api::tok_newva};

constexpr cmi_fns_10 kTable10 = {
    api::atm_cas, api::attr_get, api::cflush,   api::close_fb, api::cmi_ctl, api::cmi_enb,
    api::evt_get, api::evt_ret,  api::fini,     api::flush_fb, api::ini_th,  api::mb_fn,
    api::open_fb, api::rmb_fn,   api::rseg_del, api::seg_at,   api::seg_ctl, api::seg_dt,
    api::seg_exp, api::seg_get,  api::seg_imp,  api::tok_del,  api::tok_new, api::wmb_fn};

}  // namespace

extern "C" cmi_ctxt* cmi_ini(uint16_t verno, cmi_cbs* callback) {
  Status s = Status::kNoMem;
  context::Context* c = nullptr;
  try {
    cmi_cbs copy{};
    if (callback != nullptr) copy = *callback;
    SignalsBlocked quiet;
    auto r =
        context::Context::start(verno, callback != nullptr ? &copy : nullptr, &kTable10, &kTable11);
    s = r.status();
    if (r) c = *r;
  } catch (const std::bad_alloc&) {
  }
  cmi_ctxt* handle = ok(s) ? c->handle() : nullptr;
  if (ok(s)) api::let_faults_in();
  api::trace_call(kFacIni, s, handle, "cmi_ini(version {})", verno);
  context::t_error = api::translate(s);
  return handle;
}

extern "C" cmi_error cmi_get_error(cmi_ctxt*) { return context::t_error; }

static int barrier_of_process(const char* macro) {
  trace(kFacMem, kHighest, "{}()", macro);
  Status s;
  try {
    s = context::barrier_here();
  } catch (const std::bad_alloc&) {
    s = Status::kNoMem;
  }
  if (!ok(s)) api::trace_call(kFacMem, s, "ok", "{}()", macro);
  context::t_error = api::translate(s);
  return ok(s) ? 0 : -1;
}

extern "C" int cmi_ofi_mb(void) { return barrier_of_process("cmi_mb"); }
extern "C" int cmi_ofi_wmb(void) { return barrier_of_process("cmi_wmb"); }

extern "C" int cmi_ofi_evt_fd(cmi_ctxt* ctxt) {
  context::Context* c = api::enter(ctxt, kFacEvt, "cmi_ofi_evt_fd");
  return c != nullptr ? c->events().descriptor() : -1;
}

extern "C" int cmi_ofi_get_stats(cmi_ctxt* ctxt, cmi_ofi_stats* out) {
  context::Context* c = api::enter(ctxt, kFacCtrl, "cmi_ofi_get_stats");
  if (c == nullptr) return -1;
  if (out == nullptr || out->size != sizeof *out) {
    api::fail(kFacCtrl, CMI_ERR_INVAL, "cmi_ofi_get_stats: CMI_ERR_INVAL, {}",
              out == nullptr ? "stats is null" : "its size is none that is known");
    return -1;
  }
  const memory::Stats& in = c->engine().stats();
  cmi_ofi_stats s;
  std::memset(&s, 0, sizeof s);
  s.size = sizeof s;
  s.load_misses = in.load_misses;
  s.store_misses = in.store_misses;
  s.store_faults = in.store_faults;
  s.pages_fetched = in.pages_fetched;
  s.bytes_fetched = in.bytes_fetched;
  s.bytes_written_back = in.bytes_written_back;
  s.pages_written_back = in.pages_written_back;
  s.pages_evicted = in.pages_evicted;
  s.most_unanswered = in.most_unanswered;
  s.ticks = in.ticks;
  s.pages_updated = in.pages_updated;
  s.publications_received = in.publications_received;
  s.invalidations_useless = in.invalidations_useless;
  s.intents_asked = in.intents_asked;
  s.swaps_with_page = in.swaps_with_page;
  s.requests_held_back = in.requests_held_back;
  s.twins_short = in.twins_short;
  s.publications = in.publications;
  s.invalidations_received = in.invalidations_received;
  s.cas_calls = in.cas_calls;
  s.cas_lost = in.cas_lost;
  s.exceptions = in.exceptions;
  s.messages_dropped = c->engine().messages_dropped();
  *out = s;
  return 0;
}

extern "C" int cmi_ofi_prefetch(cmi_ctxt* ctxt, const void* addr, size_t len) {
  context::Context* c = api::enter(ctxt, kFacMem, "cmi_ofi_prefetch");
  if (c == nullptr) return -1;
  return api::finish(
      kFacMem,
      [&] {
        SignalsBlocked quiet;
        return c->barriers().prefetch(addr, len);
      },
      "cmi_ofi_prefetch({}, {} bytes)", addr, len);
}

// The symbol of clients in C, and of those that were built when C++ had the function as well. It is
// declared by its label: a function of this name would hide the structure.
extern "C" CMI_EXPORT int cmi_ofi_stats_of_c(cmi_ctxt* ctxt,
                                             cmi_ofi_stats* out) __asm__("cmi_ofi_stats");
extern "C" int cmi_ofi_stats_of_c(cmi_ctxt* ctxt, cmi_ofi_stats* out) {
  return cmi_ofi_get_stats(ctxt, out);
}

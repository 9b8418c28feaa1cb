// The C entries that control and ask: cmi_ctl, seg_ctl, attr_get, events, threads that come and go.
#include <cstring>

#include "core/api/calls.hpp"
#include "core/api/compare_nodes.hpp"
#include "core/api/entry.hpp"
#include "core/api/names.hpp"

namespace cmi::api {

static_assert(kFacIni == CMI_TRACE_FAC_INI && kFacCtrl == CMI_TRACE_FAC_CTRL &&
              kFacSeg == CMI_TRACE_FAC_SEG && kFacTok == CMI_TRACE_FAC_TOK &&
              kFacEvt == CMI_TRACE_FAC_EVT && kFacMem == CMI_TRACE_FAC_MEM);
static_assert(kHighest == CMI_TRACE_LVL_HIGHEST && kError == CMI_TRACE_LVL_ERROR);

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
        if (Status s = c->segments().attribute(seg, cmd, &size); !ok(s)) return s;
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
            return c->cache_sizes().set(out.cache.seg_hndl, out.cache.mpool_sz);
          case CMI_CTL_CACHE_RSEG_GET: {
            auto size = c->cache_sizes().get(out.cache.seg_hndl);
            if (!size) return size.status();
            out.cache.mpool_sz = *size;
            copy = true;
            return Status::kOk;
          }
          case CMI_CTL_CLIENT_CONSIST:
            c->segments().assume_client_consistent();
            return Status::kOk;
          case CMI_CTL_RECONF_TOUT:
            return c->set_reconf_timeout(out.rcfg.rcfg_tout);
          case CMI_CTL_NODE_CMAP_GET:
            return c->request_map(out.cmap.cmap_reqid);
          case CMI_CTL_MEM_RESERVE:
            always = true;
            return c->reservation().reserve(&out.mreq);
          case CMI_CTL_MEM_RESERVE_SET:
            return c->reservation().use(out.mreq.rsv_key);
          case CMI_CTL_MEM_RESERVE_DEL:
            return c->reservation().remove();
          default:
            return because(Status::kInval, "the command is unknown");
        }
      },
      "cmi_ctl({} {:#x})", command_name(cmd), cmd);
  if (always) cfg->mreq = out.mreq;
  if (rc == 0 && copy) *cfg = out;
  return rc;
}

// What seg_ctl() does with everything but a token. *copy: `out` goes to the client.
static Status control(Context* c, cmi_seg seg, int32_t cmd, bool has_operand, size_t brk,
                      cmi_ds* out, bool* copy) {
  if (cmd == CMI_SEG_RM) return c->segments().remove(seg);
  if (!has_operand) return because(Status::kInval, "the operand is null, or no such command");
  *copy = cmd == CMI_SEG_STATUS || cmd == CMI_SEG_INFO || cmd == CMI_SEG_CHECK;
  switch (cmd) {
    case CMI_SEG_STATUS:
      return c->segments().status(seg, out);
    case CMI_SEG_INFO:
      return c->segments().info(seg, out);
    case CMI_SEG_CHECK:
      return c->segments().check(seg, out);
    case CMI_SEG_RECO:
      return c->segments().recover(seg, *out);
    case CMI_SEG_BRK:
      return c->segments().set_break(seg, brk);
    default:
      return because(Status::kInval, "the command is unknown");
  }
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
        // Reads the token first.
        if (cmd == CMI_SEG_TOKEN) return c->sharing().set_token(seg, token);
        SignalsBlocked quiet;
        return control(c, seg, cmd, ds != nullptr, brk, &out, &copy);
      },
      "seg_ctl(segment {}, {} {:#x})", seg, command_name(cmd), cmd);
  if (rc == 0 && copy) *ds = out;
  return rc;
}

cmi_event* evt_get(cmi_ctxt* ctxt) {
  Context* c = enter(ctxt, kFacEvt, "evt_get");
  if (c == nullptr) return nullptr;
  // Signals stay as they are: the event is made with the client's allocator, in its memory.
  cmi_event* event = finish_object<cmi_event*>(
      kFacEvt, nullptr, [&] { return c->events().get(); }, "evt_get()");
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
  const bool ours = c->events().give_back(event, status);
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
  const int rc = finish(
      kFacIni,
      [&] {
        SignalsBlocked quiet;
        return Context::join(ctxt);
      },
      "ini_th()");
  if (rc == 0) let_faults_in();
  return rc;
}

}  // namespace cmi::api

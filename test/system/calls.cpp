// One lambda for each call of the library, run in the child that the test names.
#include "system/calls.hpp"

#include <cmi/ofi/cmi_sync.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>

#include "core/base/clock.hpp"

namespace cmi::test {

namespace {
cmi_ctxt* g_ctxt = nullptr;
cmi_fb g_epoch = nullptr;
CMI_OF_PROCESS(g_ctxt);
CMI_OF_PROCESS(g_epoch);
}  // namespace

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  return out << answer.value << ", error " << answer.error;
}

cmi_ctxt* ctxt() { return g_ctxt; }
cmi_ofi_stats stats() {
  cmi_ofi_stats s{};
  s.size = sizeof s;
  ::cmi_ofi_get_stats(ctxt(), &s);
  return s;
}

cmi_fb& epoch() { return g_epoch; }

Answer answer(int64_t value, bool failed) {
  if (failed) return {-1, cmi_get_error(g_ctxt)};
  return {value, CMI_ERR_NONE};
}

Answer start_context(uint16_t verno) {
  cmi_ctxt* context = cmi_ini(verno, nullptr);
  if (context == nullptr) return answer(-1, true);
  g_ctxt = context;
  // Tests of what is silent wait no longer than they must. Those of the default say so.
  if (std::getenv("CMI_TEST_DEFAULT_TIMEOUT") == nullptr) {
    cmi_ctl_cfg cfg{};
    cfg.rcfg.rcfg_tout = 1000;
    if (CMIFN(context, 10, cmi_ctl)(context, CMI_CTL_RECONF_TOUT, &cfg) != 0) {
      return answer(-1, true);
    }
  }
  return answer(0, false);
}

Answer finish_context() {
  if (g_ctxt == nullptr) return {0, CMI_ERR_NONE};
  const int result = CMIFN(g_ctxt, 10, fini)(g_ctxt);
  if (result == 0) g_ctxt = nullptr;
  g_epoch = nullptr;
  return result == 0 ? Answer{0, CMI_ERR_NONE} : Answer{-1, cmi_get_error(nullptr)};
}

Flat copy_of(const void* object, cmi_seg seg, int32_t size_attribute) {
  Flat flat;
  if (object == nullptr) {
    flat.error = cmi_get_error(g_ctxt);
    return flat;
  }
  size_t size = 0;
  size_t length = sizeof size;
  if (CMIFN(g_ctxt, 10, attr_get)(g_ctxt, seg, size_attribute, &size, &length) != 0) {
    flat.error = cmi_get_error(g_ctxt);
  } else if (size > flat.bytes.size()) {
    flat.error = CMI_ERR_NOMEM;
  } else {
    std::memcpy(flat.bytes.data(), object, size);
    flat.size = static_cast<uint32_t>(size);
  }
  return flat;
}

Answer ini(Process& process, uint16_t verno) {
  return process.run([](uint16_t v) { return start_context(v); }, verno);
}

Answer fini(Process& process) {
  return process.run([] { return finish_context(); });
}

Answer seg_get(Process& process, size_t size, int32_t flags) {
  return process.run(
      [](size_t s, int32_t f) {
        const cmi_seg seg = CMIFN(ctxt(), 10, seg_get)(ctxt(), s, f);
        return answer(seg, seg == CMI_SEG_INVALID);
      },
      size, flags);
}

Answer seg_at(Process& process, cmi_seg seg, uint64_t address, int32_t flags) {
  return process.run(
      [](cmi_seg s, uint64_t a, int32_t f) {
        void* view = CMIFN(ctxt(), 10, seg_at)(ctxt(), s, reinterpret_cast<void*>(a), f);
        return answer(reinterpret_cast<int64_t>(view), view == nullptr);
      },
      seg, address, flags);
}

Answer seg_dt(Process& process, cmi_seg seg, uint64_t address) {
  return process.run(
      [](cmi_seg s, uint64_t a) {
        const int result = CMIFN(ctxt(), 10, seg_dt)(ctxt(), s, reinterpret_cast<void*>(a));
        return answer(result, result != 0);
      },
      seg, address);
}

Answer seg_rm(Process& process, cmi_seg seg) {
  return process.run(
      [](cmi_seg s) {
        const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), s, CMI_SEG_RM, nullptr);
        return answer(result, result != 0);
      },
      seg);
}

Answer set_token(Process& process, cmi_seg seg, const Flat& token) {
  return process.run(
      [](cmi_seg s, Flat t) {
        cmi_ds ds{};
        ds.token.tok = t.as<cmi_token>();
        const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), s, CMI_SEG_TOKEN, &ds);
        return answer(result, result != 0);
      },
      seg, token);
}

Answer seg_brk(Process& process, cmi_seg seg, uint64_t size) {
  return process.run(
      [](cmi_seg s, uint64_t n) {
        cmi_ds ds{};
        ds.brk.seg_brksz = n;
        const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), s, CMI_SEG_BRK, &ds);
        return answer(result, result != 0);
      },
      seg, size);
}

Answer cache_of(Process& process, cmi_seg seg) {
  return process.run(
      [](cmi_seg s) {
        cmi_ctl_cfg cfg{};
        cfg.cache.seg_hndl = s;
        const int failed = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_CACHE_RSEG_GET, &cfg);
        return answer(static_cast<int64_t>(cfg.cache.mpool_sz), failed != 0);
      },
      seg);
}

Answer set_cache(Process& process, cmi_seg seg, size_t bytes) {
  return process.run(
      [](cmi_seg s, size_t n) {
        cmi_ctl_cfg cfg{};
        cfg.cache.seg_hndl = s;
        cfg.cache.mpool_sz = n;
        const int failed = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_CACHE_RSEG_SET, &cfg);
        return answer(failed, failed != 0);
      },
      seg, bytes);
}

Answer rseg_del(Process& process, const Flat& handle) {
  return process.run(
      [](Flat h) {
        const int result = CMIFN(ctxt(), 10, rseg_del)(ctxt(), h.as<cmi_rseg>());
        return answer(result, result != 0);
      },
      handle);
}

Answer seg_imp(Process& process, const Flat& handle) {
  return process.run(
      [](Flat h) {
        const cmi_seg seg = CMIFN(ctxt(), 10, seg_imp)(ctxt(), h.as<cmi_rseg>());
        return answer(seg, seg == CMI_SEG_INVALID);
      },
      handle);
}

Answer tok_del(Process& process, const Flat& token) {
  return process.run(
      [](Flat t) {
        const int result = CMIFN(ctxt(), 10, tok_del)(ctxt(), t.as<cmi_token>());
        return answer(result, result != 0);
      },
      token);
}

Answer cmi_enb(Process& process, int enable) {
  return process.run(
      [](int on) {
        const int result = CMIFN(ctxt(), 10, cmi_enb)(ctxt(), on);
        return answer(result, result != 0);
      },
      enable);
}

Flat seg_exp(Process& process, cmi_seg seg, int32_t attributes) {
  return process.run(
      [](cmi_seg s, int32_t a) {
        return copy_of(CMIFN(ctxt(), 10, seg_exp)(ctxt(), s, a), s, CMI_ATTR_RSEG_SIZE);
      },
      seg, attributes);
}

Flat tok_new(Process& process, cmi_seg seg, cmi_acc rights) {
  return process.run(
      [](cmi_seg s, cmi_acc r) {
        return copy_of(CMIFN(ctxt(), 10, tok_new)(ctxt(), s, CMI_NADDR_ANY, r), s,
                       CMI_ATTR_TOKEN_SIZE);
      },
      seg, rights);
}

Flat tok_newva(Process& process, cmi_seg seg, uint64_t at, uint64_t size, cmi_acc rights) {
  return process.run(
      [](cmi_seg s, uint64_t a, uint64_t n, cmi_acc r) {
        return copy_of(CMIFN(ctxt(), 11, tok_newva)(ctxt(), s, reinterpret_cast<void*>(a), n,
                                                    CMI_NADDR_ANY, r),
                       s, CMI_ATTR_TOKEN_SIZE);
      },
      seg, at, size, rights);
}

Flat tok_new_for(Process& process, cmi_seg seg, const Flat& address, cmi_acc rights) {
  return process.run(
      [](cmi_seg s, Flat n, cmi_acc r) {
        return copy_of(CMIFN(ctxt(), 10, tok_new)(ctxt(), s, n.as<cmi_naddr>(), r), s,
                       CMI_ATTR_TOKEN_SIZE);
      },
      seg, address, rights);
}

Flat node_address(Process& process) {
  return process.run([] { return copy_of(ctxt()->naddr, 0, CMI_ATTR_NODEADDR_SIZE); });
}

Status seg_status(Process& process, cmi_seg seg) {
  return process.run(
      [](cmi_seg s) {
        cmi_ds ds{};
        const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), s, CMI_SEG_STATUS, &ds);
        return Status{answer(result, result != 0), ds.status};
      },
      seg);
}

Recovery seg_check(Process& process, cmi_seg seg, uint64_t at, uint64_t size) {
  return process.run(
      [](cmi_seg s, uint64_t a, uint64_t n) {
        cmi_ds ds{};
        ds.reco.reco_addr = reinterpret_cast<void*>(a);
        ds.reco.reco_size = n;
        const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), s, CMI_SEG_CHECK, &ds);
        return Recovery{answer(result, result != 0), reinterpret_cast<uint64_t>(ds.reco.reco_addr),
                        ds.reco.reco_size};
      },
      seg, at, size);
}

Answer seg_reco(Process& process, cmi_seg seg, uint64_t at, uint64_t size) {
  return process.run(
      [](cmi_seg s, uint64_t a, uint64_t n) {
        cmi_ds ds{};
        ds.reco.reco_addr = reinterpret_cast<void*>(a);
        ds.reco.reco_size = n;
        const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), s, CMI_SEG_RECO, &ds);
        return answer(result, result != 0);
      },
      seg, at, size);
}

Info seg_info(Process& process, cmi_seg seg) {
  return process.run(
      [](cmi_seg s) {
        cmi_ds ds{};
        const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), s, CMI_SEG_INFO, &ds);
        return Info{answer(result, result != 0), ds.info};
      },
      seg);
}

Limits ctl_info(Process& process) {
  return process.run([] {
    cmi_ctl_cfg cfg{};
    const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_INFO, &cfg);
    return Limits{answer(result, result != 0), cfg.info};
  });
}

// ---- Memory ---------------------------------------------------------------------------------

Access load(Process& process, uint64_t address) {
  return process.run([](uint64_t a) { return load64(a); }, address);
}

Access store(Process& process, uint64_t address, uint64_t value) {
  return process.run([](uint64_t a, uint64_t v) { return store64(a, v); }, address, value);
}

bool publish(Process& process, uint64_t address, uint64_t value) {
  return store(process, address, value).cause() == Fault::kNone && wmb(process).ok();
}

uint64_t load_until(Process& process, uint64_t address, uint64_t value, int seconds) {
  return process.run(
      [](uint64_t a, uint64_t wanted, int s) {
        const Deadline deadline = Deadline::in(s * kSecond);
        Access access = load64(a);
        while (access.cause() == Fault::kNone && access.value != wanted && !deadline.passed()) {
          access = load64(a);
        }
        return access.value;
      },
      address, value, seconds);
}

Swap atm_cas(Process& process, uint64_t address, uint64_t compare, uint64_t swap) {
  return process.run(
      [](uint64_t a, uint64_t c, uint64_t s) {
        int result = -1;
        uint64_t old = 0;
        auto body = [&] {
          result = CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(a), c, s, &old);
        };
        const Fault fault = guarded(body);
        return Swap{answer(result, result != 0), old, fault, result == 0 && old == c};
      },
      address, compare, swap);
}

Answer wmb(Process& process) {
  return process.run([] {
    const int result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
    return answer(result, result != 0);
  });
}

Answer cool(Process& process) {
  return process.run([] {
    constexpr int kUnchanged = 32;  // comparisons, after which a page is protected again
    int result = 0;
    for (int i = 0; i < kUnchanged && result == 0; ++i) result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
    return answer(result, result != 0);
  });
}

Answer mb(Process& process) {
  return process.run([] {
    const int result = CMIFN(ctxt(), 10, mb_fn)(ctxt());
    return answer(result, result != 0);
  });
}

Answer rmb(Process& process) {
  return process.run([] {
    const int result = CMIFN(ctxt(), 10, rmb_fn)(ctxt());
    return answer(result, result != 0);
  });
}

Answer open_fb(Process& process) {
  return process.run([] {
    cmi_fb opened = CMIFN(ctxt(), 10, open_fb)(ctxt());
    if (opened != nullptr) epoch() = opened;
    return answer(0, opened == nullptr);
  });
}

Answer flush_fb(Process& process) {
  return process.run([] {
    const int result = CMIFN(ctxt(), 10, flush_fb)(ctxt(), epoch());
    return answer(result, result != 0);
  });
}

Answer close_fb(Process& process) {
  return process.run([] {
    const int result = CMIFN(ctxt(), 10, close_fb)(ctxt(), epoch());
    return answer(result, result != 0);
  });
}

Answer cflush(Process& process, uint64_t address) {
  return process.run(
      [](uint64_t a) {
        void* addresses[] = {reinterpret_cast<void*>(a)};
        const int result = CMIFN(ctxt(), 10, cflush)(ctxt(), addresses, 1);
        return answer(result, result != 0);
      },
      address);
}

int next_event(Process& process) {
  return process.run([] {
    cmi_event* event = CMIFN(ctxt(), 10, evt_get)(ctxt());
    if (event == nullptr) return cmi_get_error(ctxt()) == CMI_ERR_NONE ? 0 : -1;
    const int type = event->type;
    CMIFN(ctxt(), 10, evt_ret)(event, CMI_EVENT_RET_DONE);
    return type;
  });
}

// ---- Scenes ---------------------------------------------------------------------------------

Export export_segment(Process& home, size_t size, cmi_acc rights, int32_t flags) {
  Export exported;
  exported.size = size;
  const Answer made = seg_get(home, size, flags);
  REQUIRE_MESSAGE(made.ok(), "seg_get: ", made);
  exported.seg = made.seg();
  const Answer attached = seg_at(home, exported.seg);
  REQUIRE_MESSAGE(attached.ok(), "seg_at at home: ", attached);
  exported.at = attached.at();
  exported.handle = seg_exp(home, exported.seg);
  REQUIRE_MESSAGE(exported.handle.ok(), "seg_exp: error ", exported.handle.error);
  exported.token = tok_new(home, exported.seg, rights);
  REQUIRE_MESSAGE(exported.token.ok(), "tok_new: error ", exported.token.error);
  return exported;
}

Import import_bare(Process& peer, const Export& exported, int32_t flags) {
  Import import;
  const Answer imported = seg_imp(peer, exported.handle);
  REQUIRE_MESSAGE(imported.ok(), "seg_imp on ", peer.name(), ": ", imported);
  import.seg = imported.seg();
  const Answer attached = seg_at(peer, import.seg, 0, flags);
  REQUIRE_MESSAGE(attached.ok(), "seg_at on ", peer.name(), ": ", attached);
  import.at = attached.at();
  return import;
}

Import import_segment(Process& peer, const Export& exported) {
  const Import import = import_bare(peer, exported);
  const Answer token = set_token(peer, import.seg, exported.token);
  REQUIRE_MESSAGE(token.ok(), "CMI_SEG_TOKEN on ", peer.name(), ": ", token);
  REQUIRE(cmi_enb(peer, 1).ok());
  return import;
}

uint64_t name_of(Process& process, uint64_t at) {
  return process.run(
      [](uint64_t view) {
        uint64_t name = 0;
        cmi_ofi_holder(ctxt(), reinterpret_cast<void*>(view), &name);
        return name;
      },
      at);
}

void await_gone(Process& home, uint64_t at, uint64_t name) {
  if (!mapped()) return;
  const auto gone = [&] {
    return home.run(
        [](uint64_t view, uint64_t holder) {
          return cmi_ofi_holder_gone(ctxt(), reinterpret_cast<void*>(view), holder);
        },
        at, name);
  };
  for (const Deadline end = Deadline::in(10 * kSecond); gone() != 1;) REQUIRE(!end.passed());
}

}  // namespace cmi::test

// The break moves; an access lies behind it.
#include "core/memory/importer/import_break.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer/cache.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/page_drops.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kBreakSweep = 64;      // pages given back at once
constexpr int kNapsOfANotification = 20;  // of 1 ms, before the home is asked again

// The key ends at the former break; the next use asks for another one. The key is closed after the
// break has changed: a user that began before is waited for, and a later one sees the new break.
auto closing_key_of(Import& imp) {
  return [&imp] { imp.key.close(); };
}

bool legal(const Import& imp, const Break& brk) {
  return legal_break(brk) && brk.bytes / kPageSize <= imp.pages;
}
}  // namespace

bool read_break(const Import& imp, Bytes in, Break* brk) {
  if (!imp.extensible) return in.empty();
  BreakPart part;
  if (!decode(in, &part) || !legal(imp, part.brk)) return false;
  *brk = part.brk;
  return true;
}

bool take_break(Import& imp, const Break& brk) {
  return imp.brk.take(brk, closing_key_of(imp), [] {});
}

bool key_is_for(Import& imp, const Break& brk, uint32_t generation) {
  return imp.brk.take(brk, closing_key_of(imp), [&] { imp.key.open(generation); });
}

void store_break(ImporterCore& core, Import& imp) {
  if (!imp.ours) return;
  imp.brk.with_pages([&](uint32_t pages) {
    (void)core.parts.node.breaks().store(imp.id, size_t{pages} * kPageSize,
                                         imp.cache.use.most_bytes());
  });
}

bool on_break(ImporterCore& core, const std::shared_ptr<Import>& owner, const BreakNotification& m,
              PendingAnswer* later) {
  Import& imp = *owner;
  const auto& [uid, instance, brk, low] = m;
  if (!imp.extensible || !legal(imp, brk)) return false;
  later->keys = imp.key.asked();
  const auto [late, behind, past] = imp.brk.notified(brk, low, closing_key_of(imp));
  if (behind && !late) later->then = brk;
  if (late) {
    core.parts.server.ack(later->home, later->secret, later->number);
    return false;
  }
  trace(kFacSeg, kInfo, "segment {}: the break is at {}", imp.id, brk.bytes);
  store_break(core, imp);
  if (imp.views.local.local() && past.count != 0) {
    imp.views.local.drop_past(past.first);
    later->unsettled.push_back(past);
    return true;
  }
  // Looked at when the break is set: a first attach that comes later sees it.
  if (!imp.cache.ready(std::memory_order_seq_cst) || past.count == 0) return true;
  fault_point("break_before_zap");
  // Stores there go with the memory, and so do their dirty intents at the home.
  std::vector<uint32_t> lost;
  std::vector<DirtyIntent> intents;
  drop_pages(core, imp, past, &lost, &intents);
  for (uint32_t done = 0; done < past.count; done += kBreakSweep) {
    evict(core, imp, past.first + done, std::min(kBreakSweep, past.count - done), &lost);
  }
  if (!intents.empty()) give_back_intents(*owner, intents);
  later->unsettled.push_back(past);
  return true;
}

void grow_to(ImporterCore& core, Import& imp, const Break& brk) {
  if (!imp.brk.grow(brk)) return;
  imp.changes.notify();
  store_break(core, imp);
}

bool settle_past_break(Import& imp, std::vector<PageRange>* pages) {
  if (!imp.cache.ready()) {
    std::erase_if(*pages, [&imp](const PageRange& r) { return imp.views.local.settled(r); });
    return pages->empty();
  }
  while (!pages->empty()) {
    PageRange& r = pages->back();
    for (; r.count > 0; --r.count) {
      Page& p = imp.page(r.first + r.count - 1);
      p.lock();
      const bool settled = !p.in_flight;
      p.unlock();
      if (!settled) return false;
    }
    pages->pop_back();
  }
  return true;
}

// Growth does not wait for ever for importers that are slow to take it in. So the home is asked
// before an access is refused. It sends its last notification again, which is waited for here.
Exception past_break(ImporterCore& core, Import& imp, uint32_t page, Deadline deadline) {
  for (;;) {
    Break brk;
    const Exception e = explain(core, imp, deadline, &brk);
    if (e != Exception::kNone) return e;
    if (brk.round != 0 && page >= brk.bytes / kPageSize) return Exception::kSegBrk;
    for (int naps = 0; naps < kNapsOfANotification; ++naps) {
      const uint32_t seen = imp.changes.seen();
      if (page < imp.brk.load(std::memory_order_seq_cst)) return Exception::kNone;
      if (deadline.passed()) return Exception::kTransient;
      imp.changes.wait(seen, kMilli);
    }
  }
}

}  // namespace cmi::memory

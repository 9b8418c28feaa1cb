// See local_fault.hpp.
#include "core/memory/importer/local_fault.hpp"

#include <utility>

#include "core/base/fault_point.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/import_break.hpp"
#include "core/memory/importer/local_import.hpp"
#include "core/memory/importer/tokens.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kWait = kMilli, kLackWait = 20 * kMilli;

std::optional<Exception> unless_none(Exception e) {
  return e == Exception::kNone ? std::nullopt : std::optional(e);
}
}  // namespace

std::optional<Exception> LocalFault::serve() {
  while (imp_.views.local.local()) {
    if (const auto done = try_once()) return *done;
  }
  return std::nullopt;
}

std::optional<Exception> LocalFault::try_once() {
  changes_ = imp_.changes.seen();
  bool good = true;
  const FaultAction action = imp_.views.local.look(index_, [&](LocalViews::Opened& at) {
    const FaultAction how = decide(at.page()).action;
    good = map(at, how);
    return how;
  });
  // As zap_if_over(): looked at before the page was mapped.
  if (action != FaultAction::kAwaitLease && imp_.lease.is_over()) imp_.views.local.zap_all();
  if (!good) return no_memory();
  imp_.cache.use.note_memory(true);
  return carry_out(action);
}

// Looked at under the lock of the local views: a revocation, a break, a lease that is over and a
// list of pages in flux are noted first, and zap the pages under that lock after.
FaultDecision LocalFault::decide(LocalViews::Page page) {
  refusal_ = usable(imp_, store_, index_);
  const FaultAccess access{store_, false, view_.read_only};
  const PageSnapshot seen{page == LocalViews::Page::kNoGrant  ? PageState::kAbsent
                          : page == LocalViews::Page::kStored ? PageState::kDirty
                                                              : PageState::kClean,
                          false, true, false};
  const ImportSnapshot import{refusal_,
                              index_ >= imp_.brk.load(std::memory_order_seq_cst),
                              imp_.lease.is_over(),
                              imp_.flux.contains(index_),
                              false,  // the mark is set with the store
                              imp_.grant.has(fabric::kWrite),
                              true};
  return decide_fault(seen, access, import);
}

// False: there is no memory behind the page, or it is broken.
bool LocalFault::map(LocalViews::Opened& at, FaultAction how) {
  if (fault_point_fails("local_no_memory")) return false;
  switch (how) {
    case FaultAction::kMapProtected:
      break;
    case FaultAction::kFirstStore:
      count(core_.parts.stats.store_faults);
      return let_stores(at);
    case FaultAction::kMapDirty:
      if (store_) return let_stores(at);
      break;
    default:
      return true;
  }
  return at.map(imp_.in_order.loads, imp_.flux, imp_.brk.load(std::memory_order_seq_cst));
}

bool LocalFault::let_stores(LocalViews::Opened& at) {
  return at.map_for_stores(imp_.in_order.stores, imp_.flux,
                           imp_.brk.load(std::memory_order_seq_cst));
}

std::optional<Exception> LocalFault::carry_out(FaultAction action) {
  switch (action) {
    case FaultAction::kFetch:  // no page without a grant
      return join();
    case FaultAction::kForbid:
      return Exception::kAccess;
    case FaultAction::kRefuse:
      return refuse();
    case FaultAction::kAskBreak:
      return unless_none(past_break(core_, imp_, index_, deadline_));
    case FaultAction::kAwaitLease:
      return await_lease();
    case FaultAction::kAskInFlux:
      return unless_none(ask_in_flux(core_, imp_, index_, deadline_));
    default:
      return Exception::kNone;
  }
}

// Where neither mapping nor caching has what it takes here, the home is asked now and then.
std::optional<Exception> LocalFault::join() {
  const auto done = join_local(core_, view_.import, deadline_);
  if (!done && imp_.views.local.local() && imp_.cache.use.lacks_memory()) {
    imp_.changes.wait(changes_, kLackWait);
  }
  return done;
}

// The page may be broken, or the home have cut its file, for a break or because the segment is
// gone, and not been heard of it; else its memory is used up.
std::optional<Exception> LocalFault::no_memory() {
  if (imp_.views.local.broken(index_)) return Exception::kUe;
  if (!imp_.extensible) {
    const Exception e = explain(core_, imp_, deadline_);
    return e != Exception::kNone ? e : Exception::kTransient;
  }
  const Exception e = past_break(core_, imp_, index_, deadline_);
  if (e != Exception::kNone) return e;
  if (!deadline_.passed()) {
    if (std::exchange(asked_break_, true)) imp_.changes.wait(changes_, kWait);
    return std::nullopt;
  }
  imp_.cache.use.note_memory(false);
  return Exception::kTransient;
}

std::optional<Exception> LocalFault::refuse() {
  if (refusal_ == Exception::kToken && Tokens(core_).adopt(view_.import, deadline_)) {
    return std::nullopt;
  }
  if (imp_.grant.state() != ImportState::kRemoved) return refusal_;
  return unless_none(explain(core_, imp_, deadline_));
}

std::optional<Exception> LocalFault::await_lease() {
  if (deadline_.passed()) return Exception::kTransient;
  imp_.changes.wait(changes_, kWait);
  return std::nullopt;
}

}  // namespace cmi::memory

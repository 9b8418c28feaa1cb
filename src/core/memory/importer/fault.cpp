// Carries out what is decided of a fault.
#include "core/memory/importer/fault.hpp"

#include <cstring>
#include <utility>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/base/prefetch_page.hpp"
#include "core/base/usdt.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/fetch.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/import_break.hpp"
#include "core/memory/importer/intent_request.hpp"
#include "core/memory/importer/page_moves.hpp"
#include "core/memory/importer/prefetch.hpp"
#include "core/memory/importer/tokens.hpp"
#include "core/memory/importer/write_back.hpp"
#include "core/memory/importer/write_stream.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kNap = kMilli;
}  // namespace

[[gnu::hot]] Exception Fault::serve() {
  for (;;) {
    if (const Outcome done = try_once()) return *done;
  }
}

[[gnu::hot]] Fault::Outcome Fault::try_once() {
  changes_ = imp_.changes.seen();
  page_.lock();
  const FaultDecision decision = decide();
  if (decision.action == FaultAction::kAwait && page_.state == PageState::kFetching &&
      mutated("mutate_fetched_twice")) {
    page_.unlock();
    return Fetch(core_, view_, index_, store_, nullptr, deadline_).run();
  }
  return carry_out(decision);
}

// Looked at under the page's lock: a revocation, a break, a lease that is over and a list of pages
// in flux are noted first, and take the pages after. So whatever is mapped here under an older
// state is taken by them.
[[gnu::hot]] FaultDecision Fault::decide() {
  refusal_ = usable(imp_, store_, index_);
  brk_ = imp_.brk.load(std::memory_order_seq_cst);
  const FaultAccess access{store_,
                           store_ && seen_ != nullptr && page_.may_have_been_dirty_since(*seen_),
                           view_.read_only};
  const PageSnapshot page{page_.state, page_.pinned, page_.intent.held(), page_.intent.asked()};
  const ImportSnapshot import{refusal_,
                              index_ >= brk_,
                              imp_.lease.is_over(),
                              imp_.flux.contains(index_),
                              imp_.intents,
                              imp_.grant.has(fabric::kWrite),
                              Userfault::features().continue_protected};
  return decide_fault(page, access, import);
}

[[gnu::hot]] Fault::Outcome Fault::carry_out(const FaultDecision& decision) {
  switch (decision.action) {
    case FaultAction::kFetch:
      return fetch(decision.asks_intent);
    case FaultAction::kFirstStore:
      return first_store(decision.may_widen);
    case FaultAction::kAskIntent:
      return ask_intent(decision.may_widen);
    case FaultAction::kMapProtected:
    case FaultAction::kMapCompared:
    case FaultAction::kMapDirty:
      return map(decision.action);
    default:
      break;
  }
  page_.unlock();
  switch (decision.action) {
    case FaultAction::kForbid:
      return Exception::kAccess;
    case FaultAction::kRefuse:
      return refuse();
    case FaultAction::kAskBreak:
      return ask_break();
    case FaultAction::kAwaitLease:
      return await_lease();
    case FaultAction::kAskInFlux:
      return ask_flux();
    case FaultAction::kAwait:
      return await_change();
    default:
      return Exception::kNone;  // kOver
  }
}

[[gnu::hot]] Fault::Outcome Fault::fetch(bool asks_intent) {
  if (store_ && !std::exchange(alone_, true) && imp_.in_order.stores.store(index_) > 1) {
    imp_.in_order.stores.taken(index_, index_ + 1);
  }
  page_.marker = false;
  ++page_.generation;
  set_state(core_, imp_, page_, PageState::kFetching);
  const uint8_t epoch = asks_intent ? ask_intent_of(imp_, index_) : 0;
  page_.unlock();
  seen_ = nullptr;
  if (!asks_intent) return Fetch(core_, view_, index_, store_, nullptr, deadline_).run();
  IntentRequest request(core_, imp_, index_, epoch);
  const Exception e = Fetch(core_, view_, index_, store_, &request, deadline_).run();
  if (e != Exception::kNone || request.granted()) return e;
  if (deadline_.passed()) return Exception::kTransient;
  return std::nullopt;
}

// How many pages to make writable for a store, from this one on.
uint32_t Fault::store_window(bool may_widen) {
  if (!may_widen || alone_) return 1;
  const uint32_t window =
      fault_point_fails("always_in_order") ? 4 : imp_.in_order.stores.store(index_);
  return std::min(window, brk_ - index_);
}

Fault::Outcome Fault::ask_intent(bool may_widen) {
  const uint32_t wanted = store_window(may_widen);
  const uint8_t epoch = ask_intent_of(imp_, index_);
  page_.swaps.asked_intent();
  page_.unlock();
  count(core_.parts.stats.intents_asked);
  seen_ = nullptr;
  IntentRequest request(core_, imp_, index_, epoch);
  request.widen(wanted);
  const uint32_t window = request.pages().count;
  imp_.in_order.stores.taken(index_, index_ + 1);
  request.start();
  // Copied when the answer is here, and mostly in no cache.
  prefetch_page(imp_.page_data(index_));
  core_.twins.prefetch();
  if (Exception e = request.await(deadline_); e != Exception::kNone) return e;
  alone_ = true;
  if (!request.granted() || window == 1) return std::nullopt;
  return open_window(window);
}

Fault::Outcome Fault::first_store(bool may_widen) {
  // Copied next, and mostly in no cache. Where a dirty intent was waited for, they came meanwhile.
  if (!imp_.intents) {
    prefetch_page(imp_.page_data(index_));
    core_.twins.prefetch();
  }
  if (const uint32_t window = store_window(may_widen); window > 1) {
    page_.unlock();
    return open_window(window);
  }
  const bool writable =
      (page_.state == PageState::kWriting && mutated("mutate_writing_stored_to")) ||
      make_dirty(core_, view_, index_);
  if (!writable) {
    page_.unlock();
    return find_twin();
  }
  const bool readahead = std::exchange(page_.marker, false);
  count(core_.parts.stats.store_faults);
  imp_.stats.pages.count(index_, PageCosts::Kind::kFirstStore);
  CMI_PROBE3(store, imp_.id, index_, 1);
  // Mapped here in most cases; where it is not, the next fault finds it dirty.
  core_.userfault.unprotect(at_, kPageSize);
  zap_if_over(imp_, view_, {index_, 1});
  ++page_.generation;
  page_.unlock();
  return mapped(true, readahead);
}

[[gnu::hot]] Fault::Outcome Fault::map(FaultAction how) {
  const bool readahead = std::exchange(page_.marker, false);
  bool good = false;
  if (how == FaultAction::kMapProtected) {
    good = core_.userfault.map(at_, kPageSize, false);
  } else if (how == FaultAction::kMapCompared) {
    good = map_and_compare();
  } else {
    if (store_) core_.userfault.unprotect(at_, kPageSize);
    good = core_.userfault.map(at_, kPageSize, !view_.read_only);
  }
  zap_if_over(imp_, view_, {index_, 1});
  page_.unlock();
  if (std::exchange(no_twin_, false)) return find_twin();
  return mapped(good, readahead);
}

[[gnu::hot]] Fault::Outcome Fault::mapped(bool mapped, bool readahead) {
  if (!mapped) return Exception::kTransient;  // no memory
  if (readahead) read_ahead(core_, view_, index_, store_, deadline_);
  return Exception::kNone;
}

// All twins that there may be are in use: others' stores go home now, or are waited for.
Fault::Outcome Fault::find_twin() {
  if (deadline_.passed() || !free_twins(core_, deadline_)) return Exception::kTransient;
  return std::nullopt;
}

// For a load before Linux 6.4, where a page is first mapped and then protected: a store between the
// two is found by the twin, so the page counts as dirty until that has been looked at. Under the
// page's lock.
bool Fault::map_and_compare() {
  const PageState before = page_.state;
  const Heat heat = page_.heat;  // a load heats nothing
  no_twin_ = !add_twin(core_, view_, index_);
  if (no_twin_) return false;
  const bool mapped = core_.userfault.map(at_, kPageSize, false);
  if (std::memcmp(imp_.page_data(index_), core_.twins.at(page_.twin), kPageSize) == 0) {
    drop_twin(core_, page_);
    page_.heat = heat;
    set_state(core_, imp_, page_, before);
  } else {
    page_.swaps.used();
    imp_.subscribed.stored_to(index_);
    ++page_.generation;
  }
  return mapped;
}

// Makes the page and those behind it writable. Their dirty intents are in force.
Fault::Outcome Fault::open_window(uint32_t window) {
  // First, since it may take some time: what is writable may be taken back meanwhile.
  if (window >= StoreStreams::kLongWindow || fault_point_fails("write_behind_soon")) {
    write_behind(core_, view_.import);
  }
  bool readahead = false;
  alone_ = dirty_ahead(core_, view_, {index_, window}, seen_, &readahead) == 0;
  if (alone_) return std::nullopt;
  return mapped(true, readahead);
}

Fault::Outcome Fault::refuse() {
  if (refusal_ == Exception::kToken && Tokens(core_).adopt(view_.import, deadline_)) {
    return std::nullopt;
  }
  if (imp_.grant.state() != ImportState::kRemoved) return refusal_;
  return explain(core_, imp_, deadline_);
}

Fault::Outcome Fault::ask_break() {
  const Exception e = past_break(core_, imp_, index_, deadline_);
  return e == Exception::kNone ? Outcome() : Outcome(e);
}

Fault::Outcome Fault::ask_flux() {
  const Exception e = ask_in_flux(core_, imp_, index_, deadline_);
  return e == Exception::kNone ? Outcome() : Outcome(e);
}

Fault::Outcome Fault::await_lease() {
  if (deadline_.passed()) return Exception::kTransient;
  imp_.changes.wait(changes_, kNap);
  return std::nullopt;
}

// Another thread's fetch, or the answer to a write-back, will change the page. Answers arrive only
// when some thread polls the link, so this one does.
Fault::Outcome Fault::await_change() {
  if (deadline_.passed()) return Exception::kTransient;
  if (await_ahead(imp_, index_, deadline_)) return std::nullopt;
  if (auto s = imp_.link->current(); s != nullptr && s->endpoint().poll() > 0) return std::nullopt;
  imp_.changes.wait(changes_, kNap);
  return std::nullopt;
}

}  // namespace cmi::memory

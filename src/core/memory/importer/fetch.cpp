// Reads of missed pages, and the delivery of pages that have arrived. Runs in the SIGBUS handler,
// all signals blocked; of pages that were read ahead in any thread that polls the link.
#include "core/memory/importer/fetch.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/base/prefetch_page.hpp"
#include "core/base/usdt.hpp"
#include "core/memory/importer/cache.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/importer_mutations.hpp"
#include "core/memory/importer/intent_request.hpp"
#include "core/memory/importer/page_moves.hpp"
#include "core/memory/importer/prefetch.hpp"
#include "core/memory/importer/updates.hpp"
#include "core/memory/page/page_mutations.hpp"

namespace cmi::memory {

using fabric::Cause;

[[gnu::hot]] Exception Fetch::run() {
  Stats& stats = core_.parts.stats;
  const uint64_t before = count(store_ ? stats.store_misses : stats.load_misses);
  count(store_ ? imp_.stats.store_misses : imp_.stats.load_misses);
  imp_.stats.pages.count(wanted_,
                         store_ ? PageCosts::Kind::kStoreMiss : PageCosts::Kind::kLoadMiss);
  CMI_PROBE3(miss, imp_.id, wanted_, store_);
  trace(kFacMem, kDebug, "miss: segment {} page {}, {}", imp_.id, wanted_,
        store_ ? "store" : "load");
  // Two looks at the clock in each miss would be more than all other counting.
  const Timed timed(before % node::kMissesTimed == 0 ? &stats.miss_times : nullptr);
  note_miss();
  claim_window();
  for (;;) {
    if (const Outcome done = attempt()) return *done;
    if (const Outcome done = recover()) return *done;
  }
}

// A swap before it might have brought the page (rule 12).
[[gnu::hot]] void Fetch::note_miss() {
  Page& page = imp_.page(wanted_);
  page.lock();
  page.swaps.missed();
  if (intent_ != nullptr) page.swaps.asked_intent();
  page.unlock();
}

// As many absent pages behind the wanted one as the window allows.
[[gnu::hot]] void Fetch::claim_window() {
  const uint32_t end = std::max(
      std::min(imp_.grant.end_page(), imp_.brk.load(std::memory_order_relaxed)), wanted_ + 1);
  const uint32_t window =
      std::min({imp_.in_order.loads.miss(wanted_), end - wanted_, imp_.cache.use.limit() / 8});
  make_room(core_, view_.import, window, deadline_);
  if (window > 1) n_ += claim(core_, imp_, {wanted_ + 1, window - 1}, false).count;
  if (n_ > 1) imp_.in_order.loads.taken(wanted_, wanted_ + n_);
}

// While the bytes travel.
[[gnu::hot]] void Fetch::overlap() {
  if (n_ != 1) return;
  // The kernel's first fault on a page of the cache, which would come behind the answer otherwise.
  touch_page(imp_.page_data(wanted_));
  prefetch_page(imp_.page_data(wanted_));
  if (store_) core_.twins.prefetch();
}

[[gnu::hot]] Fetch::Outcome Fetch::attempt() {
  failed_ = false;
  session_life_.reset();
  const auto session = imp_.link->session(deadline_);
  fabric::RemoteKey key;
  if (session == nullptr || !session_key(core_, imp_, *session, &key, deadline_)) {
    return std::nullopt;
  }
  if (may_acquire()) {
    bool asked = false;
    const Outcome done = acquire_and_fetch(&asked);
    if (asked) return done;
  }
  if (!prepare()) return std::nullopt;
  if (!imp_.allows(wanted_) || !imp_.allows(wanted_ + n_ - 1)) {  // under another token by now
    give_up(wanted_, n_);
    return Exception::kNone;
  }
  if (intent_ != nullptr && n_ == 1) return fetch_with_intent();
  if (n_ == 1 && imp_.page(wanted_).released && !mutated("mutate_released_read")) {
    return fetch_released();
  }
  return read(session, key);
}

// The home's knowledge of the region and of several pages, and memory.
[[gnu::hot]] bool Fetch::prepare() {
  return (mutated("mutate_acquire_late") || acquire(imp_, wanted_, n_, deadline_)) &&
         (n_ == 1 || enter_pages(imp_, {wanted_, n_}, deadline_)) && back();
}

// Where there is no memory it is tried again: meanwhile the service thread looks whether the dead
// of this user's nodes have some.
[[gnu::hot]] bool Fetch::back() {
  if (back_pages(imp_, {wanted_, n_})) return true;
  imp_.cache.use.note_memory(false);
  core_.parts.node.late_reaper().want();
  core_.parts.watch.look();
  return false;
}

// One request, whose answer brings the dirty intent and the page.
Fetch::Outcome Fetch::fetch_with_intent() {
  fault_point("fetch_before_read");
  const auto meanwhile = [this] { overlap(); };
  intent_->fetch(imp_.page_data(wanted_), 0, deadline_, std::ref(meanwhile));
  return with_intent();
}

// It has been asked for.
Fetch::Outcome Fetch::with_intent() {
  const Exception e = intent_->await(deadline_);
  if (!intent_->granted()) {
    give_up(wanted_, 1);
    return e;
  }
  imp_.page(wanted_).released = false;  // entered with it (rule 28)
  count_fetched(core_, imp_, 1);
  deliver(core_, imp_, &view_, {wanted_, 1}, wanted_, store_);
  return Exception::kNone;
}

[[gnu::hot]] Fetch::Outcome Fetch::read(const std::shared_ptr<fabric::Session>& session,
                                        const fabric::RemoteKey& key) {
  Cause cause = Cause::kTimeout;
  const bool posted = imp_.begin_use(session->generation(), key, uint64_t{wanted_} + n_);
  if (posted) {
    if (intent_ != nullptr) intent_->start();
    fault_point("fetch_before_read");
    const auto meanwhile = [this] { overlap(); };
    cause = session->read(imp_.page_data(wanted_), size_t{n_} * kPageSize, key,
                          uint64_t{wanted_} * kPageSize, read_deadline_, std::ref(meanwhile));
    imp_.key.end_use();
  }
  if (mutated_late("mutate_acquire_late")) (void)acquire(imp_, wanted_, n_, deadline_);
  if (cause == Cause::kOk) return arrived();
  if (posted) {
    // Whatever the reason, the provider may hold on to the pages until the session is closed.
    trace(kFacMem, kInfo, "fetch of segment {} page {}: {}", imp_.id, wanted_,
          fabric::cause_name(cause));
    imp_.link->retire(session);
    session_life_ = session->life();
    failed_ = true;
  }
  return std::nullopt;
}

[[gnu::hot]] Exception Fetch::arrived() {
  count_fetched(core_, imp_, n_);
  const Exception unmarked = intent_ == nullptr ? Exception::kNone : intent_->await(deadline_);
  deliver(core_, imp_, &view_, {wanted_, n_}, wanted_,
          store_ && (intent_ == nullptr || intent_->granted()));
  if (!store_ && imp_.subscribed.any() && !fault_point_fails("never_subscribe")) {
    subscribe(imp_, wanted_);
  }
  if (n_ >= Streams::kAheadFrom) read_ahead(core_, view_, wanted_, store_, deadline_);
  // Wanted may be stale by now; the access is simply tried again and fetches anew.
  return unmarked;
}

// All users release a retired session within milliseconds. Until then the provider may still write
// to these pages. True: the session was not released by the deadline; the pages are left to the
// tick.
bool Fetch::strand() {
  for (Backoff backoff; !session_life_.expired() && !read_deadline_.passed();) backoff.pause();
  if (session_life_.expired()) return false;
  core_.stranded.add({session_life_, view_.import, {wanted_, n_}});
  return true;
}

Fetch::Outcome Fetch::recover() {
  const bool stranded = strand();
  Exception e = explain(core_, imp_, deadline_);
  if (stranded) return e == Exception::kNone ? Exception::kTransient : e;
  // A break may have come before the last pages, or before all.
  const uint32_t brk = std::max(imp_.brk.load(std::memory_order_seq_cst), wanted_);
  if (brk < wanted_ + n_) {
    give_up(brk, wanted_ + n_ - brk);
    n_ = brk - wanted_;
    if (n_ == 0) return e;  // tried again, it is one behind the break
  }
  if (e == Exception::kNone && failed_ && n_ > 1) {
    // One page of broken memory fails the read of all pages. So the wanted page is read alone next.
    give_up(wanted_ + 1, n_ - 1);
    n_ = 1;
  } else if (e == Exception::kNone && failed_) {
    e = ask_in_flux(core_, imp_, wanted_, deadline_);
  }
  if (e == Exception::kNone && !deadline_.passed()) return std::nullopt;
  give_up(wanted_, n_);
  return e == Exception::kNone ? Exception::kTransient : e;
}

namespace {

// Pages that have arrived leave kFetching: mapped and made kClean, or kDirty for a store, in one
// locked step; a stale page is not mapped (rule 3). Runs of good pages go into one call.
class Delivery {
 public:
  Delivery(ImporterCore& core, Import& imp, const View* view, PageRange pages, uint32_t wanted,
           bool store)
      : core_(core), imp_(imp), view_(view), pages_(pages), wanted_(wanted), store_(store) {}

  // All of the pages are locked.
  void run();

 private:
  Page& page(uint32_t i) { return imp_.page(pages_.first + i); }
  std::byte* at(uint32_t i) const { return view_->addr + size_t{pages_.first + i} * kPageSize; }
  bool usable_now() const {
    return imp_.grant.state() == ImportState::kUsable && !imp_.grant.is_outdated() &&
           !imp_.lease.is_over();
  }
  bool make_writable(uint32_t i);
  uint32_t length_of_run(uint32_t from, bool marked);
  void make_clean(uint32_t from, uint32_t n);

  ImporterCore& core_;
  Import& imp_;
  const View* const view_;
  const PageRange pages_;
  const uint32_t wanted_;
  const bool store_;
};

[[gnu::hot]] void Delivery::run() {
  const bool usable = usable_now();
  for (uint32_t i = 0; i < pages_.count;) {
    Page& p = page(i);
    if (mutated("mutate_stale_ignored")) mutation::forget_stale(p);
    if (mutated("mutate_fetched_twice") && mutation::delivered_by_another(p)) {
      ++i;
      continue;
    }
    if (p.state == PageState::kStale || !usable || imp_.flux.contains(pages_.first + i)) {
      set_state(core_, imp_, p, PageState::kAbsent);
      ++i;
      continue;
    }
    if (make_writable(i)) {
      ++i;
      continue;
    }
    p.marker = i == 0 && wanted_ == kNoPage;
    const uint32_t n = length_of_run(i, p.marker);
    make_clean(i, n);
    i += n;
  }
}

// Makes the page writable that the faulting thread stores to next. Its dirty intent, if it needs
// one, must still be in force: it may have been given back since the page was claimed.
[[gnu::hot]] bool Delivery::make_writable(uint32_t i) {
  Page& p = page(i);
  if (pages_.first + i != wanted_ || !store_ || (imp_.intents && !p.intent.held())) return false;
  if (!make_dirty(core_, *view_, wanted_)) return false;
  core_.userfault.map(at(i), kPageSize, true);
  ++p.generation;
  return true;
}

// Good pages from this one on that are mapped alike.
[[gnu::hot]] uint32_t Delivery::length_of_run(uint32_t from, bool marked) {
  uint32_t n = 0;
  while (from + n < pages_.count && page(from + n).state == PageState::kFetching &&
         !imp_.flux.contains(pages_.first + from + n) &&
         !(n > 0 && (marked || (store_ && pages_.first + from + n == wanted_)))) {
    ++n;
  }
  return n;
}

[[gnu::hot]] void Delivery::make_clean(uint32_t from, uint32_t n) {
  // Before Linux 6.4 a page cannot be mapped and write-protected in one step; the access faults
  // once more then, and is served as one to a clean page.
  if (view_ != nullptr && !page(from).marker && Userfault::features().continue_protected &&
      !mutated("mutate_map_outside_lock")) {
    core_.userfault.map(at(from), size_t{n} * kPageSize, false);
  }
  for (uint32_t k = 0; k < n; ++k) {
    Page& p = page(from + k);
    ++p.generation;
    set_state(core_, imp_, p, PageState::kClean);
  }
}

}  // namespace

[[gnu::hot]] void deliver(ImporterCore& core, Import& imp, const View* view, PageRange pages,
                          uint32_t wanted, bool write) {
  fault_point("fetch_before_deliver");
  const uint32_t first = pages.first, n = pages.count;
  for (uint32_t i = 0; i < n; ++i) imp.page(first + i).lock();
  if (view != nullptr && mutated("mutate_stale_checked_late"))
    mutation::show_unchecked(core.userfault, *view, pages);
  Delivery(core, imp, view, pages, wanted, write).run();
  if (view != nullptr) zap_if_over(imp, *view, pages);
  for (uint32_t i = 0; i < n; ++i) imp.page(first + i).unlock();
  if (view != nullptr && mutated_late("mutate_map_outside_lock"))
    core.userfault.map(view->addr + size_t{first} * kPageSize, size_t{n} * kPageSize, false);
  imp.changes.notify();
}

void give_up_fetch(ImporterCore& core, const std::shared_ptr<Import>& imp, uint32_t first,
                   uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    Page& p = imp->page(first + i);
    p.lock();
    set_state(core, *imp, p, PageState::kAbsent);
    p.unlock();
  }
  imp->changes.notify();
}

}  // namespace cmi::memory

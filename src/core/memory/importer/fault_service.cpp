// Faults of application threads on imported views: load miss, store miss, first store. Runs in the
// SIGBUS handler, all signals blocked. What a miss runs through is [[gnu::hot]], here and below: so
// it lies on a few pages of code, which after a pause are in no cache (performance.md,
// load_miss_idle).
#include <cstring>
#include <functional>
#include <utility>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/base/prefetch.hpp"
#include "core/memory/importer/importer_mutations.hpp"
#include "core/memory/importer/intent_request.hpp"
#include "core/memory/page/page_mutations.hpp"

namespace cmi::memory {

using fabric::Cause;

namespace {
constexpr Nanos kFetchNap = kMilli;
}  // namespace

[[gnu::hot]] void Importer::set_state(Import& imp, Page& page, PageState to) {
  const bool was_absent = page.state == PageState::kAbsent;
  if (was_absent != (to == PageState::kAbsent)) {
    const uint32_t region = region_of(static_cast<uint32_t>(&page - imp.table));
    was_absent ? imp.regions.enter(region) : imp.regions.leave(region);
    if (was_absent && !page.backed) {
      page.backed = true;
      imp.backed.fetch_add(1, std::memory_order_relaxed);
    }
  }
  const bool was_dirty = page.state == PageState::kDirty;
  page.move(to);
  const bool is_dirty = to == PageState::kDirty;
  // Counted up before the store that made it dirty is let go, so that the thread that stored and
  // every thread that has seen the store find the count above zero (the empty barrier's fast path).
  if (is_dirty && !was_dirty) dirty_pages_.fetch_add(1, std::memory_order_seq_cst);
  if (was_dirty && !is_dirty) {
    dirty_pages_.fetch_sub(1, std::memory_order_seq_cst);
    if (parts_.fault_threads) cleaned_.fetch_add(1, std::memory_order_release);
  }
}

void Importer::drop_twin(Page& page) {
  twins_.give(page.twin);
  page.twin = 0;
}

[[gnu::hot]] void Importer::count_fetched(Import& imp, uint32_t pages) {
  count(parts_.stats.pages_fetched, pages);
  count(parts_.stats.bytes_fetched, size_t{pages} * kPageSize);
  count(imp.stats.bytes_fetched, size_t{pages} * kPageSize);
}

bool Importer::make_dirty(const View& view, uint32_t index) {
  // Under the page's lock; the page is write-protected or in no view, so its content is stable
  // while the twin is copied (rule 4).
  Import& imp = *view.import;
  Page& page = imp.table[index];
  const uint32_t twin = twins_.take();
  if (twin == 0) return false;
  if (mutated("mutate_twin_late")) mutation::open_without_twin(userfault_, view, index);
  std::memcpy(twins_.at(twin), imp.page_data(index), kPageSize);
  page.twin = twin;
  set_state(imp, page, PageState::kDirty);
  if (!page.listed) {
    page.listed = true;
    Guard g(imp.dirty_mu);
    imp.dirty.push_back(index);
  }
  fault_point("store_before_unprotect");
  return true;
}

std::optional<PageSeen> Importer::snapshot(const View& view, const std::byte* addr,
                                           uint64_t cleaned) const {
  Page& page = view.import->table[static_cast<size_t>(addr - view.addr) / kPageSize];
  page.lock();
  const PageSeen seen = page.seen();
  page.unlock();
  // Whatever was done to the page before it was locked here has been counted by now.
  if (cleaned != this->cleaned()) return std::nullopt;
  return seen;
}

[[gnu::hot]] Exception Importer::serve(const View& view, const std::byte* addr, bool write,
                                       const PageSeen* seen, Deadline deadline) {
  Import& imp = *view.import;
  const auto index = static_cast<uint32_t>(static_cast<size_t>(addr - view.addr) / kPageSize);
  std::byte* const at = view.addr + size_t{index} * kPageSize;
  Page& page = imp.table[index];
  bool alone = false;  // other pages have had their try with this one
  if (write && view.read_only && index < imp.brk.load(std::memory_order_relaxed)) {
    return Exception::kAccess;
  }

  for (;;) {
    const uint32_t changes = imp.changes.load(std::memory_order_seq_cst);
    page.lock();
    if (write && seen != nullptr && page.may_have_been_dirty_since(*seen)) {
      page.unlock();
      return Exception::kNone;
    }
    // Looked at under the page's lock: a revocation sets the state first and takes the pages after,
    // so whatever is mapped here under an old verdict is taken by it.
    if (Exception e = usable(imp, write, index); e != Exception::kNone) {
      page.unlock();
      if (e == Exception::kToken && adopt_token(view.import, deadline)) continue;
      if (imp.state.load() != ImportState::kRemoved) return e;
      return explain(imp, deadline);
    }
    // A break is set first, and what lies behind it taken after, as well.
    const uint32_t brk = imp.brk.load(std::memory_order_seq_cst);
    if (index >= brk) {
      page.unlock();
      if (Exception e = past_break(imp, index, deadline); e != Exception::kNone) return e;
      continue;
    }
    if (imp.lease_expired.load(std::memory_order_seq_cst)) {
      page.unlock();
      if (deadline.passed()) return Exception::kTransient;
      imp.wait_for_change(changes, kFetchNap);
      continue;
    }
    if (imp.is_in_flux(index)) {
      page.unlock();
      if (Exception e = ask_in_flux(imp, index, deadline); e != Exception::kNone) return e;
      continue;
    }
    bool wait = false, miss = false, full = false, mark = false;
    uint32_t window = 1;  // pages to make writable for a store, from this one on
    const bool readahead = std::exchange(page.marker, false);
    // The mark is at the home before the page can be stored to (rule 21). One thread asks for it.
    const bool unmarked = write && imp.intents && !page.intent.held();
    switch (page.state) {
      case PageState::kClean:
      case PageState::kWriting:
        // Copied next, and mostly in no cache. Where a dirty intent was waited for, they came
        // meanwhile.
        if (write && !imp.intents) {
          prefetch_page(imp.page_data(index));
          twins_.prefetch();
        }
        if (page.pinned && (write || !Userfault::features().continue_protected)) {
          wait = true;  // its bytes are on their way from here
          break;
        }
        if (unmarked && page.intent.asked()) {
          wait = true;
          break;
        }
        if (write && !alone && (unmarked || !imp.intents)) {
          window = fault_point_fails("always_in_order") ? 4 : imp.stores.store(index);
          window = std::min(window, brk - index);
        }
        if (unmarked) {
          mark = true;
          break;
        }
        if (window > 1) break;
        if (!write && (Userfault::features().continue_protected || view.read_only ||
                       (imp.rights.load() & fabric::kWrite) == 0)) {
          full = !userfault_.map(at, kPageSize, false);
        } else if (!write) {
          full = !map_and_compare(view, index);
        } else if ((page.state == PageState::kWriting && mutated("mutate_writing_stored_to")) ||
                   make_dirty(view, index)) {
          count(parts_.stats.store_faults);
          // Mapped here in most cases; where it is not, the next fault finds it dirty.
          userfault_.unprotect(at, kPageSize);
          ++page.generation;
        } else {
          full = true;
        }
        break;
      case PageState::kDirty:
        // Unmarked only where a store has slipped in before Linux 6.4; see map_and_compare.
        if (unmarked) {
          mark = true;
          break;
        }
        if (write) userfault_.unprotect(at, kPageSize);
        full = !userfault_.map(at, kPageSize, !view.read_only);
        break;
      case PageState::kAbsent:
        mark = unmarked;
        if (mark && page.intent.asked()) break;
        if (write && !std::exchange(alone, true) && imp.stores.store(index) > 1) {
          imp.stores.taken(index, index + 1);
        }
        page.generation++;
        set_state(imp, page, PageState::kFetching);
        miss = true;
        break;
      case PageState::kFetching:
        miss = mutated("mutate_fetched_twice");
        wait = !miss;
        break;
      case PageState::kStale:
      case PageState::kZappedDirty:
      case PageState::kZappedWriting:
        wait = true;
        break;
    }
    if ((mark && !miss) || window > 1) page.marker = readahead;
    if (mark && page.intent.asked()) {
      wait = true;
      mark = false;
    }
    const uint8_t epoch = mark ? page.intent.ask() : 0;
    page.unlock();
    if (full) return Exception::kTransient;
    // What is asked for from here is this fault's own, and has to be seen through.
    if (mark || miss) seen = nullptr;
    if (mark) {
      IntentRequest intent_request(*this, imp, index, epoch);
      if (miss) {
        const Exception e = fetch(view, index, write, &intent_request, deadline);
        if (e != Exception::kNone || intent_request.granted()) return e;
        if (deadline.passed()) return Exception::kTransient;
        continue;
      }
      intent_request.widen(window);
      window = intent_request.pages().count;
      imp.stores.taken(index, index + 1);
      intent_request.start();
      prefetch_page(imp.page_data(index));
      twins_.prefetch();
      if (Exception e = intent_request.await(deadline); e != Exception::kNone) return e;
      alone = true;
      if (!intent_request.granted() || window == 1) continue;
    }
    if (window > 1) {
      // First, since it may take some time: what is writable may be taken back meanwhile.
      if (window == StoreStreams::kMaxWindow || fault_point_fails("write_behind_soon")) {
        write_behind(view.import);
      }
      bool reader = false;
      alone = dirty_ahead(view, {index, window}, seen, &reader) == 0;
      if (alone) continue;
      if (reader) read_ahead(view, index, true, deadline);
      return Exception::kNone;
    }
    if (miss) return fetch(view, index, write, nullptr, deadline);
    if (!wait) {
      if (readahead) read_ahead(view, index, write, deadline);
      return Exception::kNone;
    }
    if (deadline.passed()) return Exception::kTransient;
    if (await_ahead(imp, index, deadline)) continue;
    // The thread that fetches or the answer to a write-back will change it. Answers are taken in by
    // whoever polls the link, so poll it.
    if (auto s = imp.link->current(); s != nullptr && s->endpoint().poll() > 0) continue;
    imp.wait_for_change(changes, kFetchNap);
  }
}

// For a load before Linux 6.4, where a page is first mapped and then protected: a store between the
// two is found by the twin, so the page counts as dirty until that has been looked at. Under the
// page's lock.
bool Importer::map_and_compare(const View& view, uint32_t index) {
  Import& imp = *view.import;
  Page& page = imp.table[index];
  const PageState before = page.state;
  if (!make_dirty(view, index)) return false;
  const bool mapped = userfault_.map(view.addr + size_t{index} * kPageSize, kPageSize, false);
  if (std::memcmp(imp.page_data(index), twins_.at(page.twin), kPageSize) == 0) {
    drop_twin(page);
    set_state(imp, page, before);
  } else {
    ++page.generation;
  }
  return mapped;
}

// Takes the wanted page, already kFetching, and as many absent ones behind it as the window allows.
// `marking`: for a store that needs the page's mark, which is asked for beside the read.
[[gnu::hot]] Exception Importer::fetch(const View& view, uint32_t wanted, bool write,
                                       IntentRequest* intent_request, Deadline deadline) {
  const std::shared_ptr<Import>& owner = view.import;
  Import& imp = *owner;
  count(write ? parts_.stats.store_misses : parts_.stats.load_misses);
  count(write ? imp.stats.store_misses : imp.stats.load_misses);
  const uint32_t end = std::max(std::min(imp.end_page.load(std::memory_order_acquire),
                                         imp.brk.load(std::memory_order_relaxed)),
                                wanted + 1);
  const uint32_t window = std::min({imp.streams.miss(wanted), end - wanted,
                                    imp.cache_limit.load(std::memory_order_relaxed) / 8});
  make_room(owner, window, deadline);
  uint32_t n = 1 + (window > 1 ? claim(imp, {wanted + 1, window - 1}, false).count : 0);
  if (n > 1) imp.streams.taken(wanted, wanted + n);

  const auto meanwhile = [&] {
    if (n != 1) return;
    prefetch_page(imp.page_data(wanted));
    if (write) twins_.prefetch();
  };
  for (;;) {
    Cause cause = Cause::kTimeout;
    bool failed = false;
    std::weak_ptr<void> lost;
    auto session = imp.link->session(deadline);
    fabric::RemoteKey key;
    if (session != nullptr && session_key(imp, *session, &key, deadline) &&
        (mutated("mutate_hold_late") || acquire(imp, wanted, n, deadline)) &&
        back_pages(imp, {wanted, n})) {
      if (!imp.allows(wanted) || !imp.allows(wanted + n - 1)) {  // under another token by now
        give_up_fetch(owner, wanted, n);
        return Exception::kNone;
      }
      if (intent_request != nullptr && n == 1) {
        fault_point("fetch_before_read");
        const Exception e =
            intent_request->fetch(imp.page_data(wanted), deadline, std::ref(meanwhile));
        if (!intent_request->granted()) {
          give_up_fetch(owner, wanted, 1);
          return e;
        }
        count_fetched(imp, 1);
        deliver(imp, &view, {wanted, 1}, wanted, write);
        return Exception::kNone;
      }
      const bool posted = imp.begin_use(session->generation(), key, uint64_t{wanted} + n);
      if (posted) {
        if (intent_request != nullptr) intent_request->start();
        fault_point("fetch_before_read");
        cause = session->read(imp.page_data(wanted), size_t{n} * kPageSize, key,
                              uint64_t{wanted} * kPageSize, deadline, std::ref(meanwhile));
        imp.end_use();
      }
      if (mutated_late("mutate_hold_late")) (void)acquire(imp, wanted, n, deadline);
      if (cause == Cause::kOk) {
        count_fetched(imp, n);
        const Exception unmarked =
            intent_request == nullptr ? Exception::kNone : intent_request->await(deadline);
        deliver(imp, &view, {wanted, n}, wanted,
                write && (intent_request == nullptr || intent_request->granted()));
        if (!write && imp.subscribed.any() && !fault_point_fails("never_follow"))
          subscribe(imp, wanted);
        if (n >= Streams::kAheadFrom) read_ahead(view, wanted, write, deadline);
        // Wanted may be stale by now; the access is simply tried again and fetches anew.
        return unmarked;
      }
      if (posted) {
        // Whatever the reason, the provider may hold on to the pages until the session is closed.
        trace(kFacMem, kInfo, "fetch of segment {} page {}: {}", imp.id, wanted,
              fabric::cause_name(cause));
        imp.link->retire(session);
        lost = session->life();
        failed = true;
      }
    }
    session.reset();
    // Others let go of a retired session within milliseconds; until then the provider may still
    // write to these pages.
    for (Backoff backoff; !lost.expired() && !deadline.passed();) backoff.pause();
    if (!lost.expired()) {
      {
        Guard g(later_mu_);
        stranded_.push_back({lost, owner, wanted, n});
        later_count_.fetch_add(1);
      }
      const Exception e = explain(imp, deadline);
      return e == Exception::kNone ? Exception::kTransient : e;
    }
    Exception e = explain(imp, deadline);
    // A break may have come before the last pages, or before all.
    const uint32_t brk = std::max(imp.brk.load(std::memory_order_seq_cst), wanted);
    if (brk < wanted + n) {
      give_up_fetch(owner, brk, wanted + n - brk);
      n = brk - wanted;
      if (n == 0) return e;  // tried again, it is one behind the break
    }
    if (e == Exception::kNone && failed && n > 1) {
      // One page whose memory is broken fails the read of all: those beside it are for who wants
      // them.
      give_up_fetch(owner, wanted + 1, n - 1);
      n = 1;
    } else if (e == Exception::kNone && failed) {
      e = ask_in_flux(imp, wanted, deadline);
    }
    if (e == Exception::kNone && !deadline.passed()) continue;
    give_up_fetch(owner, wanted, n);
    return e == Exception::kNone ? Exception::kTransient : e;
  }
}

// Pages that arrived leave kFetching. `view`: where to map them, null for nowhere. `wanted`: the
// one that faulted; when none did, the first is left for the reader to come by (Page::marker).
[[gnu::hot]] void Importer::deliver(Import& imp, const View* view, PageRange pages, uint32_t wanted,
                                    bool write) {
  fault_point("fetch_before_deliver");
  const uint32_t first = pages.first, n = pages.count;
  for (uint32_t i = 0; i < n; ++i) imp.table[first + i].lock();
  const bool usable_now = imp.state.load(std::memory_order_seq_cst) == ImportState::kUsable &&
                          !imp.lease_expired.load(std::memory_order_seq_cst) &&
                          imp.tokens_notified.load(std::memory_order_seq_cst) ==
                              imp.tokens_taken.load(std::memory_order_seq_cst);
  if (view != nullptr && mutated("mutate_stale_checked_late"))
    mutation::show_unchecked(userfault_, *view, pages);
  // Mapped and made kClean in one locked step; a stale page is not mapped (rule 3). Runs of good
  // pages go into one call.
  for (uint32_t i = 0; i < n;) {
    Page& p = imp.table[first + i];
    if (mutated("mutate_stale_ignored")) mutation::forget_stale(p);
    if (mutated("mutate_fetched_twice") && mutation::delivered_by_another(p)) {
      ++i;
      continue;
    }
    if (p.state == PageState::kStale || !usable_now || imp.is_in_flux(first + i)) {
      set_state(imp, p, PageState::kAbsent);
      ++i;
      continue;
    }
    // A mark that was held when the page was claimed may have been given back since.
    if (first + i == wanted && write && (!imp.intents || p.intent.held()) &&
        make_dirty(*view, wanted)) {
      userfault_.map(view->addr + size_t{wanted} * kPageSize, kPageSize, true);
      ++p.generation;
      ++i;
      continue;
    }
    uint32_t run = 0;
    p.marker = i == 0 && wanted == kNoPage;
    while (i + run < n && imp.table[first + i + run].state == PageState::kFetching &&
           !imp.is_in_flux(first + i + run) &&
           !(run > 0 && (p.marker || (write && first + i + run == wanted)))) {
      ++run;
    }
    // Before Linux 6.4 a page cannot be mapped and write-protected in one step; the access faults
    // once more then, and is served as one to a clean page.
    if (view != nullptr && !p.marker && Userfault::features().continue_protected &&
        !mutated("mutate_map_outside_lock")) {
      userfault_.map(view->addr + size_t{first + i} * kPageSize, size_t{run} * kPageSize, false);
    }
    for (uint32_t k = 0; k < run; ++k) {
      Page& q = imp.table[first + i + k];
      ++q.generation;
      set_state(imp, q, PageState::kClean);
    }
    i += run;
  }
  for (uint32_t i = 0; i < n; ++i) imp.table[first + i].unlock();
  if (view != nullptr && mutated_late("mutate_map_outside_lock"))
    userfault_.map(view->addr + size_t{first} * kPageSize, size_t{n} * kPageSize, false);
  imp.changed();
}

void Importer::give_up_fetch(const std::shared_ptr<Import>& imp, uint32_t first, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    Page& p = imp->table[first + i];
    p.lock();
    set_state(*imp, p, PageState::kAbsent);
    p.unlock();
  }
  imp->changed();
}

}  // namespace cmi::memory

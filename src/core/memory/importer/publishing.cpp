// The barrier, and cflush.
#include "core/memory/importer/publishing.hpp"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "core/base/mutation.hpp"
#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/import_break.hpp"
#include "core/memory/importer/local_import.hpp"
#include "core/memory/importer/write_back.hpp"

namespace cmi::memory {

Status verdict(ImporterCore& core, LossMark& mark, bool good) {
  const LossMark before = std::exchange(mark, core.losses.mark());
  // The event of a loss is there before its call returns, also while another thread reports it.
  if (mark.seen != before.seen || mark.seen_local != before.seen_local) core.losses.report();
  if (mark.seen_local != before.seen_local) return Status::kHw;
  return good && mark.seen == before.seen ? Status::kOk : Status::kStore;
}

// The stores that the caller has made or seen come first. Another thread may have made their page
// dirty: it has counted it before it made the page writable, so with the fence it is found here.
bool all_published(const ImporterCore& core) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return !core.dirty.any() &&
         (core.write_backs.count() == 0 || mutated("mutate_write_back_not_awaited"));
}

// Takes what is dirty in all imports, once. `busy`: hot pages with an earlier write-back under way;
// those that it names at first are looked at, instead of all hot pages of their imports.
bool Publishing::collect(BusyPages* busy, bool again, const Patience& patience) {
  bool good = true;
  for (auto imp = core_.imports.next_dirty(0); imp != nullptr;
       imp = core_.imports.next_dirty(imp->instance)) {
    announce_stores(core_, imp, LocalViews::Taker::kBarrier);
    if (imp->views.local.local()) continue;
    std::vector<uint32_t>& of_import = (*busy)[imp];
    if (again && of_import.empty() && imp->dirty.listed.empty()) continue;
    // The write-back is begun before the list is taken: another barrier that finds the list empty
    // finds it.
    Collector out(core_, imp, core_.write_backs.begin(imp));
    std::vector<uint32_t> pages;
    std::vector<uint32_t> hot = again ? std::exchange(of_import, {}) : imp->dirty.hot.all();
    if (hot.size() >= Collector::kMinRun) {
      std::sort(hot.begin(), hot.end());
      take_dense(core_, *imp, &hot, &pages);
    }
    good = send_hot(core_, *imp, hot, out, &patience, &of_import) && good;
    imp->dirty.listed.take_all(&pages);
    if (pages.size() >= Collector::kMinRun) out.allow_runs();
    const size_t done = write_back(core_, *imp, pages, out, patience);
    if (done == pages.size()) continue;
    // Before the write-back ends, so that another barrier that waits for it finds them.
    good = false;
    imp->dirty.listed.put_back(std::span(pages).subspan(done));
  }
  return good;
}

Status Publishing::barrier(LossMark& mark, const Patience& patience) {
  if (all_published(core_)) return verdict(core_, mark, true);
  const Timed timed(&core_.parts.stats.barrier_times);
  SignalsBlocked quiet;
  BusyPages busy;
  bool good = collect(&busy, false, patience);
  if (mutated("mutate_answer_not_awaited")) return verdict(core_, mark, true);
  good = await(core_, core_.write_backs.open(), patience) && good;
  // A page with an earlier write-back under way went back into the list; a hot one is in `busy`.
  // That write-back is over now. If another one has begun since, it carries what was dirty when
  // this call began.
  if (mutated("mutate_hot_earlier_trusted")) busy.clear();
  if (core_.dirty.any()) {
    good = collect(&busy, true, patience) && good;
  }
  // Pages that were invalidated while dirty go out from answers: those write-backs began before the
  // ones we waited for ended. So did the write-back of a notification that took a page which
  // another barrier had taken from the list and not come to yet; that one may begin after the first
  // look here, and before the other barrier's own write-back ends: hence a second look.
  for (int look = 0; look < 2 && core_.write_backs.count() != 0; ++look) {
    good = await(core_, core_.write_backs.open(), patience) && good;
  }
  return verdict(core_, mark, good);
}

// Whether what the page holds may be asked to be home.
Exception Publishing::may_flush(const View& view, uint32_t page, Deadline deadline) {
  Import& imp = *view.import;
  const Exception e = usable(imp, false, page);
  // Without the right to load, others may have been used; outside of the token's part, none.
  if (e != Exception::kNone && !(e == Exception::kAccess && imp.allows(page))) return e;
  if (page >= imp.brk.load(std::memory_order_seq_cst)) {
    const Exception past = past_break(core_, imp, page, deadline);
    if (past != Exception::kNone) return past;
  }
  return imp.flux.contains(page) ? ask_in_flux(core_, imp, page, deadline) : Exception::kNone;
}

bool Publishing::flush_pages(const Named& named, const Patience& patience) {
  bool good = true;
  // Twice, as in the barrier: a page whose earlier write-back was under way goes in the second
  // round.
  for (int round = 0; round < 2; ++round) {
    for (auto& [import, pages] : named) {
      const std::shared_ptr<Import>& imp = import;
      announce_stores(core_, imp, LocalViews::Taker::kBarrier);
      if (imp->views.local.local()) continue;
      Collector out(core_, imp, core_.write_backs.begin(imp));
      std::vector<uint32_t> busy;  // these go in the second round
      good = send_hot(core_, *imp, pages, out, &patience, &busy) && good;
      std::vector<uint32_t> cold = pages;
      std::erase_if(cold, [&](uint32_t page) { return is_hot(imp->page(page)); });
      good = write_back(core_, *imp, cold, out, patience) == cold.size() && good;
    }
    good = await(core_, core_.write_backs.open(), patience) && good;
  }
  if (core_.write_backs.count() != 0) {
    good = await(core_, core_.write_backs.open(), patience) && good;
  }
  return good;
}

// What the access itself would raise after a flush that failed: the home died or the token went
// meanwhile, or the page was refused because the memory is broken there.
Exception Publishing::why_not_home(const View& view, uint32_t page, Deadline deadline) {
  Import& imp = *view.import;
  const Exception e = usable(imp, false, page);
  if (e == Exception::kSinval || e == Exception::kToken) return e;
  return imp.flux.contains(page) ? ask_in_flux(core_, imp, page, deadline) : Exception::kNone;
}

Status Publishing::flush(const Addresses& where, LossMark& mark, const Patience& patience,
                         Exception* failed, size_t* failed_at) {
  // As in all_published(), before the pages are looked at.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  SignalsBlocked quiet;
  *failed = Exception::kNone;
  Named named;
  for (size_t i = 0; i < where.size(); ++i) {
    auto& [view, addr] = where[i];
    const uint32_t page = page_of(*view, addr);
    const Exception e = may_flush(*view, page, patience.deadline);
    if (e != Exception::kNone && *failed == Exception::kNone) {
      *failed = e;
      *failed_at = i;
    }
    if (!view->write_through) named[view->import].push_back(page);  // else it is home already
  }
  const bool good = flush_pages(named, patience);
  for (size_t i = 0; i < where.size() && !good && *failed == Exception::kNone; ++i) {
    auto& [view, addr] = where[i];
    *failed = why_not_home(*view, page_of(*view, addr), patience.deadline);
    *failed_at = i;
  }
  return verdict(core_, mark, good);
}

}  // namespace cmi::memory

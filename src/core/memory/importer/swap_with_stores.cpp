// A swap whose message takes along what its caller has to publish before it (protocol rule 12): the
// barrier and the swap are one exchange then. Where not everything fits, the barrier comes first,
// and what has been collected by then is a write-back like any other. Application threads.
#include <algorithm>
#include <span>
#include <vector>

#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/publishing.hpp"
#include "core/memory/importer/swap_fetch.hpp"
#include "core/memory/importer/swaps.hpp"
#include "core/memory/importer/write_back.hpp"

namespace cmi::memory {

Status Swaps::barrier_before_swap(const View& view, const std::byte* addr, uint64_t expected,
                                  uint64_t desired, PendingSwap* pending, LossMark& mark,
                                  Nanos span) {
  if (all_published(core_)) return verdict(core_, mark, true);
  // Swaps in a mapped page, one after another, leave it stored to until the timer comes. What is
  // dirty is looked at first: a page that has left it meanwhile is in a write-back.
  LocalViews& local = view.import->views.local;
  if (local.local() && local.all_published() && core_.write_backs.count() == 0) {
    return verdict(core_, mark, true);
  }
  const SignalsBlocked quiet;
  const Patience patience{{}, span};
  Import& imp = *view.import;
  const auto offset = static_cast<uint64_t>(addr - view.addr);
  if (!may_send_with_swap(view, static_cast<uint32_t>(offset / kPageSize))) {
    return Publishing(core_).barrier(mark, patience);
  }
  const CasRequest swap{imp.rseg.uid, imp.instance, offset, expected, desired};
  SwapFetch fetch(core_, view, static_cast<uint32_t>(offset / kPageSize));
  switch (send_with_swap(view.import, swap, &fetch, pending, mark)) {
    case Sent::kNotAll:
      return Publishing(core_).barrier(mark, patience);
    case Sent::kNothing:
      return verdict(core_, mark, true);
    case Sent::kWithSwap:
      break;
  }
  if (fetch.any() && !await(core_, imp, pending->request->op(), Deadline::in(SwapFetch::kPatience)))
    fetch.give_up();
  (void)await(core_, imp, pending->request->op(), patience);
  if (pending->request->answered()) pending->sent->brought = fetch.take(*pending->sent);
  const auto& stores = pending->sent->stores;
  if (!pending->request->answered() || !stores || *stores == WireStatus::kOk) return Status::kOk;
  // Refused, and lost. The home has made no swap.
  pending->request = nullptr;
  pending->sent = nullptr;
  return verdict(core_, mark, false);
}

// What is known here without waiting; where it is wrong the home refuses.
bool Swaps::may_send_with_swap(const View& view, uint32_t index) {
  Import& imp = *view.import;
  if (view.read_only || imp.write_through || imp.views.local.local() || swaps_by_provider(imp)) {
    return false;
  }
  if (core_.write_backs.count() != 0) return false;
  if (usable(imp, false, index) != Exception::kNone || !imp.grant.has(fabric::kAtomic) ||
      !imp.allows(index) || index >= imp.brk.load(std::memory_order_seq_cst) ||
      imp.flux.contains(index)) {
    return false;
  }
  // The home must have heard of this import.
  const auto session = imp.link->current();
  if (session == nullptr || imp.key.generation() != session->generation()) {
    return false;
  }
  return imp.dirty.listed.size() < Collector::kMinRun;
}

Swaps::Sent Swaps::send_with_swap(const std::shared_ptr<Import>& owner, const CasRequest& swap,
                                  SwapFetch* fetch, PendingSwap* pending, const LossMark& mark) {
  Import& imp = *owner;
  // As in a barrier: the write-back is begun before the lists are taken.
  Collector out(core_, owner, core_.write_backs.begin(owner));
  std::vector<uint32_t> pages, busy, hot = imp.dirty.hot.all();
  if (hot.size() >= Collector::kMinRun) {
    std::sort(hot.begin(), hot.end());
    take_dense(core_, imp, &hot, &pages);
    if (!pages.empty()) return Sent::kNotAll;
  }
  (void)send_hot(core_, imp, hot, out, nullptr, &busy);
  if (!imp.dirty.listed.take_fewer_than(Collector::kMinRun, &pages)) return Sent::kNotAll;
  std::sort(pages.begin(), pages.end());
  write_back_sorted(core_, imp, pages, out);
  if (!busy.empty() || !out.fits_swap()) return Sent::kNotAll;
  auto sent = std::make_shared<SentSwap>();
  // What is stored to the page, or takes it away, from here on raises its generation.
  Page& page = imp.page(static_cast<uint32_t>(swap.offset / kPageSize));
  page.lock();
  sent->cached = may_be_mapped(page.state);
  sent->generation = page.generation;
  page.unlock();
  if (!nothing_else_to_publish(imp)) return Sent::kNotAll;
  const LossMark lost = core_.losses.mark();
  if (lost.seen != mark.seen || lost.seen_local != mark.seen_local) return Sent::kNotAll;
  if (out.empty()) return Sent::kNothing;
  fetch->begin();
  auto take = [owner, sent](Bytes answer) { take_swap_answer(owner, *sent, answer); };
  auto request = fetch->any() ? out.flush_with(fetch->request(swap, 0, sent), std::move(take))
                              : out.flush_with(swap, std::move(take));
  *pending = {pending->call, owner, std::move(request), swap.offset, sent};
  return Sent::kWithSwap;
}

// Whether all that was dirty when the caller began its write-back is in it, or home. A page that is
// not in a list is in another thread's write-back, which is open until the page is home or in a
// list again (rule 8). So with no other write-back open before and after, and nothing in the lists
// between, it is nowhere else.
bool Swaps::nothing_else_to_publish(const Import& imp) {
  const auto only_this = [this] { return core_.write_backs.count() == 1; };
  const auto listed = [&imp](const std::shared_ptr<Import>& other) {
    if (other.get() != &imp && !other->dirty.hot.empty()) return true;
    return !other->dirty.listed.empty();
  };
  if (!only_this()) return false;
  return !core_.imports.any(listed) && only_this();
}

}  // namespace cmi::memory

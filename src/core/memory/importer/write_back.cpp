// Write-backs: collecting dirty pages into batches of publish messages, taking in the answers, the
// barrier, cflush and the timer. Runs in application threads and, for the timer and for pages that
// were invalidated while dirty, in the service thread, which never waits.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/exclusive_access.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/memory/page/page_mutations.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kWriteBackRun = 256;  // pages locked at once
}  // namespace

std::shared_ptr<Importer::WriteBack> Importer::begin_write_back(
    const std::shared_ptr<Import>& imp) {
  fault_point("batch_begun");
  auto b = std::make_shared<WriteBack>();
  b->import = imp;
  b->token = imp->token.presented_id.load(std::memory_order_acquire);
  b->done.begin();
  Guard g(write_backs_mu_);
  b->seq = next_write_back_++;
  write_backs_.push_back(b);
  open_write_back_count_.fetch_add(1, std::memory_order_seq_cst);
  return b;
}

void Importer::end_part(const std::shared_ptr<WriteBack>& batch) {
  if (batch->parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    Guard g(write_backs_mu_);
    write_backs_.erase(std::find(write_backs_.begin(), write_backs_.end(), batch));
    open_write_back_count_.fetch_sub(1, std::memory_order_seq_cst);
  }
  report();  // first, so that who waited for the batch finds the event
  batch->done.complete(batch->failed.load() ? fabric::Cause::kPeerLost : fabric::Cause::kOk);
}

std::shared_ptr<Import> Importer::next_dirty(uint32_t after) {
  Guard g(imports_mu_);
  const auto first =
      std::upper_bound(imports_.begin(), imports_.end(), after,
                       [](uint32_t instance, auto& imp) { return instance < imp->instance; });
  const auto found =
      std::find_if(first, imports_.end(), [](auto& imp) { return !imp->dirty.none(); });
  return found != imports_.end() ? *found : nullptr;
}

std::vector<std::shared_ptr<Importer::WriteBack>> Importer::open_batches() {
  Guard g(write_backs_mu_);
  return {write_backs_.begin(), write_backs_.end()};
}

void Importer::protect_everywhere(Import& imp, uint32_t first, uint32_t n) {
  if (mutated("mutate_protect_missing")) return;
  for (auto& v : imp.views.list) {
    userfault_.protect(v->addr + size_t{first} * kPageSize, size_t{n} * kPageSize);
  }
}

void Importer::zap_everywhere(Import& imp, uint32_t first, uint32_t n) {
  for (auto& v : imp.views.list) zap(v->addr + size_t{first} * kPageSize, size_t{n} * kPageSize);
}

// Writes back the dirty ones of `pages` (sorted here), and waits for answers in between where the
// collector is full. Those with an earlier write-back still under way stay in the dirty list.
// Returns how many pages it came to in time.
size_t Importer::write_back(Import& imp, std::vector<uint32_t>& pages, Collector& out,
                            const Patience& patience) {
  if (pages.empty()) return 0;
  if (!std::is_sorted(pages.begin(), pages.end())) std::sort(pages.begin(), pages.end());
  if (pages.size() < Collector::kMinRun) {
    if (const ExclusiveAccess exclusive(*this); exclusive.mine()) {
      send_and_protect(imp, pages, out);
      return pages.size();
    }
  }
  for (size_t done = 0;;) {
    {
      Guard views(imp.views.mu);
      while (done < pages.size() && !out.full()) {
        done += write_back_run(imp, std::span(pages).subspan(done), out);
      }
    }
    out.start_runs();
    if (done == pages.size() || !out.await_room(patience)) return done;
  }
}

// A page of the dirty list, under its lock: whether it is to be written back now.
bool Importer::take_listed(Import& imp, uint32_t index) {
  Page& p = imp.page(index);
  // A hot page stands in a list of its own, and this list may enter it again once it has cooled.
  if (p.state == PageState::kDirty && p.heat.hot()) {
    p.listed = false;
    return !p.in_flight;
  }
  // Back into the list too: a barrier that comes now must find it there.
  p.listed = p.state == PageState::kDirty && p.in_flight;
  if (!p.listed) return p.state == PageState::kDirty;
  imp.dirty.listed.add(index);
  return false;
}

// Of a few pages, where nobody else may store (rule 5): they are protected while their changes
// travel. Until then they are dirty beside a write-back of theirs, with twins that are what the
// home will have.
void Importer::send_and_protect(Import& imp, std::span<const uint32_t> pages, Collector& out) {
  std::array<uint32_t, Collector::kMinRun> sent;
  size_t n = 0;
  for (uint32_t index : pages) {
    Page& p = imp.page(index);
    p.lock();
    if (take_listed(imp, index)) {
      p.in_flight = out.add_and_renew(index, twins_.at(p.twin)) != 0;
      ++p.generation;
      sent[n++] = index;
    }
    p.unlock();
  }
  out.flush();
  fault_point("sent_before_protect");
  Guard views(imp.views.mu);
  for (size_t at = 0, run; at < n; at += run) {
    run = 1;
    while (at + run < n && sent[at + run] == sent[at] + run) ++run;
    protect_sent(imp, {sent[at], static_cast<uint32_t>(run)});
  }
}

// They may have been answered, invalidated or dropped since. Should anything of them have been
// stored meanwhile, by a stranger to the process, they stay dirty with it.
void Importer::protect_sent(Import& imp, PageRange sent) {
  bool any = false;
  for (uint32_t k = 0; k < sent.count; ++k) {
    Page& p = imp.page(sent.first + k);
    p.lock();
    any = any || p.state == PageState::kDirty;
  }
  if (any) protect_everywhere(imp, sent.first, sent.count);
  for (uint32_t k = 0; k < sent.count; ++k) {
    const uint32_t index = sent.first + k;
    Page& p = imp.page(index);
    if (p.state == PageState::kDirty) {
      if (std::memcmp(imp.page_data(index), twins_.at(p.twin), kPageSize) == 0 ||
          mutated("mutate_sent_not_compared")) {
        drop_twin(p);
        ++p.generation;
        p.heat.written_back(true);
        set_state(imp, p, p.in_flight ? PageState::kWriting : PageState::kClean);
      } else if (!p.listed && !p.heat.hot()) {
        p.listed = true;
        imp.dirty.listed.add(index);
      }
    }
    p.unlock();
  }
}

// The neighbours that `pages`, sorted, begins with; returns how many.
uint32_t Importer::write_back_run(Import& imp, std::span<const uint32_t> pages, Collector& out) {
  uint32_t n = 1;
  while (n < pages.size() && n < kWriteBackRun && pages[n] == pages[0] + n) ++n;
  const uint32_t first = pages[0];
  bool any = false;
  for (uint32_t k = 0; k < n; ++k) {
    Page& p = imp.page(first + k);
    p.lock();
    any = any || (p.state == PageState::kDirty && !p.in_flight);
  }
  // One shootdown for the run. Protecting a page that is clean or stays dirty only costs it a
  // fault.
  if (any && !mutated("mutate_protect_late")) protect_everywhere(imp, first, n);
  if (mutated("mutate_protect_unlocked")) mutation::unlock_meanwhile(&imp.page(first), n);
  for (uint32_t k = 0; k < n; ++k) {
    if (const uint32_t run = out.run_at(first + k, first + n); run != 0) {
      for (uint32_t r = 0; r < run; ++r) imp.page(first + k + r).listed = false;
      out.add_run(first + k, run);
      k += run - 1;
      continue;
    }
    if (!take_listed(imp, first + k)) continue;
    Page& p = imp.page(first + k);
    const size_t bytes = out.add(first + k, twins_.at(p.twin));
    drop_twin(p);
    ++p.generation;
    p.heat.written_back(bytes != 0);
    p.in_flight = bytes != 0 && !mutated("mutate_clean_when_sent");
    set_state(imp, p, p.in_flight ? PageState::kWriting : PageState::kClean);
  }
  if (any && mutated_late("mutate_protect_late")) protect_everywhere(imp, first, n);
  for (uint32_t k = 0; k < n; ++k) imp.page(first + k).unlock();
  return n;
}

// The home has applied the diffs of these pages and everyone else has dropped them, or it refused,
// or nobody knows (no status): the home is lost, or was given up.
void Importer::answered(const std::shared_ptr<WriteBack>& batch, std::vector<uint32_t>& pages,
                        std::optional<WireStatus> status) {
  SignalsBlocked quiet;
  Import& imp = *batch->import;
  if (status == WireStatus::kOk) {
    came_home(batch->import, pages);
  } else {
    trace(kFacMem, kWarn, "segment {}: the home refused stores to {} pages ({})", imp.id,
          pages.size(), status ? static_cast<int>(*status) : -1);
    batch->failed.store(true);
    lose(batch->import, pages);
    if (status == WireStatus::kBroken) imp.flux.doubt(pages);  // some of them are
    never_came_home(batch->import, pages, status.has_value());
  }
  imp.changes.notify();
  // At the first loss all pages are closed, so that one event can name everything; but broken
  // memory is not the end of the pages beside it.
  if (status != WireStatus::kOk && status != WireStatus::kBroken &&
      imp.grant.state() == ImportState::kUsable) {
    // What ends unanswered because the home has been given up ends with it: we may be here before
    // whoever gave it up has closed its imports.
    refused(imp,
            status.value_or(imp.link->condemned() ? WireStatus::kEnding : WireStatus::kMalformed),
            batch->token);
  }
  end_part(batch);
}

void Importer::came_home(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages) {
  // Sends what became free to go, if anything did; begun before the batch of these ends, so that a
  // barrier that waits for that one finds the next.
  std::optional<Collector> next;
  const auto collector = [&]() -> Collector& { return next ? *next : next.emplace(*this, imp); };
  for (uint32_t index : pages) {
    Page& p = imp->page(index);
    p.lock();
    if (p.pinned) collector().unmark(index);  // a run's mark did not travel with it
    p.in_flight = p.pinned = false;
    if (p.state == PageState::kWriting) {
      set_state(*imp, p, PageState::kClean);
    } else if (p.state == PageState::kZappedWriting) {
      set_state(*imp, p, PageState::kAbsent);
    } else if (p.state == PageState::kZappedDirty) {
      const size_t bytes = collector().add(index, twins_.at(p.twin));
      drop_twin(p);
      p.in_flight = bytes != 0;
      set_state(*imp, p, PageState::kZappedWriting);
      if (bytes == 0) set_state(*imp, p, PageState::kAbsent);
    }
    p.unlock();
  }
}

// What was stored to these never reached the home: nobody may go on reading it. `refused`: it said
// so.
void Importer::never_came_home(const std::shared_ptr<Import>& imp,
                               const std::vector<uint32_t>& pages, bool refused) {
  Collector unmarking(*this, imp);
  Guard views(imp->views.mu);
  for (uint32_t index : pages) {
    Page& p = imp->page(index);
    p.lock();
    // A refused message's mark has not been cleared by it. What may have arrived, in part or
    // without a word, keeps its dirty intent at home, should we die; here it counts no more, so
    // that nothing takes it back, and a new token's stores ask for their own.
    if (!p.pinned && refused) {
      unmarking.unmark(index);
    } else if (!mutated("mutate_mark_of_unknown_taken_back")) {
      p.intent.take();
    }
    p.in_flight = p.pinned = false;
    if (p.state == PageState::kWriting || p.state == PageState::kDirty) {
      zap_everywhere(*imp, index, 1);
      drop_twin(p);
      ++p.generation;
      set_state(*imp, p, PageState::kAbsent);
    } else if (p.state == PageState::kZappedWriting) {
      set_state(*imp, p, PageState::kAbsent);
    } else if (p.state == PageState::kZappedDirty) {
      drop_twin(p);
      set_state(*imp, p, PageState::kZappedWriting);
      set_state(*imp, p, PageState::kAbsent);
    }
    p.unlock();
  }
}

// Until the operation is done, if need be because the home has died.
bool Importer::await(Import& imp, fabric::Op& op, Deadline deadline) {
  fabric::Link& link = *imp.link;
  WaitSlices slices(deadline);
  while (!op.done() && !deadline.passed()) {
    const Deadline slice = slices.next();
    auto session = link.session(slice);
    if (session == nullptr) {
      if (link.condemned() || home_has_ended(imp)) link.advance();
      continue;
    }
    if (op.done()) break;
    link.pump(*session);
    session->endpoint().wait(op, slice);
    if (!op.done()) link.advance();
  }
  return op.done();
}

// A home that lives and yet does not answer, as far as the watch can tell, must not be waited for
// without end: what it owes is given up.
bool Importer::await(Import& imp, fabric::Op& op, const Patience& patience) {
  for (int spans = 1;; ++spans) {
    if (await(imp, op, patience.next())) return true;
    if (patience.span == 0) return false;
    if (imp.link->heard() > now() - patience.span && spans < Patience::kMostSpans) continue;
    imp.link->give_up(now() - patience.span);
    return false;
  }
}

bool Importer::await(WriteBack& batch, const Patience& patience) {
  constexpr Nanos kLook = 100 * kMilli;
  int parts = batch.parts.load(), spans = 1;
  for (Deadline end = patience.next();;) {
    if (await(*batch.import, batch.done, Deadline{std::min(end.at, now() + kLook)})) break;
    if (const int left = batch.parts.load(); left != parts && patience.span != 0) {
      parts = left;
      end = patience.next();
    } else if (end.passed()) {
      if (batch.import->link->heard() > now() - patience.span && spans++ < Patience::kMostSpans) {
        end = patience.next();
        continue;
      }
      if (patience.span != 0) batch.import->link->give_up(now() - patience.span);
      return false;
    }
  }
  return batch.done.cause() == fabric::Cause::kOk;
}

bool Importer::await(const std::vector<std::shared_ptr<WriteBack>>& batches,
                     const Patience& patience) {
  bool good = true;
  for (auto& b : batches) good = await(*b, patience) && good;
  return good;
}

// What a barrier says, given that what it waited for came home.
Status Importer::judge(LossMark& mark, bool good) {
  const LossMark before = std::exchange(mark, losses());
  // Who reads here of a loss finds its event, also while another thread is telling it.
  if (mark.seen != before.seen || mark.seen_local != before.seen_local) report();
  if (mark.seen_local != before.seen_local) return Status::kHw;
  return good && mark.seen == before.seen ? Status::kOk : Status::kStore;
}

bool Importer::settled() const {
  return dirty_pages_.load(std::memory_order_seq_cst) == 0 &&
         (open_write_back_count_.load(std::memory_order_seq_cst) == 0 ||
          mutated("mutate_write_back_not_awaited"));
}

// Takes what is dirty in all imports, once. `busy`: hot pages with an earlier write-back under way;
// those that it names at first are looked at, instead of all hot pages of their imports.
bool Importer::collect(BusyPages* busy, bool again, const Patience& patience) {
  bool good = true;
  for (auto imp = next_dirty(0); imp != nullptr; imp = next_dirty(imp->instance)) {
    std::vector<uint32_t>& of_import = (*busy)[imp];
    if (again && of_import.empty() && imp->dirty.listed.empty()) continue;
    // The batch is begun before the list is taken: another barrier that finds the list empty finds
    // it.
    Collector out(*this, imp, begin_write_back(imp));
    std::vector<uint32_t> pages;
    std::vector<uint32_t> hot = again ? std::exchange(of_import, {}) : imp->dirty.hot.all();
    if (hot.size() >= Collector::kMinRun) {
      std::sort(hot.begin(), hot.end());
      take_dense(*imp, &hot, &pages);
    }
    good = send_hot(*imp, hot, out, &patience, &of_import) && good;
    imp->dirty.listed.take_all(&pages);
    if (pages.size() >= Collector::kMinRun) out.allow_runs();
    const size_t done = write_back(*imp, pages, out, patience);
    if (done == pages.size()) continue;
    // Before the batch ends, so that another barrier that waits for it finds them.
    good = false;
    imp->dirty.listed.put_back(std::span(pages).subspan(done));
  }
  return good;
}

Status Importer::barrier(LossMark& mark, const Patience& patience) {
  if (settled()) return judge(mark, true);
  SignalsBlocked quiet;
  BusyPages busy;
  bool good = collect(&busy, false, patience);
  if (mutated("mutate_answer_not_awaited")) return judge(mark, true);
  good = await(open_batches(), patience) && good;
  // A page with an earlier write-back under way went back into the list, whoever had taken it; a
  // hot one is in `busy`. That write-back is over now. If another has begun since, it carries what
  // was dirty when we came.
  if (mutated("mutate_hot_earlier_trusted")) busy.clear();
  if (dirty_pages_.load(std::memory_order_seq_cst) != 0) {
    good = collect(&busy, true, patience) && good;
  }
  // Pages that were invalidated while dirty go out from answers: those batches began before the
  // ones we waited for ended. So did the batch of a notification that took a page which another
  // barrier had taken from the list and not come to yet; that one may begin after the first look
  // here, and before the other barrier's own batch ends: hence a second look.
  for (int look = 0; look < 2 && open_write_back_count_.load(std::memory_order_seq_cst) != 0;
       ++look) {
    good = await(open_batches(), patience) && good;
  }
  return judge(mark, good);
}

Status Importer::flush(
    const std::vector<std::pair<std::shared_ptr<const View>, const std::byte*>>& where,
    LossMark& mark, const Patience& patience, Exception* failed, size_t* failed_at) {
  SignalsBlocked quiet;
  *failed = Exception::kNone;
  std::map<std::shared_ptr<Import>, std::vector<uint32_t>> named;
  for (size_t i = 0; i < where.size(); ++i) {
    auto& [view, addr] = where[i];
    const auto page = static_cast<uint32_t>(static_cast<size_t>(addr - view->addr) / kPageSize);
    Exception e = usable(*view->import, false, page);
    // Without the right to load, others may have been used; outside of the token's part, none.
    if (e == Exception::kAccess && view->import->allows(page)) e = Exception::kNone;
    if (e == Exception::kNone && page >= view->import->brk.load(std::memory_order_seq_cst)) {
      e = past_break(*view->import, page, patience.deadline);
    }
    if (e == Exception::kNone && view->import->flux.contains(page)) {
      e = ask_in_flux(*view->import, page, patience.deadline);
    }
    if (e != Exception::kNone && *failed == Exception::kNone) {
      *failed = e;
      *failed_at = i;
    }
    if (!view->write_through) named[view->import].push_back(page);  // else it is home already
  }
  bool good = true;
  // Twice, as in the barrier: a page whose earlier write-back was under way goes in the second
  // round.
  for (int round = 0; round < 2; ++round) {
    for (auto& [import, pages] : named) {
      const std::shared_ptr<Import>& imp = import;
      Collector out(*this, imp, begin_write_back(imp));
      std::vector<uint32_t> busy;  // these go in the second round
      good = send_hot(*imp, pages, out, &patience, &busy) && good;
      std::vector<uint32_t> cold = pages;
      std::erase_if(cold, [&](uint32_t page) { return is_hot(imp->page(page)); });
      good = write_back(*imp, cold, out, patience) == cold.size() && good;
    }
    good = await(open_batches(), patience) && good;
  }
  if (open_write_back_count_.load() != 0) good = await(open_batches(), patience) && good;
  // What was refused because the memory is broken there.
  for (size_t i = 0; i < where.size() && !good && *failed == Exception::kNone; ++i) {
    auto& [view, addr] = where[i];
    const auto page = static_cast<uint32_t>(static_cast<size_t>(addr - view->addr) / kPageSize);
    if (!view->import->flux.contains(page)) continue;
    *failed = ask_in_flux(*view->import, page, patience.deadline);
    *failed_at = i;
  }
  return judge(mark, good);
}

}  // namespace cmi::memory

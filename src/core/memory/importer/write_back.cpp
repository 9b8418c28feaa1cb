// Collecting dirty pages into write-backs of publish messages.
#include "core/memory/importer/write_back.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/page_moves.hpp"
#include "core/memory/page/page_mutations.hpp"

namespace cmi::memory {

namespace {

constexpr uint32_t kWriteBackRun = 256;  // pages locked at once

// A page of the dirty list, under its lock: whether it is to be written back now.
bool take_listed(Import& imp, uint32_t index) {
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

// They may have been answered, invalidated or dropped since. Should anything of them have been
// stored meanwhile, by a stranger to the process, they stay dirty with it.
void protect_sent(ImporterCore& core, Import& imp, PageRange sent) CMI_REQUIRES(imp.views.mu) {
  bool any = false;
  for (uint32_t k = 0; k < sent.count; ++k) {
    Page& p = imp.page(sent.first + k);
    p.lock();
    any = any || p.state == PageState::kDirty;
  }
  if (any) protect_everywhere(core, imp, sent.first, sent.count);
  for (uint32_t k = 0; k < sent.count; ++k) {
    const uint32_t index = sent.first + k;
    Page& p = imp.page(index);
    if (p.state == PageState::kDirty) {
      if (std::memcmp(imp.page_data(index), core.twins.at(p.twin), kPageSize) == 0 ||
          mutated("mutate_sent_not_compared")) {
        drop_twin(core, p);
        ++p.generation;
        p.heat.written_back(true);
        set_state(core, imp, p, p.in_flight ? PageState::kWriting : PageState::kClean);
      } else if (!p.listed && !p.heat.hot()) {
        p.listed = true;
        imp.dirty.listed.add(index);
      }
    }
    p.unlock();
  }
}

// Of a few pages, where nobody else may store (rule 5): they are protected while their changes
// travel. Until then they are dirty beside a write-back of theirs, with twins that are what the
// home will have.
void send_and_protect(ImporterCore& core, Import& imp, std::span<const uint32_t> pages,
                      Collector& out) {
  std::array<uint32_t, Collector::kMinRun> sent;
  size_t n = 0;
  for (uint32_t index : pages) {
    Page& p = imp.page(index);
    p.lock();
    if (take_listed(imp, index)) {
      p.in_flight = out.add_and_renew(index, core.twins.at(p.twin)) != 0;
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
    protect_sent(core, imp, {sent[at], static_cast<uint32_t>(run)});
  }
}

// The neighbours that `pages`, sorted, begins with; returns how many.
uint32_t write_back_run(ImporterCore& core, Import& imp, std::span<const uint32_t> pages,
                        Collector& out) CMI_REQUIRES(imp.views.mu) {
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
  if (any && !mutated("mutate_protect_late")) protect_everywhere(core, imp, first, n);
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
    const size_t bytes = out.add(first + k, core.twins.at(p.twin));
    drop_twin(core, p);
    ++p.generation;
    p.heat.written_back(bytes != 0);
    p.in_flight = bytes != 0 && !mutated("mutate_clean_when_sent");
    set_state(core, imp, p, p.in_flight ? PageState::kWriting : PageState::kClean);
  }
  if (any && mutated_late("mutate_protect_late")) protect_everywhere(core, imp, first, n);
  for (uint32_t k = 0; k < n; ++k) imp.page(first + k).unlock();
  return n;
}

}  // namespace

void end_part(ImporterCore& core, const WriteBackPtr& write_back) {
  if (!core.write_backs.end_part(write_back)) return;
  core.losses.report();  // first, so that a thread that waited for the write-back finds the event
  write_back->done.complete(write_back->failed.load() ? fabric::Cause::kPeerLost
                                                      : fabric::Cause::kOk);
}

size_t write_back(ImporterCore& core, Import& imp, std::vector<uint32_t>& pages, Collector& out,
                  const Patience& patience) {
  if (pages.empty()) return 0;
  if (!std::is_sorted(pages.begin(), pages.end())) std::sort(pages.begin(), pages.end());
  if (pages.size() < Collector::kMinRun) {
    if (const ExclusiveAccess exclusive(core.enabled); exclusive.mine()) {
      send_and_protect(core, imp, pages, out);
      return pages.size();
    }
  }
  for (size_t done = 0;;) {
    {
      Guard views(imp.views.mu);
      while (done < pages.size() && !out.full()) {
        done += write_back_run(core, imp, std::span(pages).subspan(done), out);
      }
    }
    out.start_runs();
    if (done == pages.size() || !out.await_room(patience)) return done;
  }
}

void write_back_sorted(ImporterCore& core, Import& imp, std::span<const uint32_t> pages,
                       Collector& out) {
  Guard views(imp.views.mu);
  while (!pages.empty()) pages = pages.subspan(write_back_run(core, imp, pages, out));
}

}  // namespace cmi::memory

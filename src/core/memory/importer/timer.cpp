// What the timer takes home, and when it stops.
#include "core/memory/importer/timer.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/fetch.hpp"
#include "core/memory/importer/local_import.hpp"
#include "core/memory/importer/swap_fetch.hpp"
#include "core/memory/importer/write_back.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kAtOnce = 128;  // pages that are taken, before the timer looks for room and time

// Of a page that may be stored to meanwhile.
uint64_t hash_page(const std::byte* page) {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (size_t at = 0; at < kPageSize; at += sizeof(uint64_t)) {
    const auto word =
        __atomic_load_n(reinterpret_cast<const uint64_t*>(page + at), __ATOMIC_RELAXED);
    hash = (hash ^ word) * 0x100000001b3 + (hash >> 29);
  }
  return hash;
}
}  // namespace

void WriteBackTimer::report_acked_below() {
  if (!core_.traffic.acked_below_unreported.exchange(false)) return;
  for (auto& link : core_.links.those_that([](const fabric::Link&) { return true; })) {
    // Once more: there may be more than one message has room for, and it may have to wait.
    if (link->report_acked_below()) core_.traffic.acked_below_unreported.store(true);
    if (auto session = link->current(); session != nullptr) {
      link->pump(*session);
      session->endpoint().poll();
    }
  }
}

void WriteBackTimer::tick() {
  for (auto& s : core_.stranded.take_free()) {
    give_up_fetch(core_, s.import, s.pages.first, s.pages.count);
  }
  for (auto& link :
       core_.links.those_that([](const fabric::Link& l) { return l.has_detached(); })) {
    link->advance();
  }
  if (core_.losses.neighbours_due()) core_.losses.notify_importing_processes();
  if (fault_point_fails("no_aging") || mutated("mutate_timer_takes_nothing")) return;
  give_back_unused(core_);
  if (!core_.dirty.any()) return;
  share_.begin(now(), used());
  // The order changes with each tick, so that no import and neither kind of page takes the
  // whole share for ever.
  const size_t turn = turn_++;
  std::vector<std::shared_ptr<Import>> imports = core_.imports.all();
  if (!imports.empty()) {
    const size_t first = turn / 2 % imports.size();
    std::rotate(imports.begin(), imports.begin() + static_cast<ptrdiff_t>(first), imports.end());
  }
  for (auto& imp : imports) {
    // A home that does not answer is sent no more: what is stored again waits.
    if (imp->views.local.any_stored() && !imp->views.local.any_in_flight()) {
      announce_stores(core_, imp, LocalViews::Taker::kTimer);
    }
    if (!imp->cache.ready()) continue;
    DirtyPages& dirty = imp->dirty;
    dirty.contended.tick(dirty.listed.size() + dirty.hot.size(), dirty.listed.added(), now());
    if (turn % 2 == 0) take_aged(imp);
    take_hot(imp);
    if (turn % 2 != 0) take_aged(imp);
  }
  share_.end(used());
}

// Processor time, or with the fault point what a test takes for it: pages that are dear.
Nanos WriteBackTimer::used() const {
  return fault_point_fails("timer_pages_are_dear") ? static_cast<Nanos>(looked_at_) * 100 * kMicro
                                                   : thread_cpu_time();
}

bool WriteBackTimer::left() const { return share_.left(used()) || mutated("mutate_timer_unpaced"); }

// Whether other nodes store to the page as well, and it is being stored to just now.
bool WriteBackTimer::leaves(Import& imp, uint32_t index, Nanos t) {
  Page& p = imp.page(index);
  p.lock();
  const bool contended = p.heat.contended() || imp.dirty.contended.all();
  const auto content = [&] { return hash_page(imp.page_data(index)); };
  const bool wait = contended && p.state == PageState::kDirty &&
                    !imp.dirty.contended.due(index, p.generation, content, t);
  if (!wait && p.state == PageState::kDirty) p.heat.timer_takes();
  p.unlock();
  return wait;
}

// In turns, so that each has its own where the share does not reach for all.
void WriteBackTimer::take_hot(const std::shared_ptr<Import>& imp) {
  Collector out(core_, imp);
  std::vector<uint32_t> busy;
  const Nanos t = now();
  for (size_t rest = imp->dirty.hot.size(); rest > 0;) {
    if (out.link_full() || !left()) return;
    std::vector<uint32_t> pages = imp->dirty.hot.some(std::min(rest, kAtOnce));
    if (pages.empty()) return;
    rest -= pages.size();
    looked_at_ += pages.size();
    const bool all = imp->dirty.contended.all();
    if (all) std::erase_if(pages, [&](uint32_t index) { return leaves(*imp, index, t); });
    (void)send_hot(core_, *imp, pages, out, nullptr, &busy, all ? Which::kAll : Which::kDue);
  }
}

// Only pages that were dirty a tick ago: a store in a tight loop with write-backs must not starve.
void WriteBackTimer::take_aged(const std::shared_ptr<Import>& imp) {
  const size_t most = std::min(imp->dirty.listed.tick(), imp->dirty.contended.most());
  size_t rest = most;
  if (imp->dirty.none()) imp->dirty.contended.forget_all();
  if (rest == 0) return;
  // Some at a time, and none is taken that does not go: what is too much waits in the list, where a
  // barrier finds it, for the next tick.
  Collector out(core_, imp, core_.write_backs.begin(imp));
  const Nanos t = now();
  while (rest > 0 && !out.link_full() && left()) {
    std::vector<uint32_t> pages;
    imp->dirty.listed.take_aged(std::min(rest, kAtOnce), &pages);
    if (pages.empty()) break;
    rest -= pages.size();
    looked_at_ += pages.size();
    std::sort(pages.begin(), pages.end());
    std::vector<uint32_t> wait;
    std::erase_if(pages, [&](uint32_t index) {
      if (!leaves(*imp, index, t)) return false;
      wait.push_back(index);
      return true;
    });
    if (!wait.empty()) imp->dirty.listed.put_back(wait);
    write_back_sorted(core_, *imp, pages, out);
  }
  imp->dirty.contended.took(most - rest);
}

}  // namespace cmi::memory

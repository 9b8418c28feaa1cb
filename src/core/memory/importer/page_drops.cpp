// Taking pages out of use.
#include "core/memory/importer/page_drops.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/page_moves.hpp"
#include "core/memory/importer/write_back.hpp"
#include "core/memory/page/drop_decision.hpp"
#include "core/memory/page/page_mutations.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kDropRun = 512;      // pages locked at once
constexpr uint32_t kSubscribeSome = 4;  // a round of more pages changes none of them often

// Locks pages. Those that may be in a view lie in the range that is returned.
PageRange lock_pages(Import& imp, uint32_t first, uint32_t n) {
  uint32_t from = n, to = 0;
  for (uint32_t k = 0; k < n; ++k) {
    Page& p = imp.page(first + k);
    p.lock();
    if (!may_be_mapped(p.state)) continue;
    from = std::min(from, k);
    to = k + 1;
  }
  return from < to ? PageRange{first + from, to - from} : PageRange{first, 0};
}

// Whether an access of this process has to fetch it: nothing shows it, and nobody is fetching it.
bool must_be_fetched(PageState s) {
  return s == PageState::kAbsent || s == PageState::kZappedDirty || s == PageState::kZappedWriting;
}

// A page of a region that is in use otherwise, locked. What is cached no more may be released (rule
// 28). A page that this invalidation has dropped goes with it where that takes no message more.
void release_page(Import& imp, uint32_t index, PageState was, Invalidation* by) {
  Page& p = imp.page(index);
  if (was != PageState::kAbsent) by->found = true;
  if (!by->few_pages || !must_be_fetched(p.state)) return;
  if (was != PageState::kAbsent && !(by->to_home && imp.regions.known.in_use(region_of(index))))
    return;
  if (by->released.room() < ReleasedRegions::kItem) return;
  p.released = p.state == PageState::kAbsent || !mutated("mutate_zapped_not_released");
  ReleasedRegions::put(by->released, {index, ReleasedRegions::kPage});
}

// One of `together` pages, locked and in no view.
void invalidate_page(ImporterCore& core, Import& imp, uint32_t index, uint32_t together,
                     Collector& out, Invalidation* by) {
  Page& p = imp.page(index);
  const PageState was = p.state;
  if (was != PageState::kAbsent) ++p.generation;
  if (by != nullptr && p.heat.taken_early(was == PageState::kDirty)) {
    imp.dirty.contended.taken_away();
  }
  if (was == PageState::kClean && together <= kSubscribeSome) imp.subscribed.dropped(index);
  const DropDecision drop = decide_drop(p.state, p.in_flight, DropReason::kInvalidated);
  const bool left_out = (p.state == PageState::kFetching && mutated("mutate_fetching_forgotten")) ||
                        (p.state == PageState::kDirty && mutated("mutate_dirty_kept"));
  if (!left_out && drop.action == DropAction::kMove) set_state(core, imp, p, drop.to);
  if (!left_out && drop.action == DropAction::kWriteBack) {
    const size_t bytes =
        mutated("mutate_dirty_dropped") ? 0 : out.add(index, core.twins.at(p.twin));
    drop_twin(core, p);
    p.in_flight = bytes != 0;
    set_state(core, imp, p, bytes != 0 ? drop.to : PageState::kAbsent);
  }
  if (mutated("mutate_refetch_before_delivery")) mutation::forget_write_back(p);
  if (by != nullptr) release_page(imp, index, was, by);
}

// One of them, locked and in no view.
void drop_page(ImporterCore& core, Import& imp, uint32_t index, std::vector<uint32_t>* lost,
               std::vector<DirtyIntent>* intents) {
  Page& p = imp.page(index);
  if (p.state != PageState::kAbsent) ++p.generation;
  if (const uint8_t epoch = p.pinned ? 0 : p.intent.drop(); epoch != 0) {
    intents->push_back({index, epoch});
  }
  const DropDecision drop = decide_drop(p.state, p.in_flight, DropReason::kEnded);
  if (drop.action == DropAction::kKeep) return;
  if (drop.action == DropAction::kLose) {
    if (std::memcmp(imp.page_data(index), core.twins.at(p.twin), kPageSize) != 0) {
      lost->push_back(index);
    }
    drop_twin(core, p);
  }
  set_state(core, imp, p, drop.to);
}
}  // namespace

void drop(ImporterCore& core, const std::shared_ptr<Import>& imp, PageRange range,
          Invalidation* by) {
  while (range.count > 0) {
    const uint32_t region = region_of(range.first);
    const uint32_t n = std::min(range.count, (region + 1) * kRegionPages - range.first);
    uint32_t epoch = 0;
    if (by->released.room() < ReleasedRegions::kItem ||
        !imp->regions.known.release(region, &epoch)) {
      invalidate(core, imp, {range.first, n}, by);
    } else if (epoch != 0) {
      ReleasedRegions::put(by->released, {region, epoch});
    }
    range.first += n;
    range.count -= n;
  }
}

void invalidate(ImporterCore& core, const std::shared_ptr<Import>& owner, PageRange range,
                Invalidation* by) {
  Import& imp = *owner;
  Collector out(core, owner);
  Guard views(imp.views.mu);
  const uint32_t end = range.first + range.count;
  for (uint32_t first = range.first, n = 0; (first = next_touched(imp, first + n, end)) < end;) {
    n = std::min(kDropRun, end - first);
    const PageRange mapped = lock_pages(imp, first, n);
    // Zapped before anything else is decided: from here on the pages are stable (rule 9).
    if (mapped.count > 0 && !mutated("mutate_keep_on_invalidate")) {
      zap_everywhere(imp, mapped.first, mapped.count);
    }
    for (uint32_t k = 0; k < n; ++k) invalidate_page(core, imp, first + k, range.count, out, by);
    for (uint32_t k = 0; k < n; ++k) imp.page(first + k).unlock();
  }
  imp.changes.notify();
}

void drop_pages(ImporterCore& core, Import& imp, PageRange range, std::vector<uint32_t>* lost,
                std::vector<DirtyIntent>* intents) {
  Guard views(imp.views.mu);
  const uint32_t end = range.first + range.count;
  for (uint32_t first = range.first, n = 0; (first = next_touched(imp, first + n, end)) < end;) {
    n = std::min(kDropRun, end - first);
    const PageRange mapped = lock_pages(imp, first, n);
    if (mapped.count > 0) zap_everywhere(imp, mapped.first, mapped.count);
    for (uint32_t k = 0; k < n; ++k) {
      drop_page(core, imp, first + k, lost, intents);
      imp.page(first + k).unlock();
    }
  }
}

// What was not home yet is lost. A write-back stands for it meanwhile, so that a barrier that no
// longer finds the pages dirty waits for the loss to be known (rule 8).
void drop_all(ImporterCore& core, const std::shared_ptr<Import>& owner) {
  Import& imp = *owner;
  auto write_back = core.write_backs.begin(owner);
  std::vector<uint32_t> lost;
  std::vector<DirtyIntent> intents;
  drop_pages(core, imp, {0, imp.pages}, &lost, &intents);
  if (!lost.empty()) {
    write_back->failed.store(true);
    core.losses.lose(owner, lost);
  }
  // A home that has given us up, or is gone, has none of them any more.
  if (!intents.empty() && imp.grant.state() != ImportState::kGone)
    give_back_intents(*owner, intents);
  imp.changes.notify();
  end_part(core, write_back);
}

}  // namespace cmi::memory

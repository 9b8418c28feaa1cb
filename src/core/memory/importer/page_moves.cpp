// What faults, write-backs and notifications do to single pages, under their locks.
#include "core/memory/importer/page_moves.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/importer_mutations.hpp"

namespace cmi::memory {

[[gnu::hot]] void set_state(ImporterCore& core, Import& imp, Page& page, PageState to) {
  const bool was_absent = page.state == PageState::kAbsent;
  if (was_absent != (to == PageState::kAbsent)) {
    const uint32_t region = region_of(imp.cache.index_of(page));
    was_absent ? imp.regions.known.enter(region) : imp.regions.known.leave(region);
    if (was_absent && !page.backed) {
      page.backed = true;
      imp.cache.use.back_one();
    }
  }
  const bool was_dirty = page.state == PageState::kDirty;
  page.move(to);
  const bool is_dirty = to == PageState::kDirty;
  if (!may_be_mapped(to)) page.heat.taken_away(was_dirty);
  assert(is_dirty || !page.heat.hot());  // or the next store enters no list (rule 27)
  if (is_dirty && !was_dirty) core.dirty.dirtied();
  if (was_dirty && !is_dirty) core.dirty.cleaned_one();
}

void drop_twin(ImporterCore& core, Page& page) {
  core.twins.give(page.twin);
  page.twin = 0;
}

bool add_twin(ImporterCore& core, const View& view, uint32_t index) {
  // Under the page's lock; the page is write-protected or in no view, so its content is stable
  // while the twin is copied (rule 4).
  Import& imp = *view.import;
  Page& page = imp.page(index);
  const uint32_t twin = core.twins.take();
  if (twin == 0) return false;
  if (mutated("mutate_twin_late")) mutation::open_without_twin(core.userfault, view, index);
  std::memcpy(core.twins.at(twin), imp.page_data(index), kPageSize);
  page.twin = twin;
  set_state(core, imp, page, PageState::kDirty);
  if (imp.dirty.hot.has_room() && !fault_point_fails("never_hot") && page.heat.stored()) {
    imp.dirty.hot.add(index);
  } else if (!page.listed) {
    page.listed = true;
    imp.dirty.listed.add(index);
  }
  fault_point("store_before_unprotect");
  return true;
}

bool make_dirty(ImporterCore& core, const View& view, uint32_t index) {
  if (!add_twin(core, view, index)) return false;
  Import& imp = *view.import;
  imp.page(index).swaps.used();
  if (imp.subscribed.any()) imp.subscribed.stored_to(index);  // it takes no more updates (rule 25)
  return true;
}

void protect_everywhere(ImporterCore& core, Import& imp, uint32_t first, uint32_t n) {
  if (mutated("mutate_protect_missing")) return;
  for (auto& v : imp.views.list) {
    core.userfault.protect(v->addr + size_t{first} * kPageSize, size_t{n} * kPageSize);
  }
}

void zap_everywhere(Import& imp, uint32_t first, uint32_t n) {
  for (auto& v : imp.views.list) zap(v->addr + size_t{first} * kPageSize, size_t{n} * kPageSize);
}

[[gnu::hot]] void zap_if_over(const Import& imp, const View& view, PageRange pages) {
  if (!imp.lease.is_over()) [[likely]]
    return;
  zap(view.addr + size_t{pages.first} * kPageSize, size_t{pages.count} * kPageSize);
}

uint32_t next_touched(const Import& imp, uint32_t first, uint32_t end) {
  if (fault_point_fails("all_touched")) return first;
  while (first < end && imp.regions.known.untouched(region_of(first))) {
    const uint64_t next = (uint64_t{region_of(first)} + 1) * kRegionPages;
    first = static_cast<uint32_t>(std::min<uint64_t>(next, end));
  }
  return first;
}

[[gnu::hot]] void count_fetched(ImporterCore& core, Import& imp, uint32_t pages) {
  count(core.parts.stats.pages_fetched, pages);
  count(core.parts.stats.bytes_fetched, size_t{pages} * kPageSize);
  count(imp.stats.bytes_fetched, size_t{pages} * kPageSize);
}

}  // namespace cmi::memory

// What faults do to a page under its lock, and the ways to them: see fault.hpp, fetch.hpp. Runs in
// the SIGBUS handler, all signals blocked.
#include <cassert>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/fault.hpp"
#include "core/memory/importer/importer_mutations.hpp"

namespace cmi::memory {

[[gnu::hot]] void Importer::set_state(Import& imp, Page& page, PageState to) {
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

bool Importer::make_dirty(const View& view, uint32_t index) {
  // Under the page's lock; the page is write-protected or in no view, so its content is stable
  // while the twin is copied (rule 4).
  Import& imp = *view.import;
  Page& page = imp.page(index);
  const uint32_t twin = twins_.take();
  if (twin == 0) return false;
  if (mutated("mutate_twin_late")) mutation::open_without_twin(userfault_, view, index);
  std::memcpy(twins_.at(twin), imp.page_data(index), kPageSize);
  page.twin = twin;
  set_state(imp, page, PageState::kDirty);
  if (imp.dirty.hot.has_room() && !fault_point_fails("never_hot") && page.heat.stored()) {
    imp.dirty.hot.add(index);
  } else if (!page.listed) {
    page.listed = true;
    imp.dirty.listed.add(index);
  }
  fault_point("store_before_unprotect");
  return true;
}

std::optional<PageSeen> Importer::snapshot(const View& view, const std::byte* addr,
                                           uint64_t cleaned) const {
  Page& page = view.import->page(static_cast<size_t>(addr - view.addr) / kPageSize);
  page.lock();
  const PageSeen seen = page.seen();
  page.unlock();
  // Whatever was done to the page before it was locked here has been counted by now.
  if (cleaned != this->cleaned()) return std::nullopt;
  return seen;
}

[[gnu::hot]] Exception Importer::serve(const View& view, const std::byte* addr, bool write,
                                       const PageSeen* seen, Deadline deadline) {
  return Fault(*this, view, addr, write, seen, deadline).serve();
}

}  // namespace cmi::memory

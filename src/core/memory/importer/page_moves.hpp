// What faults, write-backs and notifications do to single pages. Any thread, the fault handler
// included.
#pragma once

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

// The page's lock is held. Keeps the counts: dirty pages, cached pages of the region, pages that
// take memory.
void set_state(ImporterCore& core, Import& imp, Page& page, PageState to);
void drop_twin(ImporterCore& core, Page& page);
// Takes a twin of the page, which is dirty from then on. False: there is no memory for a twin.
bool add_twin(ImporterCore& core, const View& view, uint32_t index);
// The same, for a store: a subscription to the page ends.
bool make_dirty(ImporterCore& core, const View& view, uint32_t index);

// In all views of the import; the pages are locked.
void protect_everywhere(ImporterCore& core, Import& imp, uint32_t first, uint32_t n)
    CMI_REQUIRES(imp.views.mu);
void zap_everywhere(Import& imp, uint32_t first, uint32_t n) CMI_REQUIRES(imp.views.mu);

// After pages were mapped in a view, still under their locks: a thread that was stopped between its
// look at the lease and that has had its alarm (vm/lease_alarm.hpp) before they were.
void zap_if_over(const Import& imp, const View& view, PageRange pages);

void count_fetched(ImporterCore& core, Import& imp, uint32_t pages);

// From this page on, the first one of a region that was ever touched; `end`: there is none before.
// Pages of other regions are absent, and their part of the table takes no memory.
uint32_t next_touched(const Import& imp, uint32_t first, uint32_t end);

}  // namespace cmi::memory

// Stores in order: pages behind one that is stored to are made writable with it. Runs in the SIGBUS
// handler, all signals blocked, no page locked.
#pragma once

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

// Makes pages at the front of a range writable, up to the first page that is not ready for a store.
// The dirty intents of all pages of the range must be in force (rule 21). Returns how many pages;
// 0: the first page has changed since it was looked at. The dirty intents of the other pages are
// given back. The first page keeps its own, since its store is tried again. `seen`: see
// FaultService::serve(). *readahead: see Page::marker.
uint32_t dirty_ahead(ImporterCore& core, const View& view, PageRange pages, const PageSeen* seen,
                     bool* readahead);

}  // namespace cmi::memory

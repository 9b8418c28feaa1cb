// Stores in order: pages behind one that is stored to are made writable with it. Runs in the SIGBUS
// handler, all signals blocked, no page locked.
#pragma once

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

// The pages at the front of a range whose turn it is are made writable: their dirty intents are
// held (rule 21), and nothing is in the way of a store to them. Returns how many, 0 where the first
// is another one by now. The dirty intents of the others are given back, but for the first page's,
// whose store is tried again. `seen`: see FaultService::serve(). *readahead: see Page::marker.
uint32_t dirty_ahead(ImporterCore& core, const View& view, PageRange pages, const PageSeen* seen,
                     bool* readahead);

}  // namespace cmi::memory

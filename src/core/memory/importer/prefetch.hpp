// Fetching ahead of loads and stores that go on in order, and what a client asks for: reads that
// nobody waits for yet. Runs in the SIGBUS handler, or in a call; all signals blocked, no page
// locked.
#pragma once

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

inline constexpr uint32_t kMostAsked = 4096;  // pages of one call: 16 reads of 1 MiB

// Takes the absent pages at the front of a range, which become kFetching; those behind the first
// that is not absent, or that the home must be asked about, are left. Passes over pages in front of
// them if asked to.
PageRange claim(ImporterCore& core, Import& imp, PageRange range, bool pass_over);
// A reader has come to `page`, or with `write` a thread that stores.
void read_ahead(ImporterCore& core, const View& view, uint32_t page, bool write, Deadline deadline);
// A client will load these pages of the import: the absent ones among the first kMostAsked.
void fetch_asked(ImporterCore& core, const View& view, PageRange range, Deadline deadline);
// Waits for a while for the read that brings this page. False: none does.
bool await_ahead(Import& imp, uint32_t page, Deadline deadline);

}  // namespace cmi::memory

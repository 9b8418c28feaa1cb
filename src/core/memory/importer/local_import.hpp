// Imports whose home is on the same machine: how they get the home's pages, how they publish what
// they have stored there, and how they end or go on over the network.
#pragma once

#include <optional>

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

// Before the first view of an import: its pages are to be mapped, and the first access will ask the
// home for them. False: they are cached, and the trace says why where the library was to map them.
bool begin_local(ImporterCore& core, Import& imp);

// Of a local import without a grant in force: asks the home for one. None: it was granted, or the
// import is a local one no more; the access tries again. Faults call it.
std::optional<Exception> join_local(ImporterCore& core, const std::shared_ptr<Import>& owner,
                                    Deadline deadline);

// The home is told which pages were stored to, and has the others drop them: a write-back without
// bytes. Nothing is said where nobody caches any, and a barrier or the timer asks. Any thread; does
// not wait.
void announce_stores(ImporterCore& core, const std::shared_ptr<Import>& imp,
                     LocalViews::Taker taker = LocalViews::Taker::kOther);

// Nothing is accessed any more. `lost`: what was stored and is not announced was in memory that
// nobody has any more; else it is announced. A write-back of the import is open.
void end_local(ImporterCore& core, const std::shared_ptr<Import>& imp, bool lost);

}  // namespace cmi::memory

// atm_cas in mapped pages: one instruction of the processor, and then third nodes hear of it
// (protocol rule 30). Application threads; waits for the home only where some node caches pages.
#pragma once

#include <optional>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/pending_swaps.hpp"

namespace cmi::memory {

// What the import's token and so on allow has been looked at, and is looked at again. None: it
// cannot be made here, and the home has to make it. kTransient with `pending->made`: it has been
// made, and not everybody has heard of it in time; await_heard() goes on waiting.
std::optional<Exception> swap_in_place(ImporterCore& core, const std::shared_ptr<Import>& owner,
                                       uint64_t offset, uint64_t expected, uint64_t desired,
                                       uint64_t* found, PendingSwap* pending, Deadline deadline);
Exception await_heard(ImporterCore& core, const std::shared_ptr<Import>& owner, uint64_t* found,
                      PendingSwap* pending, Deadline deadline);

}  // namespace cmi::memory

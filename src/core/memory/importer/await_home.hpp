// Waiting for what a home owes. Application threads, no page locked.
#pragma once

#include <vector>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/patience.hpp"

namespace cmi::memory {

// Until the operation is done, if need be because the home has died. False: not in time.
bool await(ImporterCore& core, Import& imp, fabric::Op& op, Deadline deadline);
// A home that lives and yet does not answer, as far as the watch can tell, must not be waited for
// without end: what it owes is given up.
bool await(ImporterCore& core, Import& imp, fabric::Op& op, const Patience& patience);
// False: not in time, or something of it was lost.
bool await(ImporterCore& core, WriteBack& write_back, const Patience& patience);
bool await(ImporterCore& core, const std::vector<WriteBackPtr>& write_backs,
           const Patience& patience);

}  // namespace cmi::memory

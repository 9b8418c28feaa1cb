// What counts against mem_max, and memory for segments' files.
// Threads: any; what is called _locked under the exclusive lock.
#pragma once

#include "core/base/status.hpp"
#include "core/node/registry.hpp"

namespace cmi::node {

// Bytes that count against mem_max.
uint64_t charged_locked(Registry& r);
// Whether so many more may count, as far as the reservation does not have them.
bool fits_locked(Registry& r, uint64_t charged, uint64_t max, uint64_t reservation = 0);
// Memory for a segment's file, out of its reservation as far as that holds any. Takes the lock.
Status allocate(Registry& r, int fd, uint64_t from, uint64_t to, uint64_t reservation);

}  // namespace cmi::node

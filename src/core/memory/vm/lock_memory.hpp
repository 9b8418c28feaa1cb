// CMI_SEG_LOCK: memory of a segment that is not to be swapped out. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/status.hpp"

namespace cmi::memory {

// Memory that has been set aside, in the process that made the segment, through its service view:
// so all of it stays where it is, whoever touches it, and counts once against one process's limit.
// Nothing for a segment without the flag. kPerm, kNoMem: the limit (ulimit -l).
Status lock_memory(int32_t flags, void* service, size_t len);

// Without memory set aside there is nothing to lock yet: a view then locks what is touched through
// it, in every process that attaches.
Status lock_when_touched(int32_t flags, void* view, size_t len);

}  // namespace cmi::memory

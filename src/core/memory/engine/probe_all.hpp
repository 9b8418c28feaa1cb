// Which peers that share a segment with this context cannot be reached: all are asked, and of those
// that do not answer, the node's own network is: a process that is stopped, or gone, still has a
// node that answers.
// Runs on a thread that may wait, with no lock held.
#pragma once

#include <atomic>
#include <vector>

#include "core/memory/engine/engine.hpp"

namespace cmi::memory {

// Ends early, with what is known, when *stop.
std::vector<access::NaddrInfo> unreachable_peers(Engine& engine, Deadline deadline,
                                                 const std::atomic<bool>& stop);

}  // namespace cmi::memory

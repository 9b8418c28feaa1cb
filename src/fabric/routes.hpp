// Which listener of a home is best reached from which of ours.
// Pure but for looking at this machine's interfaces and routes; any thread, not the fault handler.
#pragma once

#include <utility>
#include <vector>

#include "fabric/fabric.hpp"

namespace cmi::fabric {

enum class SameMachine : uint8_t { kNo, kYes, kUnknown };

// Pairs of listeners of one provider, ours first, by their places in the lists; the best pair
// first:
//  - on one machine loopback before all else;
//  - then by our list, whose owner names the better provider first, one provider after the other;
//  - of one provider, listeners in one subnet before those that the kernel routes to from ours,
//  these
//    before others; what it has no way to comes last of all.
// Left out is what cannot be: no address of the provider's kind; on another machine its loopback,
// and an address that this machine has as well.
// Empty: *why says why none can be.
std::vector<std::pair<size_t, size_t>> routes_between(const std::vector<ListenerAddress>& ours,
                                                      const std::vector<ListenerAddress>& theirs,
                                                      SameMachine same, const char** why);

}  // namespace cmi::fabric

// Asking the process that made a segment of this node to quiesce or resume it, over the bus: for
// programs that are members of a node without a context, such as administrators' tools.
#pragma once

#include <cstdint>

#include "core/base/clock.hpp"
#include "core/node/node.hpp"

namespace cmi::node {

// The datagram: u8 what, i32 segment, u64 question, u64 a, u64 b. Of kBusQuiesce a is 1 to quiesce,
// 0 to resume; it is answered with the Status in a, once every client has returned the event.
inline constexpr uint8_t kBusQuiesce = 32;

// Waits for the answer. kInval: no such segment, removed, or a proxy. kReconfig: no answer by the
// deadline; a quiesce has begun all the same. Takes datagrams off the node's bus, so nobody else
// may be receiving there.
Status ask_quiesce(Node& node, int32_t segment, bool on, Deadline deadline);

}  // namespace cmi::node

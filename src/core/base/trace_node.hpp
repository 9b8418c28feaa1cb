// The node that trace lines name: known once a context has joined it.
#pragma once

#include <cstdint>

namespace cmi {

// 0: none. Any thread.
void set_trace_node(uint64_t node);

}  // namespace cmi

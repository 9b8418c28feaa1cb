// CMI_CTL_NODE_ADDR_CMP. Any thread; reads and writes the client's memory, so no lock may be held
// and signals must be as the client left them.
#pragma once

#include <cmi.h>

#include "core/base/status.hpp"

namespace cmi::api {

// Which of cfg's addresses are of the same node as the one to look for. Writes the indexes and
// their number only if every address is valid. kInval: one is not, or a pointer is null.
Status compare_nodes(cmi_ctl_cfg* cfg);

}  // namespace cmi::api

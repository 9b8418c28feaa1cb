// Which of this machine's addresses the fabric binds to. Set-up only; any thread.
#pragma once

#include <string>

#include "core/base/status.hpp"

namespace cmi::fabric::ofi {

// Turns what CMI_ADDRESS says (nothing, an address, an interface, "auto") into a numeric address of
// this machine. kInval, with a trace line, when it is none.
Result<std::string> local_address(const std::string& wish);

}  // namespace cmi::fabric::ofi

// Which of this machine's addresses the fabric binds to. Set-up only; any thread.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.hpp"

namespace cmi::fabric::ofi {

// Turns what CMI_ADDRESS says (nothing, an address, an interface, "auto") into a numeric address of
// this machine. kInval, with a trace line, when it is none.
Result<std::string> local_address(const std::string& wish);

// Where other machines may reach this one, numeric: first what local_address("auto") gives, then
// one address of each family for each interface that has a device (of each, where none has one: in
// a container); and last loopback, for those on this machine. kInval: there is nothing but
// loopback.
Result<std::vector<std::string>> reachable_addresses();

}  // namespace cmi::fabric::ofi

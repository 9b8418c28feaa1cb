// The end of a choice: of the providers that come into question, the first that keeps what it says.
// Set-up only; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/ofi/domain.hpp"
#include "fabric/ofi/info.hpp"

namespace cmi::fabric::ofi {

// Of `found`, in its order. `config` says whether a provider was asked for by name, and which have
// been tried; `address` is for the trace. The errors are those of open_fabric().
Result<std::unique_ptr<Fabric>> open_first(std::vector<Info> found, const Config& config,
                                           const std::string& address, OfiFabric::Opener opener);

}  // namespace cmi::fabric::ofi

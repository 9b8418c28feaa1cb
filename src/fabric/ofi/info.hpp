// Which providers come into question, in order of preference, and libfabric's description of each.
// Set-up only; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/ofi/loader.hpp"

namespace cmi::fabric::ofi {

struct FreeInfo {
  void operator()(fi_info* i) const { libfabric()->freeinfo(i); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// At most one entry for each provider name; empty when the machine has none. `provider` as in
// Config; `address` a numeric local one; `lib` what is asked, which a test may stand in for.
std::vector<Info> candidates(const std::string& provider, const std::string& address,
                             const Libfabric& lib);

}  // namespace cmi::fabric::ofi

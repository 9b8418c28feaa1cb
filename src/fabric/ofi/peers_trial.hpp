// Whether messages survive the ends of peers, tried in processes of their own: a provider that
// crashes or does not return does so there. For providers that are known for it and were asked for
// by name. Set-up only; any thread. It lasts seconds at most, and leaves nothing behind.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fabric/fabric.hpp"

namespace cmi::fabric::ofi {

// In the processes of the trial. Where endpoints are files, they are named after this: an address
// that each process has for itself.
using OpenForTrial = std::function<Result<std::unique_ptr<Fabric>>(const std::string& own)>;

// What failed first, for a trace line; null: nothing. Messages alone are tried: between two
// processes, and with a third while a peer is killed, closes its endpoint, or is stopped.
const char* what_fails_at_peers_ends(const OpenForTrial& open);

}  // namespace cmi::fabric::ofi

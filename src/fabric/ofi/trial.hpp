// What a provider really does, as opposed to what it advertises: a few operations between two
// endpoints of this process. Set-up only; any thread.
#pragma once

#include "fabric/fabric.hpp"

namespace cmi::fabric::ofi {

// Of endpoints that are opened only to be looked at.
class NobodyListens final : public Receiver {
  void on_message(Endpoint&, Bytes) override {}
};

struct Findings {
  bool cas = false;  // a swap was exact and visible to this CPU
};

// kNotSupp, with a trace line, where bytes do not arrive or a key opens something after its
// registration was closed. `may_cas`: the endpoint says that it has the operation.
Result<Findings> try_out(Fabric& fabric, bool may_cas);

}  // namespace cmi::fabric::ofi

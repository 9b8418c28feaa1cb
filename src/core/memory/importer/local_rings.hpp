// How a link to a home of this machine gets its rings: their descriptors go the way of those of a
// segment, to the bus socket of the home (doc/design/local.md).
#pragma once

#include <string>
#include <utility>

#include "core/base/ids.hpp"
#include "fabric/ring/dialer.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

class LocalRings final : public fabric::ring::Dialer {
 public:
  // The home is in that slot of that folder. `server`: of this context; it listens to the home.
  LocalRings(fabric::Server& server, ContextId home, std::string folder, uint32_t slot)
      : server_(server), home_(home), folder_(std::move(folder)), slot_(slot) {}

  bool dial(const fabric::ring::Proof& proof, fabric::ring::Channel::Passed requests,
            fabric::ring::Channel::Made notifications) override;
  fabric::ring::Sockets* sockets() override { return &server_.ring_sockets(); }

 private:
  fabric::Server& server_;
  const ContextId home_;
  const std::string folder_;
  const uint32_t slot_;
};

}  // namespace cmi::memory

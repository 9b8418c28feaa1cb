// How a link whose home is on the same machine gets rings to it (channel.hpp). The fabric knows no
// way to pass descriptors: who made the link does.
#pragma once

#include <cstdint>

#include "core/base/ids.hpp"
#include "fabric/ring/channel.hpp"

namespace cmi::fabric::ring {

// Which session of the home's the rings are for. The secret proves it: nobody else has it.
struct Proof {
  ContextId client;
  uint64_t secret = 0;
};

class Dialer {
 public:
  virtual ~Dialer() = default;
  // With the link's lock held; does not wait. Passes the descriptors of both to the home, with the
  // proof, and keeps the channel of notifications, which the context's server is to listen to.
  // False: they could not be passed. Whether the home takes them is known when it sends something
  // by the other one.
  virtual bool dial(const Proof& proof, Channel::Passed requests, Channel::Made notifications) = 0;
  // Where the channels are listed: Channel::make().
  virtual Sockets* sockets() { return nullptr; }
};

}  // namespace cmi::fabric::ring

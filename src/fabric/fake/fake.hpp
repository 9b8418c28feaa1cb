// A fabric inside one process that really works: nodes are Fabrics made by one FakeNet, and what
// they do to each other follows the contract of fabric.hpp and nothing more. For tests only;
// open_fabric never returns it. Threads: any.
#pragma once

#include <memory>

#include "fabric/fabric.hpp"

namespace cmi::fabric {

// How the fake differs from the most convenient provider. All of it is within the contract.
struct FakeModes {
  bool cas = true;
  bool wait_fd = true;
  bool ordered = true;             // false: messages overtake writes, and operations each other
  bool virtual_addresses = false;  // RemoteKey::base is an address
  bool provider_keys = false;      // wanted keys are ignored
  bool bound_regions = false;      // a key opens its memory at one endpoint of its node only
  bool breaks_link = true;  // a refused operation takes those to the same peer with it (net, rxm)
  bool one_sided = false;   // what is not a message runs though nobody polls the target
  bool late_writes = true;  // what a closed endpoint had sent may still arrive
  bool cheap_regions = true;
  bool ip_addresses = false;  // of this machine, so that there are lifelines
  size_t max_message = kMaxMessage;
  size_t max_rma = size_t{64} << 20;
  size_t inject = 128;      // bytes of the longest message that is injected
  size_t posts = SIZE_MAX;  // reads and writes that an endpoint takes; more fail
  size_t queue = 256;       // operations in flight of one endpoint; more get kAgain
};

// What has gone over a net since it was made.
struct FakeTraffic {
  uint64_t messages = 0, one_sided = 0;  // one-sided: reads, writes and atomics
  uint64_t bytes = 0;                    // of all of them
};

class FakeNet {
 public:
  static std::shared_ptr<FakeNet> make(const FakeModes& modes);
  virtual ~FakeNet() = default;

  // A new node. It keeps the net alive.
  virtual std::unique_ptr<Fabric> open() = 0;

  // Faults, by address of an endpoint. What is unknown is ignored.
  virtual void kill(Bytes endpoint) = 0;    // gone: what is in flight ends, new posts get kAgain
  virtual void vanish(Bytes endpoint) = 0;  // silent for ever: nothing toward it completes
  virtual void stop(Bytes endpoint) = 0;    // silent until resumed; nothing is lost
  virtual void resume(Bytes endpoint) = 0;
  virtual void cut(Bytes one, Bytes other) = 0;  // nothing passes between the two until healed
  virtual void heal(Bytes one, Bytes other) = 0;
  // Fails and ends what is in flight between the two, as a reset of their connection does. Later
  // operations work.
  virtual void reset(Bytes one, Bytes other) = 0;
  virtual void lose_messages(Bytes to, int count) = 0;  // the next ones complete and never arrive

  virtual FakeTraffic traffic() = 0;
};

}  // namespace cmi::fabric

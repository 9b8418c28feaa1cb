// Sends direct acknowledgements (protocol rule 26) from our listeners to initiating endpoints of
// clients of other homes. Homes name these addresses in their notifications, so the number of
// addresses that are kept is bounded.
// Invariants:
//  1. Each address that is kept is in the address book of its listener, once.
//  2. At most kMostAddresses are kept. One that was used within kAddressStays makes no room for
//     another.
// Threads: any.
#pragma once

#include <vector>

#include "core/base/clock.hpp"
#include "core/base/lock.hpp"
#include "fabric/listener_ports.hpp"
#include "fabric/lock_order.hpp"

namespace cmi::fabric {

class DirectAckSender {
 public:
  static constexpr size_t kMostAddresses = 64;
  static constexpr Nanos kAddressStays = kSecond;

  explicit DirectAckSender(ListenerPorts& ports) : ports_(ports) {}

  // From our listener `index`, at the time `t`. True: over a connection that has carried one
  // before, so no report to the home is needed as well.
  bool send(Bytes to, size_t index, const Frame& frame, Nanos t);
  // Drops addresses that have not been used for longer than `silence`.
  void sweep(Nanos silence, Nanos t);
  size_t addresses();

 private:
  struct Address {
    std::vector<std::byte> bytes;
    size_t index = 0;
    Peer peer{};
    Nanos used = 0;
  };
  Address* find_or_add(Bytes to, size_t index, Nanos t) CMI_REQUIRES(mu_);

  ListenerPorts& ports_;
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_sessions)
      CMI_ACQUIRED_BEFORE(lock_order::after_tables);
  std::vector<Address> addresses_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::fabric

// The homes whose notifications a Server takes, and where its acknowledgements go.
// Invariant: each home that is listed has been added to the address book of one listener, once.
// Threads: any.
#pragma once

#include <map>
#include <optional>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/listener_ports.hpp"
#include "fabric/lock_order.hpp"

namespace cmi::fabric {

class KnownHomes {
 public:
  explicit KnownHomes(ListenerPorts& ports) : ports_(ports) {}

  // `address`: where the home listens; our listener `index` reaches it. `secret`: what the home's
  // notifications must carry. For a home that is listed already: its new address and secret.
  Status add(const ContextId& home, Bytes address, uint64_t secret, size_t index);
  // Whether a notification with this secret is from this home.
  bool vouches_for(const ContextId& home, uint64_t secret);
  // Our listener that reaches the home.
  std::optional<size_t> listener_of(const ContextId& home);
  // To the home, if it is listed.
  void send(const ContextId& home, const Frame& frame);

 private:
  struct Home {
    size_t index = 0;
    Peer peer{};
    uint64_t secret = 0;
  };
  ListenerPorts& ports_;
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_sessions)
      CMI_ACQUIRED_BEFORE(lock_order::after_tables);
  std::map<ContextId, Home> homes_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::fabric

// What the service thread knows of a peer: of a home that we import from, of an importer of ours,
// or both. Threads: the service thread.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/base/clock.hpp"
#include "core/node/node_types.hpp"
#include "fabric/fabric.hpp"

namespace cmi::memory {

// When a lifeline that was lost is tried again: first at once, then ever more rarely.
struct LineRetry {
  static constexpr Nanos kFirstPause = 5 * kMilli, kLastPause = kSecond;

  Nanos at = 0, pause = 0;
  bool lost = false;

  void lose(Nanos t) {
    if (!lost) at = t;
    lost = true;
  }
  void next(Nanos t) {
    pause = std::clamp(2 * pause, kFirstPause, kLastPause);
    at = t + pause;
  }
};

struct PeerRecord {
  // Both have a constructor of their own: clang takes what has only initialised members for
  // something that std::optional cannot make before the class is complete.
  struct AsHome {  // we import from it
    AsHome() {}    // NOLINT(modernize-use-equals-default): see above
    NodeId node;
    fabric::ListenerAddress listener;      // the one that its line goes to, or tries
    size_t tries = 0;                      // for a line since there was one
    std::set<std::vector<std::byte>> met;  // listeners where it has answered, or its line was up
    Nanos try_link_from = 0;               // not before: the link is asked for a sign
    uint16_t port = 0;
    uint64_t secret = 0;
    Nanos up_since = 0, heard = 0;  // of the line; 0: it is not up
    Nanos lease = 0;                // 0: it has never vouched for us
    Nanos asked = 0, vouched = 0;   // the last heartbeat, and the last one that was vouched for
    bool lease_expired = false;
    LineRetry retry;
  };
  struct AsImporter {  // it imports from us
    AsImporter() {}    // NOLINT(modernize-use-equals-default): see above
    bool greeted = false;
    uint16_t listener_port = 0;
    std::optional<node::ContextSlot> slot;  // it is of our node
    Nanos listener_probed = 0;
    LineRetry retry;
  };

  // At least one of the two is set.
  std::optional<AsHome> home;
  std::optional<AsImporter> importer;
  bool notified_unreachable = false;

  // The line is tried at an address where the home was never met: another process may be there.
  bool in_doubt() const {
    return home && home->retry.lost && !home->met.contains(home->listener.blob);
  }
};

}  // namespace cmi::memory

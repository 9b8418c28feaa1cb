// What the engine reports of peers and stores: peers that ended, losses, quiesced segments. The
// client's events are made of it (src/events).
//
// Calls come from any thread, the fault handler included, with no lock of the engine held but those
// that only application threads take over a wait (TokenInUse::mu, RegionClaims::mu). So an
// implementation takes nothing but a leaf lock, does not wait, does not call back, and calls
// nothing of the client's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/access/handles.hpp"

namespace cmi::memory {

class Observer {
 public:
  virtual ~Observer() = default;

  // A context that had imported these segments of ours has ended, or was cut off. It is fenced, and
  // what it left in flux is settled. At least one segment, none that is marked for deletion.
  virtual void importer_down(const access::NaddrInfo& who, std::vector<int32_t> segments) = 0;
  // The same for a context that these segments were imported from.
  virtual void home_down(const access::NaddrInfo& who, std::vector<int32_t> segments) = 0;
  // Stores to these pages of an import will never be at home, and the import is closed until it has
  // a new token. `local`: this side's provider or device failed.
  virtual void stores_lost(int32_t segment, std::vector<uint32_t> pages, bool local) = 0;
  // No way leads to this peer, as far as we can tell; comes before it is down, if it will be.
  virtual void unreachable(const access::NaddrInfo& who) = 0;
  // The client is to stop using a segment; `returned` is called once it says that it has, on the
  // thread that says so.
  virtual void quiesced(int32_t segment, std::function<void()> returned) = 0;
  virtual void resumed(int32_t segment) = 0;
};

}  // namespace cmi::memory

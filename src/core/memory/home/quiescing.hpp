// Quiescing segments of this node: their clients are asked to stop, here and wherever they are
// imported, and seg_at refuses them until they are resumed. Rounds are numbered, so that what comes
// late is recognized. Nothing here waits for a client. The home's own client hears of each change
// when all importers have taken it in, or are dead: what it then does finds the change everywhere.
#pragma once

#include <functional>

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

// Notifies one importer of the state as it is, as a part of the round.
void notify_quiesce(HomeCore& home, Segment& s, Sharer& h, const RoundPtr& p) CMI_REQUIRES(home.mu);
// Runs what waited for the clients if none owes anything any more. Under HomeCore::mu.
void complete_quiesce(Segment& s, Finished* done);

class Quiescing {
 public:
  explicit Quiescing(HomeCore& home) : home_(home) {}
  // Has the clients of a segment made here stop using it, here and wherever it is imported, and has
  // seg_at refuse it meanwhile; `quiescent` runs when all have returned the event, or no longer
  // need to. Once more: the same again. kInval, kPerm, kNoMem: it will not run.
  Status quiesce(int32_t id, std::function<void()> quiescent);
  // Has them go on. Of a segment that is not quiesced: nothing.
  Status resume(int32_t id);

 private:
  void notify_importers(Segment& s, Finished* done) CMI_REQUIRES(home_.mu);
  void notify_own_client(int32_t id, uint32_t round);
  void own_client_returned(int32_t id, uint32_t round);

  HomeCore& home_;
};

}  // namespace cmi::memory

// Quiescing segments of this node: their clients are asked to stop, here and wherever they are
// imported, and seg_at refuses them until they are resumed. Rounds are numbered, so that what comes
// late is recognized. Nothing here waits for a client.
#pragma once

#include <functional>

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

void notify_quiesce(HomeCore& home, Segment& s, Sharer& h, Finished* done) CMI_REQUIRES(home.mu);
// Runs what waited for the clients if none owes anything any more. Under HomeCore::mu.
void complete_quiesce(Segment& s, Finished* done);

class Quiescing {
 public:
  explicit Quiescing(HomeCore& home) : home_(home) {}
  // Has the clients of a segment made here stop using it, here and wherever it is imported, and has
  // seg_at refuse it meanwhile; `settled` runs when all have returned the event, or no longer need
  // to. Once more: the same again. kInval, kPerm, kNoMem: it will not run.
  Status quiesce(int32_t id, std::function<void()> settled);
  // Has them go on. Of a segment that is not quiesced: nothing.
  Status resume(int32_t id);

 private:
  void own_client_returned(int32_t id, uint32_t round);

  HomeCore& home_;
};

}  // namespace cmi::memory

// An importer ends one import.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/quiescing.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/sharing.hpp"

namespace cmi::memory {

void on_leave(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
              const LeaveRequest& m) {
  Finished done;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Guard g(home.mu);
    // It has dropped all that it was to drop.
    home.rounds.forget(SharerKey{client.id, m.uid, m.instance}, &done);
    if (s) {
      forget_sharers(home, *s, [&](const Sharer& h) {
        return h.client == client.id && h.instance == m.instance;
      });
      complete_quiesce(*s, &done);
    }
    if (!imports_any(home, client.id)) home.rounds.table().forget(client.id);
  }
  run(done);
  reply(home.parts.server, client.id, number, WireStatus::kOk);
}

}  // namespace cmi::memory

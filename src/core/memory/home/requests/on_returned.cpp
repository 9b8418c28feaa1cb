// The client of an importer has stopped using a segment that is quiesced.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/quiescing.hpp"
#include "core/memory/home/requests/handlers.hpp"

namespace cmi::memory {

void on_returned(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                 const ReturnedRequest& m) {
  Finished done;
  {
    Guard g(home.mu);
    const SegmentPtr s = home.segments.find_uid(m.uid);
    Sharer* h = s != nullptr ? s->sharers.find(client.id, m.instance) : nullptr;
    if (h != nullptr && s->quiesce.round == m.round) {
      h->quiesce.awaited = false;
      complete_quiesce(*s, &done);
    }
  }
  run(done);
  reply(home.parts.server, client.id, number, WireStatus::kOk);
}

}  // namespace cmi::memory

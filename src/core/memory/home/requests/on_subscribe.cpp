// An importer follows a page (rule 25).
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"

namespace cmi::memory {

void on_subscribe(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                  const SubscribeRequest& m) {
  const uint32_t page = m.page;
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(home.mu);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(home, client.id, m.uid, m.instance, fabric::kRead, &s, &h);
    if (status == WireStatus::kOk && page >= s->brk.bytes / kPageSize) {
      status = WireStatus::kRange;
    } else if (status == WireStatus::kOk && !h->covers(page, 1)) {
      status = WireStatus::kRights;
    } else if (status == WireStatus::kOk) {
      h->subscriptions.subscribe(page, m.epoch);
      s->subscribed |= uint64_t{1} << page % kSubscriptionSlots;
    }
  }
  reply(home.parts.server, client.id, number, status);
}

}  // namespace cmi::memory

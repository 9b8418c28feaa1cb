// An importer subscribes to a page (rule 25).
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

void on_subscribe(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                  const SubscribeRequest& m) {
  const uint32_t page = m.page;
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    status = check(home, s.get(), client.id, m.instance, fabric::kRead, &h);
    Guard g(home.mu);
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

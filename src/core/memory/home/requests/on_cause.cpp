#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

// What an importer's access failed with, as far as it is this side's; and the break. An importer
// that asks has not heard of the newest break perhaps: notifications of it wait no longer.
void on_cause(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
              const CauseRequest& m) {
  WireStatus status = WireStatus::kMalformed;
  std::byte buf[16];
  Writer out(buf);
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    status = check(home, s.get(), client.id, m.instance, 0, &h);
    h = s ? s->sharers.find(client.id, m.instance) : nullptr;
    Guard g(home.mu);
    if (h != nullptr && access::extensible(s->flags)) {
      encode(BreakPart{s->brk}, out);
      const auto its_break = [&](const Notification& n) {
        return n.type == NotificationType::kBreak && n.client == client.id &&
               n.instance == m.instance && n.uid == m.uid;
      };
      for (uint64_t n : home.rounds.table().matching(its_break)) {
        home.parts.server.notification(client.id, n,
                                       static_cast<uint16_t>(NotificationType::kBreak),
                                       home.rounds.table().find(n)->payload);
      }
    }
  }
  reply(home.parts.server, client.id, number, status, out.done());
}

}  // namespace cmi::memory

// Whether what once used the segment still does: for locks whose owner may be gone.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/holders.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

void on_ask_holder(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                   const AskHolderRequest& m) {
  AskHolderReply answer;
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    status = check(home, s.get(), client.id, m.instance, 0, &h);
    if (status == WireStatus::kOk) answer.gone = holder_gone(home, *s, m.holder) ? 1 : 0;
  }
  if (status != WireStatus::kOk) return reply(home.parts.server, client.id, number, status);
  reply(home.parts.server, client.id, number, status, Encoded(answer));
}

}  // namespace cmi::memory

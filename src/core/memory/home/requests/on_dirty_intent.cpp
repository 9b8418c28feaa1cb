// An importer will store to pages, or will not after all (rule 21).
#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/requests/may_intend.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

WireStatus may_intend(const Segment& s, const Sharer& h, uint32_t page) {
  if (access::client_consistent(s.flags)) return WireStatus::kMalformed;
  if (page >= s.brk.bytes / kPageSize) return WireStatus::kRange;
  // What it would store there is of before, and dropped.
  if (page >= low_of(s, h) / kPageSize) return WireStatus::kBreakUnacknowledged;
  if (!h.covers(page, 1)) return WireStatus::kRights;
  return s.flux.pages.contains(page) ? WireStatus::kInFlux  // the list is still on its way to it
                                     : WireStatus::kOk;
}

void on_dirty_intent(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                     const DirtyIntentRequest& m, bool set) {
  WireStatus status = WireStatus::kMalformed;
  std::vector<DirtyIntent> intents;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    if (set) {
      status = check(home, s.get(), client.id, m.instance, fabric::kWrite, &h);
    } else if (s) {
      // No right is needed to say that nothing is in flux.
      h = s->sharers.find(client.id, m.instance);
      status = h != nullptr ? WireStatus::kOk : WireStatus::kNotPresented;
    }
    if (status == WireStatus::kOk && access::client_consistent(s->flags)) {
      status = WireStatus::kMalformed;
    }
    Guard g(home.mu);
    const DirtyIntentList all = m.intents();
    for (size_t i = 0; status == WireStatus::kOk && i < all.size(); ++i) {
      const DirtyIntent intent = all[i];
      if (intent.epoch == 0) {
        status = WireStatus::kMalformed;
      } else if (set) {
        status = may_intend(*s, *h, intent.page);
      } else if (intent.page >= s->size / kPageSize) {
        status = WireStatus::kRange;
      }
      intents.push_back(intent);
    }
    if (status != WireStatus::kOk) {
      // None of them.
    } else if (set) {
      for (const DirtyIntent& intent : intents) (void)h->intents.set(intent.page, intent.epoch);
    } else {
      home.rounds.clear_intents(*s, *h, intents);
    }
  }
  fault_point("intent_before_reply");
  reply(home.parts.server, client.id, number, status);
}

}  // namespace cmi::memory

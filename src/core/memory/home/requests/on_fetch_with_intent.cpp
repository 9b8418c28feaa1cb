#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/requests/may_intend.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {
// The page is entered, and the dirty intent set, before it is read (rule 28). *before: the intent
// that the page had; 0: none.
WireStatus enter_with_intent(HomeCore& home, Segment& s, Sharer& h, const DirtyIntent& intent,
                             uint8_t* before) CMI_EXCLUDES(home.mu) {
  Guard g(home.mu);
  const WireStatus status = may_intend(s, h, intent.page);
  if (status != WireStatus::kOk) return status;
  h.regions.enter({intent.page, 1}, home.rounds.table().next_number());
  *before = h.intents.set(intent.page, intent.epoch);
  return status;
}

void take_back(HomeCore& home, Sharer& h, const DirtyIntent& intent, uint8_t before)
    CMI_EXCLUDES(home.mu) {
  Guard g(home.mu);
  if (h.intents.epoch(intent.page) == intent.epoch) (void)h.intents.set(intent.page, before);
}
}  // namespace

// A store miss in one exchange. What is read here is what a one-sided read would find between the
// request and the answer.
void on_fetch_with_intent(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                          const FetchWithIntentRequest& m) {
  const DirtyIntent intent = m.intent;
  std::byte answer[1 + kPageSize];
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    uint8_t before = 0;
    status = check(home, s.get(), client.id, m.instance, fabric::kRead | fabric::kWrite, &h);
    if (status == WireStatus::kOk) status = enter_with_intent(home, *s, *h, intent, &before);
    if (status == WireStatus::kOk) {
      const std::byte* const at = s->service.data() + size_t{intent.page} * kPageSize;
      const auto copy = [&] { std::memcpy(answer + 1, at, kPageSize); };
      if (!unless_broken(at, kPageSize, copy)) {
        take_back(home, *h, intent, before);
        status = WireStatus::kBroken;
      }
    }
  }
  fault_point("intent_before_reply");
  answer[0] = static_cast<std::byte>(status);
  const size_t content = status == WireStatus::kOk ? kPageSize : 0;
  home.parts.server.reply(client.id, number, {answer, 1 + content});
}

}  // namespace cmi::memory

#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/requests/may_intend.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

// A store miss in one exchange. What is read here is what a one-sided read would find between the
// request and the answer.
void on_fetch_with_intent(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                          const FetchWithIntentRequest& m) {
  const DirtyIntent mark = m.intent;
  std::byte answer[1 + kPageSize];
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(home.mu);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(home, client.id, m.uid, m.instance, fabric::kRead | fabric::kWrite, &s, &h);
    if (status == WireStatus::kOk) status = may_intend(*s, *h, mark.page);
    if (status == WireStatus::kOk) {
      const std::byte* const at = s->service.data() + size_t{mark.page} * kPageSize;
      // Before it is read (rule 28).
      h->regions.enter({mark.page, 1}, home.rounds.table().next_number());
      const auto copy = [&] { std::memcpy(answer + 1, at, kPageSize); };
      if (unless_broken(at, kPageSize, copy)) {
        h->intents[mark.page] = mark.epoch;
      } else {
        status = WireStatus::kBroken;
      }
    }
  }
  fault_point("mark_before_reply");
  answer[0] = static_cast<std::byte>(status);
  const size_t content = status == WireStatus::kOk ? kPageSize : 0;
  home.parts.server.reply(client.id, number, {answer, 1 + content});
}

}  // namespace cmi::memory

#include "core/memory/home/requests/applied.hpp"

#include "core/base/mutation.hpp"

namespace cmi::memory {

void Applied::add(const PageRange& r) {
  if (!ranges.empty() && ranges.back().first + ranges.back().count == r.first) {
    ranges.back().count += r.count;
  } else {
    ranges.push_back(r);
  }
}

RoundPtr publish_applied(HomeCore& home, Segment& s, Sharer& h, const fabric::ClientInfo& client,
                         uint64_t number, Applied& applied) {
  // Applied stores are published even when a later page of the message was malformed.
  if (applied.ranges.empty() || mutated("mutate_diffs_unpublished")) return nullptr;
  if (mutated("mutate_intents_cleared_early")) h.intents.clear();
  applied.ranges = each_once(std::move(applied.ranges));
  const WireStatus status = applied.status;
  if (status != WireStatus::kOk) applied.asked.secret = 0;  // that it has to hear from us
  auto p = home.rounds.publish(s, client.id, h.instance, applied.ranges, applied.of_subscribed,
                               applied.asked);
  if (p == nullptr || mutated("mutate_acks_not_awaited")) {
    home.rounds.clear_intents(s, h, applied.intents);
    return nullptr;
  }
  p->uid = s.uid;
  p->instance = h.instance;
  p->intents = std::move(applied.intents);
  const auto shared = p->direct_acks != 0 ? fabric::TokensSent::kYes : fabric::TokensSent::kNo;
  p->finished = [&home, id = client.id, number, status, shared] {
    const std::byte answer[]{static_cast<std::byte>(status)};
    home.parts.server.reply(id, number, answer, shared);
  };
  return p;
}

}  // namespace cmi::memory

#include "core/memory/home/outbox.hpp"

#include <utility>

namespace cmi::memory {

Outbox::Waiting Outbox::take(const SharerKey& to, Sharer* from) {
  return {to, std::exchange(from->pages, {}), std::exchange(from->rounds, {})};
}

bool Outbox::must_wait(const SharerKey& to, size_t limit) const {
  const auto it = sharers_.find(to);
  if (it == sharers_.end()) return false;
  // Nothing overtakes what waits.
  return it->second.under_way >= limit || !it->second.rounds.empty();
}

void Outbox::sent(const SharerKey& to, bool direct) {
  Sharer& sharer = sharers_[to];
  ++(direct ? sharer.direct : sharer.under_way);
}

void Outbox::add(const SharerKey& to, size_t limit, const std::vector<PageRange>& pages,
                 const RoundPtr& round) {
  Sharer& sharer = sharers_.at(to);
  sharer.limit = limit;
  for (const PageRange& r : pages) sharer.pages.add(r);
  sharer.rounds.push_back(round);
  ++round->waiting;
}

Outbox::Waiting Outbox::over(const SharerKey& to, bool direct) {
  const auto it = sharers_.find(to);
  if (it == sharers_.end()) return {to, {}, {}};  // gone
  Sharer& sharer = it->second;
  --(direct ? sharer.direct : sharer.under_way);
  Waiting next{to, {}, {}};
  // The limit may have sunk since: then another one that is under way ends first.
  if (!direct && sharer.under_way < sharer.limit) next = take(to, &sharer);
  if (sharer.under_way == 0 && sharer.direct == 0) sharers_.erase(it);
  return next;
}

std::vector<RoundPtr> Outbox::forget(const SharerKey& gone) {
  const auto it = sharers_.find(gone);
  if (it == sharers_.end()) return {};
  std::vector<RoundPtr> rounds = std::move(it->second.rounds);
  sharers_.erase(it);
  return rounds;
}

std::vector<RoundPtr> Outbox::forget(const ContextId& client) {
  std::vector<RoundPtr> rounds;
  for (auto it = sharers_.lower_bound(SharerKey{client, 0, 0});
       it != sharers_.end() && it->first.client == client;) {
    auto& its = it->second.rounds;
    rounds.insert(rounds.end(), its.begin(), its.end());
    it = sharers_.erase(it);
  }
  return rounds;
}

std::vector<Outbox::Waiting> Outbox::take_all() {
  std::vector<Waiting> all;
  for (auto& [to, sharer] : sharers_) {
    if (!sharer.rounds.empty()) all.push_back(take(to, &sharer));
  }
  return all;
}

}  // namespace cmi::memory

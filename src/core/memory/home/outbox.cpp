#include "core/memory/home/outbox.hpp"

#include <algorithm>
#include <utility>

namespace cmi::memory {

NamedPages::NamedPages(std::span<const PageRange> ranges) {
  for (const PageRange& r : ranges) {
    if (r.count > pages.size() - count) {
      count = 0;
      return;
    }
    for (uint32_t i = 0; i < r.count; ++i) pages[count++] = r.first + i;
  }
}

Outbox::Waiting Outbox::take(const SharerKey& to, Sharer* from) {
  return {to, std::exchange(from->pages, {}), std::exchange(from->rounds, {})};
}

bool Outbox::must_wait(const SharerKey& to, size_t limit, std::span<const PageRange> pages) const {
  const auto it = sharers_.find(to);
  if (it == sharers_.end()) return false;
  const Sharer& sharer = it->second;
  // Nothing overtakes what waits.
  if (sharer.under_way >= limit || !sharer.rounds.empty()) return true;
  const auto under_way = [pages](uint32_t page) {
    return std::any_of(pages.begin(), pages.end(), [page](const PageRange& r) {
      return page >= r.first && page - r.first < r.count;
    });
  };
  return std::any_of(sharer.named.begin(), sharer.named.end(), under_way);
}

void Outbox::sent(const SharerKey& to, bool direct, const NamedPages& named) {
  Sharer& sharer = sharers_[to];
  ++(direct ? sharer.direct : sharer.under_way);
  if (direct) return;
  const auto pages = named.all();
  sharer.named.insert(sharer.named.end(), pages.begin(), pages.end());
}

// The limit may have sunk since something began to wait: then others that are under way end first.
bool Outbox::may_go(const Sharer& sharer) {
  return sharer.under_way < sharer.limit &&
         std::none_of(sharer.named.begin(), sharer.named.end(),
                      [&](uint32_t page) { return sharer.pages.contains(page); });
}

void Outbox::add(const SharerKey& to, size_t limit, const std::vector<PageRange>& pages,
                 const RoundPtr& round) {
  Sharer& sharer = sharers_.at(to);
  sharer.limit = limit;
  for (const PageRange& r : pages) sharer.pages.add(r);
  sharer.rounds.push_back(round);
  ++round->waiting;
}

Outbox::Waiting Outbox::over(const SharerKey& to, bool direct, const NamedPages& named) {
  const auto it = sharers_.find(to);
  if (it == sharers_.end()) return {to, {}, {}};  // gone
  Sharer& sharer = it->second;
  --(direct ? sharer.direct : sharer.under_way);
  Waiting next{to, {}, {}};
  if (!direct) {
    for (const uint32_t page : named.all()) {
      const auto at = std::find(sharer.named.begin(), sharer.named.end(), page);
      if (at != sharer.named.end()) sharer.named.erase(at);
    }
    if (may_go(sharer)) next = take(to, &sharer);
  }
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

#include "core/memory/home/notification_table.hpp"

#include <algorithm>
#include <utility>

namespace cmi::memory {

namespace {
// A notification that counts as so old is not repeated as rarely as after a long silence.
constexpr Nanos kAgainSoon = 200 * kMilli;
}  // namespace

bool NotificationTable::keep(uint64_t number, Notification n, Nanos t) {
  n.born = n.sent = n.due = n.progress_at = t;
  ++n.round->waiting;
  kept_bytes_ += n.payload.size();
  if (n.type == NotificationType::kInFlux) ++lists_;
  const bool full = ++of_[n.client] == kMaxNotifications;
  notifications_.emplace_hint(notifications_.end(), number, std::move(n));
  return full;
}

const Notification* NotificationTable::find(uint64_t number) const {
  const auto it = notifications_.find(number);
  return it == notifications_.end() ? nullptr : &it->second;
}

Notification NotificationTable::take(uint64_t number) {
  Notification n = std::move(notifications_.extract(number).mapped());
  if (n.type == NotificationType::kInFlux) --lists_;
  const auto of = of_.find(n.client);
  if (--of->second == 0) of_.erase(of);
  kept_bytes_ -= n.payload.size();
  return n;
}

uint64_t NotificationTable::first_from(uint64_t number) const {
  const auto it = notifications_.lower_bound(number);
  return it == notifications_.end() ? 0 : it->first;
}

void NotificationTable::round_over(const ContextId& by, Nanos begun, Nanos t, Nanos dead_after) {
  if (lists_ == 0 || !by) return;
  for (auto& [number, n] : notifications_) {
    if (n.type != NotificationType::kInFlux || n.client != by) continue;
    if (begun <= n.born) n.progress_at = t;
    if (excuses(begun, n, dead_after)) n.due = t;
  }
}

void NotificationTable::made_progress(const ContextId& client, Nanos t) {
  if (lists_ == 0) return;
  for (auto& [number, n] : notifications_) {
    if (n.type == NotificationType::kInFlux && n.client == client) n.progress_at = n.due = t;
  }
}

// Of each importer's rounds under way, when the first was begun.
std::map<ContextId, Nanos> NotificationTable::first_rounds() const {
  std::map<ContextId, Nanos> begun;
  if (lists_ == 0) return begun;
  for (const auto& [number, n] : notifications_) {
    if (!n.round->by) continue;
    const Nanos born = n.round->born;
    auto [it, first] = begun.try_emplace(n.round->by, born);
    if (!first) it->second = std::min(it->second, born);
  }
  return begun;
}

void NotificationTable::unacknowledged_since(std::map<ContextId, Nanos>* since,
                                             Nanos dead_after) const {
  const std::map<ContextId, Nanos> begun = first_rounds();
  for (const auto& [number, n] : notifications_) {
    if (n.type == NotificationType::kInFlux) {
      const auto it = begun.find(n.client);
      if (it != begun.end() && excuses(it->second, n, dead_after)) continue;
    }
    auto [it, first] = since->try_emplace(n.client, n.due);
    if (!first) it->second = std::min(it->second, n.due);
  }
  // Each holds memory here and is walked through: an importer that owes so many is not waited for.
  for (const auto& [client, count] : of_) {
    if (count >= kMaxNotifications) (*since)[client] = kOwesTooMany;
  }
}

void NotificationTable::extend_deadlines(Nanos t) {
  for (auto& [number, n] : notifications_) {
    n.due = n.progress_at = n.sent = t;
    n.born = t - kAgainSoon;
  }
}

}  // namespace cmi::memory

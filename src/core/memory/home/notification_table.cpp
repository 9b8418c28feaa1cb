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
  Importer& importer = importers_[n.client];
  importer.gone = false;
  const bool full = ++importer.unacknowledged == kMaxNotifications;
  notifications_.emplace_hint(notifications_.end(), number, std::move(n));
  return full;
}

bool NotificationTable::begin_wait(const ContextId& client) {
  return ++importers_.at(client).unacknowledged == kMaxNotifications;
}

void NotificationTable::end_wait(const ContextId& client, size_t rounds) {
  if (rounds != 0) importers_.at(client).unacknowledged -= rounds;
}

const Notification* NotificationTable::find(uint64_t number) const {
  const auto it = notifications_.find(number);
  return it == notifications_.end() ? nullptr : &it->second;
}

Notification NotificationTable::take(uint64_t number) {
  Notification n = std::move(notifications_.extract(number).mapped());
  if (n.type == NotificationType::kInFlux) --lists_;
  const auto importer = importers_.find(n.client);
  if (--importer->second.unacknowledged == 0 && importer->second.gone) importers_.erase(importer);
  kept_bytes_ -= n.payload.size();
  return n;
}

void NotificationTable::answered(uint64_t number, Nanos t) {
  const Notification& n = notifications_.at(number);
  Importer& importer = importers_.at(n.client);
  importer.answered_at = t;
  // Others are answered when something else is over.
  if (n.type == NotificationType::kInvalidate && !n.repeated) {
    importer.answer_time.sample(t - n.sent);
  }
}

void NotificationTable::new_session(const ContextId& client) {
  const auto it = importers_.find(client);
  if (it != importers_.end()) it->second.answer_time = {};
}

void NotificationTable::forget(const ContextId& client) {
  const auto it = importers_.find(client);
  if (it == importers_.end()) return;
  it->second.gone = true;
  if (it->second.unacknowledged == 0) importers_.erase(it);
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
    if (extends_deadline(begun, n, dead_after)) n.due = t;
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
  const auto note = [&](const InvalidationRound& round) {
    if (!round.by) return;
    auto [it, first] = begun.try_emplace(round.by, round.born);
    if (!first) it->second = std::min(it->second, round.born);
  };
  for (const auto& [number, n] : notifications_) {
    note(*n.round);
    for (const RoundPtr& waited : n.round->then) note(*waited);
  }
  return begun;
}

void NotificationTable::unacknowledged_since(std::map<ContextId, Nanos>* since,
                                             Nanos dead_after) const {
  const std::map<ContextId, Nanos> begun = first_rounds();
  for (const auto& [number, n] : notifications_) {
    if (n.type == NotificationType::kInFlux) {
      const auto it = begun.find(n.client);
      if (it != begun.end() && extends_deadline(it->second, n, dead_after)) continue;
    }
    // progress_at: when it was sent, or its receiver has made progress.
    const Nanos latest = n.progress_at + kDeadlineExtension * dead_after;
    const Nanos alive = std::min(importers_.at(n.client).answered_at, latest);
    const Nanos due = std::max(n.due, alive);
    auto [it, first] = since->try_emplace(n.client, due);
    if (!first) it->second = std::min(it->second, due);
  }
  // Each holds memory here and is walked through: an importer that owes so many is not waited for.
  for (const auto& [client, importer] : importers_) {
    if (importer.unacknowledged >= kMaxNotifications) (*since)[client] = kOwesTooMany;
  }
}

void NotificationTable::extend_deadlines(Nanos t) {
  for (auto& [number, n] : notifications_) {
    n.due = n.progress_at = n.sent = t;
    n.born = t - kAgainSoon;
    n.repeated = true;  // as far as the time of its answer goes
  }
}

}  // namespace cmi::memory

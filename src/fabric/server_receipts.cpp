// A Server's part in direct acks (protocol rule 26): who can give them to whom, giving them, and
// hearing from who had them that his requests are over.
#include <algorithm>

#include "core/base/fault_point.hpp"
#include "fabric/server.hpp"
#include "fabric/serving.hpp"

namespace cmi::fabric {

Bytes Server::receives_from(const ContextId& client, std::span<const ContextId> givers,
                            std::span<std::byte> to) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end() || it->second.serving == nullptr) return {};
  const Client& c = it->second;
  for (const ContextId& giver : givers) {
    auto other = clients_.find(giver);
    if (other == clients_.end() || other->second.fenced || other->second.info.via != c.info.via) {
      return {};
    }
  }
  if (c.initiator.size() > to.size()) return {};
  std::copy(c.initiator.begin(), c.initiator.end(), to.begin());
  return to.first(c.initiator.size());
}

// Null: it is no address, or there are too many.
Server::Waiter* Server::waiter_locked(Bytes at, size_t via) {
  for (Waiter& w : waiters_) {
    if (w.via == via && std::equal(w.at.begin(), w.at.end(), at.begin(), at.end())) return &w;
  }
  const auto oldest = [](const Waiter& a, const Waiter& b) { return a.used < b.used; };
  if (waiters_.size() == kMostWaiters) {
    auto it = std::min_element(waiters_.begin(), waiters_.end(), oldest);
    if (now() - it->used < kWaiterStays) return nullptr;
    doors_[it->via]->remove(it->peer);
    waiters_.erase(it);
  }
  auto peer = doors_[via]->add(at);
  if (!peer) return nullptr;
  waiters_.push_back({{at.begin(), at.end()}, via, *peer, 0});
  return &waiters_.back();
}

bool Server::give(const ContextId& home, const DirectAck& direct_ack) {
  fault_point("receipt_before_send");
  if (fault_point_fails("receipt_lost")) return true;
  Guard g(mu_);
  auto it = homes_.find(home);
  if (it == homes_.end()) return false;
  Waiter* const w = waiter_locked(direct_ack.to, it->second.via);
  if (w == nullptr) return false;
  w->used = now_or_a_tick_ago();
  return doors_[w->via]->send(w->peer,
                              {FrameKind::kReceipt, 0, direct_ack.share, direct_ack.number, 0, {}});
}

void Server::let_go_of_waiters(Nanos silence) {
  Guard g(mu_);
  const Nanos t = now();
  std::erase_if(waiters_, [&](const Waiter& w) {
    if (t - w.used <= silence) return false;
    doors_[w.via]->remove(w.peer);
    return true;
  });
}

size_t Server::waiters() {
  Guard g(mu_);
  return waiters_.size();
}

void Server::settled(Serving& serving, const Frame& f) {
  Reader in(f.payload);
  std::vector<uint64_t> behind(in.left() / sizeof(uint64_t));
  if (behind.size() > kMostSettled) return drop();
  for (uint64_t& number : behind) number = in.get<uint64_t>();
  if (!in.done()) return drop();
  std::sort(behind.begin(), behind.end());
  {
    Guard g(mu_);
    auto it = clients_.find(serving.client);
    if (it == clients_.end() || it->second.serving.get() != &serving ||
        it->second.secret != f.secret || it->second.fenced) {
      return drop();
    }
    Client& c = it->second;
    c.heard = now();
    // Nobody waits for their answers, and they must not be executed again.
    for (uint64_t number : behind) {
      if (std::erase(c.open, number) > 0) keep_answer_locked(c, number, {});
    }
    if (!settle_locked(c, f.settled) && behind.empty()) return;
  }
  handler_.on_acked_below(serving.client, f.settled, behind);
}

}  // namespace cmi::fabric

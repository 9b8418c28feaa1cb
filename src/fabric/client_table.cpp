// Sessions of clients: how they begin and end, and which client has one. What goes to and fro in
// them: client_frames.cpp.
#include "fabric/client_table.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"

namespace cmi::fabric {

void ClientTable::clear() {
  std::vector<std::shared_ptr<Serving>> servings;
  Guard g(mu_);
  clients_.clear();
  intake_ = {};
  servings.swap(servings_);
}

bool ClientTable::end_session(const Hello& hello, size_t most_clients) {
  std::shared_ptr<Serving> old;
  {
    Guard g(mu_);
    auto it = clients_.find(hello.info.id);
    // Clients that are fenced for ever are listed, but take no endpoint.
    if (it == clients_.end()) return servings_.size() < most_clients;
    Client& c = it->second;
    if (c.fenced || c.generation >= hello.generation ||
        c.notification_secret != hello.notification_secret) {
      return false;
    }
    if (!mutated("mutate_rebuild_unfenced")) old = take_serving(c);
    c.secret = random_u64();
  }
  if (old != nullptr) close(std::move(old));
  return true;
}

std::optional<uint64_t> ClientTable::begin_session(const Hello& hello, Peer at_listener,
                                                   const std::shared_ptr<Serving>& serving) {
  Guard g(mu_);
  Client& c = clients_[hello.info.id];
  if (c.fenced) {
    ports_.remove_peer(hello.info.listener_index, at_listener);
    return std::nullopt;
  }
  // A stranger may have named the listener of another client, which keeps it.
  if (c.generation != 0) ports_.remove_peer(c.info.listener_index, c.at_listener);
  c.info = hello.info;
  c.generation = hello.generation;
  c.secret = random_u64();
  c.notification_secret = hello.notification_secret;
  if (c.ack_secret == 0) c.ack_secret = random_u64();
  c.heard = now();
  c.listener_address.assign(hello.listener_address.begin(), hello.listener_address.end());
  c.initiator.assign(hello.initiator.begin(), hello.initiator.end());
  c.at_listener = at_listener;
  c.serving = serving;
  servings_.push_back(serving);
  return c.secret;
}

std::shared_ptr<Serving> ClientTable::take_serving(Client& c) {
  if (c.serving != nullptr) ++c.closing;
  return std::exchange(c.serving, nullptr);
}

// Pollers hold the endpoint for the length of one poll. It must be closed, not only forgotten, when
// a fence returns.
void ClientTable::close(std::shared_ptr<Serving> serving) {
  {
    Guard g(mu_);
    std::erase(servings_, serving);
  }
  Backoff backoff;
  while (serving.use_count() > 1) backoff.pause();
  const ContextId client = serving->client();
  serving.reset();
  Guard g(mu_);
  --clients_.at(client).closing;
}

// Another thread may have taken the endpoint out of the entry and still be closing it.
void ClientTable::await_closed(const ContextId& client) {
  for (Backoff backoff;; backoff.pause()) {
    Guard g(mu_);
    auto it = clients_.find(client);  // it may be swept meanwhile
    if (it == clients_.end() || it->second.closing == 0) return;
  }
}

void ClientTable::fence(const ContextId& client, bool forever) {
  std::shared_ptr<Serving> serving;
  std::optional<std::pair<size_t, Peer>> not_needed;
  {
    Guard g(mu_);
    auto it = clients_.find(client);
    if (it == clients_.end()) {
      // Its first hello may be on its way, or be in the middle of Server::hello().
      if (forever) clients_[client].fenced = true;
      return;
    }
    Client& c = it->second;
    auto taken = take_serving(c);
    if (mutated("mutate_fence_in_mid_payload")) {
      if (taken != nullptr) --c.closing;
    } else {
      serving = std::move(taken);
    }
    c.secret = random_u64();
    // A thread that goes on after a verdict acts on nothing that was sent before it.
    if (serving != nullptr) {
      serving->each_ring([](ring::Channel& r) { r.end("the client is fenced"); });
    }
    if (forever) {
      if (!std::exchange(c.fenced, true) && c.generation != 0) {
        not_needed = {c.info.listener_index, c.at_listener};
      }
      c.requests.clear();
      count_open(c);
    }
  }
  if (serving != nullptr) close(std::move(serving));
  await_closed(client);
  if (not_needed) ports_.remove_peer(not_needed->first, not_needed->second);
}

std::vector<ContextId> ClientTable::silent(Nanos silence, const ContextId& but) {
  std::vector<std::pair<Nanos, ContextId>> found;
  {
    Guard g(mu_);
    const Nanos t = now();
    for (auto& [id, c] : clients_) {
      if (!c.fenced && c.requests.none_open() && c.closing == 0 && t - c.heard > silence &&
          id != but) {
        found.emplace_back(c.heard, id);
      }
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<ContextId> ids;
  ids.reserve(found.size());
  for (auto& [heard, id] : found) ids.push_back(id);
  return ids;
}

void ClientTable::erase_if_closed(const ContextId& client) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end()) return;
  const Client& c = it->second;
  if (c.serving != nullptr || c.closing != 0 || c.fenced) return;
  ports_.remove_peer(c.info.listener_index, c.at_listener);
  intake_.now_open(it->second.intake, 0);
  clients_.erase(it);
}

bool ClientTable::listed(const ContextId& client) const {
  Guard g(mu_);
  return clients_.contains(client);
}

bool ClientTable::knows(const ContextId& client) const {
  Guard g(mu_);
  auto it = clients_.find(client);
  return it != clients_.end() && !it->second.fenced;
}

uint32_t ClientTable::session_of(const ContextId& client) const {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end() || (it->second.serving == nullptr && it->second.closing == 0)) return 0;
  return it->second.generation;
}

Nanos ClientTable::heard(const ContextId& client) const {
  Guard g(mu_);
  auto it = clients_.find(client);
  return it == clients_.end() ? 0 : it->second.heard;
}

ClientTable::Answered ClientTable::served(const ContextId& client) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end()) return {};
  return {it->second.serving, it->second.info.listener_index};
}

std::optional<std::pair<size_t, std::vector<std::byte>>> ClientTable::listener_of(
    const ContextId& client) {
  Guard g(mu_);
  auto it = clients_.find(client);
  if (it == clients_.end()) return std::nullopt;
  return std::pair(it->second.info.listener_index, it->second.listener_address);
}

void ClientTable::found_nothing() {
  if (!has_taken_.load(std::memory_order_relaxed)) return;
  Guard g(mu_);
  intake_.found_nothing();
  has_taken_.store(false, std::memory_order_relaxed);
}

size_t ClientTable::serving_count() const {
  Guard g(mu_);
  return servings_.size();
}

std::shared_ptr<Serving> ClientTable::serving_at(size_t i) {
  Guard g(mu_);
  return i < servings_.size() ? servings_[i] : nullptr;
}

}  // namespace cmi::fabric

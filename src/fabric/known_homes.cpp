// See known_homes.hpp.
#include "fabric/known_homes.hpp"

#include <algorithm>

namespace cmi::fabric {

Status KnownHomes::add(const ContextId& home, Bytes address, uint64_t secret, size_t index) {
  auto peer = ports_.add_peer(index, address);
  if (!peer) return peer.status();
  Guard g(mu_);
  if (auto it = homes_.find(home); it != homes_.end()) {
    ports_.remove_peer(it->second.index, it->second.peer);
  }
  homes_[home] = {index, *peer, secret, nullptr};
  count_rings();
  return Status::kOk;
}

void KnownHomes::count_rings() {
  ring_count_.store(
      static_cast<size_t>(std::count_if(homes_.begin(), homes_.end(),
                                        [](const auto& h) { return h.second.ring != nullptr; })),
      std::memory_order_relaxed);
}

void KnownHomes::take_ring(const ContextId& home, std::shared_ptr<HomeRing> ring) {
  Guard g(mu_);
  auto it = homes_.find(home);
  if (it == homes_.end()) return;
  it->second.ring = std::move(ring);
  count_rings();
}

// One that has ended is not looked at any more.
std::shared_ptr<HomeRing> KnownHomes::ring_at(size_t i) {
  Guard g(mu_);
  for (auto& [home, h] : homes_) {
    if (h.ring == nullptr || i-- != 0) continue;
    if (!h.ring->channel().ended()) return h.ring;
    h.ring.reset();
    count_rings();
    return nullptr;
  }
  return nullptr;
}

bool KnownHomes::vouches_for(const ContextId& home, uint64_t secret) {
  Guard g(mu_);
  auto it = homes_.find(home);
  return it != homes_.end() && it->second.secret == secret;
}

std::optional<size_t> KnownHomes::listener_of(const ContextId& home) {
  Guard g(mu_);
  auto it = homes_.find(home);
  if (it == homes_.end()) return std::nullopt;
  return it->second.index;
}

// The lock is held while it is sent: `peer` must not become the number of another home.
void KnownHomes::send(const ContextId& home, const Frame& frame) {
  Guard g(mu_);
  auto it = homes_.find(home);
  if (it == homes_.end()) return;
  const Home& h = it->second;
  if (h.ring == nullptr || !h.ring->channel().send(frame)) ports_.send(h.index, h.peer, frame);
}

}  // namespace cmi::fabric

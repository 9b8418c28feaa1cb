// See known_homes.hpp.
#include "fabric/known_homes.hpp"

namespace cmi::fabric {

Status KnownHomes::add(const ContextId& home, Bytes address, uint64_t secret, size_t index) {
  auto peer = ports_.add_peer(index, address);
  if (!peer) return peer.status();
  Guard g(mu_);
  if (auto it = homes_.find(home); it != homes_.end()) {
    ports_.remove_peer(it->second.index, it->second.peer);
  }
  homes_[home] = {index, *peer, secret};
  return Status::kOk;
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
  if (it != homes_.end()) ports_.send(it->second.index, it->second.peer, frame);
}

}  // namespace cmi::fabric

// See direct_ack_sender.hpp.
#include "fabric/direct_ack_sender.hpp"

#include <algorithm>

namespace cmi::fabric {

// Null: the provider does not take it for an address, or too many are in use.
DirectAckSender::Address* DirectAckSender::find_or_add(Bytes to, size_t index, Nanos t) {
  for (Address& a : addresses_) {
    if (a.index == index && std::equal(a.bytes.begin(), a.bytes.end(), to.begin(), to.end())) {
      return &a;
    }
  }
  if (addresses_.size() == kMostAddresses) {
    const auto earlier = [](const Address& a, const Address& b) { return a.used < b.used; };
    auto oldest = std::min_element(addresses_.begin(), addresses_.end(), earlier);
    if (t - oldest->used < kAddressStays) return nullptr;
    ports_.remove_peer(oldest->index, oldest->peer);
    addresses_.erase(oldest);
  }
  auto peer = ports_.add_peer(index, to);
  if (!peer) return nullptr;
  addresses_.push_back({{to.begin(), to.end()}, index, *peer, 0});
  return &addresses_.back();
}

// The lock is held while it is sent: `peer` must not become the number of another address.
bool DirectAckSender::send(Bytes to, size_t index, const Frame& frame, Nanos t) {
  Guard g(mu_);
  Address* const a = find_or_add(to, index, t);
  if (a == nullptr) return false;
  a->used = t;
  return ports_.send(index, a->peer, frame);
}

void DirectAckSender::sweep(Nanos silence, Nanos t) {
  Guard g(mu_);
  std::erase_if(addresses_, [&](const Address& a) {
    if (t - a.used <= silence) return false;
    ports_.remove_peer(a.index, a.peer);
    return true;
  });
}

size_t DirectAckSender::addresses() {
  Guard g(mu_);
  return addresses_.size();
}

}  // namespace cmi::fabric

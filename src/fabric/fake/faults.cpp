// What tests do to the fake network. See fake.hpp.
#include <algorithm>

#include "fabric/fake/net.hpp"

namespace cmi::fabric::fake {

void Net::kill(Bytes endpoint) {
  Guard g(mu_);
  FakeEndpoint* ep = find(endpoint);
  if (ep == nullptr) return;
  ep->dead_ = true;
  std::deque<Packet> lost;
  lost.swap(ep->inbox_);
  for (Packet& p : lost) finish(std::move(p), Cause::kPeerLost);
}

void Net::vanish(Bytes endpoint) {
  Guard g(mu_);
  if (FakeEndpoint* ep = find(endpoint)) ep->vanished_ = true;
}

void Net::stop(Bytes endpoint) {
  Guard g(mu_);
  if (FakeEndpoint* ep = find(endpoint)) ep->stopped_ = true;
}

void Net::resume(Bytes endpoint) {
  Guard g(mu_);
  FakeEndpoint* ep = find(endpoint);
  if (ep == nullptr) return;
  ep->stopped_ = false;
  wake(*ep);
}

void Net::cut(Bytes one, Bytes other) {
  Guard g(mu_);
  cut_.insert(std::minmax({decode(one), decode(other)}));
}

void Net::heal(Bytes one, Bytes other) {
  Guard g(mu_);
  cut_.erase(std::minmax({decode(one), decode(other)}));
  for (Bytes b : {one, other}) {
    if (FakeEndpoint* ep = find(b)) wake(*ep);
  }
}

void Net::reset(Bytes one, Bytes other) {
  Guard g(mu_);
  end_between(decode(one), decode(other));
}

void Net::lose_messages(Bytes to, int count) {
  Guard g(mu_);
  if (FakeEndpoint* ep = find(to)) ep->lose_ += count;
}

void Net::end_between(EndpointId one, EndpointId other) {
  for (auto [target, initiator] : {std::pair{one, other}, std::pair{other, one}}) {
    FakeEndpoint* ep = find(target);
    if (ep == nullptr) continue;
    std::deque<Packet> keep;
    std::deque<Packet> inbox;
    inbox.swap(ep->inbox_);
    for (Packet& p : inbox) {
      if (p.from == initiator) {
        finish(std::move(p), Cause::kPeerLost);
      } else {
        keep.push_back(std::move(p));
      }
    }
    ep->inbox_.swap(keep);
  }
}

}  // namespace cmi::fabric::fake

// What a verdict on a peer means: who is notified, what ends, and in which order.
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/memory/membership/membership.hpp"
#include "fabric/reach.hpp"

namespace cmi::memory {

using fabric::Side;
using fabric::Sign;
using liveness::PeerId;
using liveness::PeerState;
using liveness::Reason;
using liveness::Role;
using liveness::Verdict;

// Of one that is silent: a context that is only stopped still has a node that lets us in.
bool Membership::out_of_reach(const PeerId& peer) {
  const auto link = peer.role == Role::kHome ? importer_->homes().link_with(peer.context) : nullptr;
  if (link != nullptr && link->health().local_fault()) return false;
  const std::vector<fabric::ListenerAddress> listeners =
      link != nullptr ? link->home_listeners()
                      : std::vector{parts_.server.client_listener(peer.context)};
  const Nanos begun = now();
  const auto reach = fabric::probe_any(listeners, std::max<Nanos>(probes_left_, 0));
  probes_left_ -= now() - begun;
  return reach == fabric::Reach::kUnknown;
}

// Before all that follows from its death, and once, whatever it was to us. Not of one whose end has
// been told.
void Membership::notify_unreachable(const PeerId& peer, Peer* p) {
  access::NaddrInfo who;
  bool concerns;
  if (peer.role == Role::kImporter) {
    concerns = home_->importers().imported(peer.context, &who);
  } else {
    const auto link = importer_->homes().link_with(peer.context);
    concerns = p != nullptr && p->home && link != nullptr && !link->condemned() &&
               importer_->homes().concerned_with(peer.context);
    if (concerns) who = {p->home->node, peer.context};
  }
  if (!concerns || (p != nullptr && p->notified_unreachable)) return;
  if (p != nullptr) p->notified_unreachable = true;
  parts_.observer.unreachable(who);
}

void Membership::carry_out(const Verdict& v) {
  const ContextId& id = v.peer.context;
  const bool home = v.peer.role == Role::kHome;
  Peer* p = find(id);
  trace(kFacMem, v.state == PeerState::kAlive ? kInfo : kWarn, "context {:016x}, our {}, is {}: {}",
        id.hi, home ? "home" : "importer",
        v.state == PeerState::kAlive         ? "reachable again"
        : v.state == PeerState::kUnreachable ? "unreachable"
                                             : "gone",
        liveness::reason_name(v.reason));
  if (v.state == PeerState::kAlive && p != nullptr) p->notified_unreachable = false;
  if (v.state == PeerState::kDead) carry_out_death(v, p);
  fault_point("watch_carried_out");
}

void Membership::carry_out_death(const Verdict& v, Peer* p) {
  const ContextId& id = v.peer.context;
  const bool home = v.peer.role == Role::kHome;
  {
    // Should it greet us again it is told that all is over.
    Guard g(mu_);
    if (home) {
      watched_.erase(id);
    } else {
      expected_.erase(id);
    }
  }
  const bool quiet = v.reason == Reason::kSilent || v.reason == Reason::kUnacknowledged;
  if (quiet && out_of_reach(v.peer)) notify_unreachable(v.peer, p);
  if (!home) {
    home_->importers().forget(id, v.reason == Reason::kGoodbye);
  } else if (p != nullptr && p->home) {
    importer_->homes().lose(id);
  }
  // Only now, when nothing of it is in use here any more, nor can be.
  const Side side = home ? Side::kOurs : Side::kTheirs;
  if (lines_ != nullptr) {
    lines_->send(id, side, Sign::kOver, 0);
    lines_->hang_up(id, side);
  }
  if (p == nullptr) return;
  if (home) {
    p->home.reset();
  } else {
    p->importer.reset();
  }
  if (!p->home && !p->importer) peers_.erase(id);
}

void Membership::prove_end(const PeerId& peer, Reason proof) {
  detector_.ended(peer, proof);
  look_again_at(t_);
}

}  // namespace cmi::memory

// What lifelines say: peers that come, signs of life, leases, ends.
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/memory/membership/membership.hpp"

namespace cmi::memory {

using fabric::Side;
using fabric::Sign;
using liveness::PeerId;
using liveness::PeerState;
using liveness::Reason;
using liveness::Role;

namespace {
constexpr Nanos kTryLinkEvery = kSecond;

Role role_of(Side side) { return side == Side::kOurs ? Role::kHome : Role::kImporter; }
}  // namespace

bool Membership::admits(const ContextId& peer, uint64_t secret) {
  if (left_.load(std::memory_order_acquire)) take_in();
  Guard g(mu_);
  auto it = expected_.find(peer);
  if (it == expected_.end() || it->second.secret != secret) return false;
  Peer& p = peers_[peer];  // forgotten, perhaps, since it got the secret
  if (!p.importer) p.importer.emplace();
  return true;
}

bool Membership::follows(const ContextId& home) {
  const Peer* p = find(home);
  return p != nullptr && p->home.has_value();
}

void Membership::on_up(const ContextId& id, Side side, uint16_t listener_port, uint64_t value) {
  Peer* p = find(id);
  if (p == nullptr) return lines_->hang_up(id, side);
  trace(kFacMem, kDebug, "lifeline {} {:016x} is up", side == Side::kOurs ? "to" : "from", id.hi);
  if (side == Side::kOurs && p->home) {
    AsHome& h = *p->home;
    h.up_since = t_;
    h.retry.lost = false;
    h.met.insert(h.listener.blob);
    h.tries = 0;
    // The way that the link takes may have gone with the former line, without a word.
    if (h.vouched != 0) importer_->homes().try_link(id);
    const auto dead = static_cast<Nanos>(std::min<uint64_t>(value, 3600 * kSecond));
    h.lease = std::max<Nanos>(liveness::lease_of(dead), 1);
    if (h.vouched == 0) h.vouched = h.asked;
    importer_->homes().set_lease_end(id, h.vouched + h.lease);
    Guard g(mu_);
    watched_.insert(id);
    look_again_at(t_);
  }
  if (side == Side::kTheirs && p->importer) {
    AsImporter& i = *p->importer;
    i.listener_port = listener_port;
    i.retry = {};
    if (!i.greeted) {
      i.greeted = true;
      if (auto slot = parts_.node.members().find(id); slot) i.slot = *slot;
    }
    look_again_at(t_);
  }
  detector_.heard({id, role_of(side)}, t_);
}

void Membership::on_sign(const ContextId& id, Side side, Sign sign, uint64_t value) {
  Peer* p = find(id);
  if (p == nullptr) return;
  // Somebody at an address where the home was never met says that we are none of his.
  if (side == Side::kOurs && sign == Sign::kOver && p->in_doubt()) return;
  const PeerId peer{id, role_of(side)};
  detector_.heard(peer, t_);
  if (side == Side::kOurs && p->home) {
    p->home->heard = t_;
    p->home->retry.pause = 0;
    if (const auto link = importer_->homes().link_with(id); link != nullptr) link->alive_at(t_);
  }
  switch (sign) {
    case Sign::kAsk: {
      const bool vouches =
          side == Side::kTheirs && liveness::may_vouch(home_->importers().unacknowledged_since(id),
                                                       t_, detector_.limits().dead);
      lines_->send(id, side, vouches ? Sign::kVouch : Sign::kAnswer, value);
      break;
    }
    case Sign::kVouch:
      if (side == Side::kOurs && p->home) {
        AsHome& h = *p->home;
        // For what we asked, and no more than that.
        const Nanos asked =
            std::min(static_cast<Nanos>(std::min<uint64_t>(value, INT64_MAX)), h.asked);
        h.vouched = std::max(h.vouched, asked);
        importer_->homes().set_lease_end(id, h.vouched + h.lease);
        if (h.lease_expired && t_ < h.vouched + h.lease) {
          h.lease_expired = false;
          importer_->homes().set_lease_expired(id, false);
        }
        look_again_at(h.vouched + h.lease);
      }
      break;
    case Sign::kGoodbye:
      prove_end(peer, Reason::kGoodbye);
      break;
    case Sign::kOver:
      prove_end(peer, Reason::kDisowned);
      break;
    case Sign::kAnswer:
      // It does not vouch: what it told us has not been acknowledged, perhaps because the way that
      // the link takes has gone without a word.
      if (side == Side::kOurs && p->home && t_ >= p->home->try_link_from) {
        p->home->try_link_from = t_ + kTryLinkEvery;
        importer_->homes().try_link(id);
      }
      break;
    case Sign::kWelcome:
      break;
  }
  if (detector_.state(peer) == PeerState::kUnreachable) look_again_at(t_);
}

void Membership::on_lost(const ContextId& id, Side side) {
  Peer* p = find(id);
  if (p == nullptr) return;
  trace(kFacMem, kDebug, "lifeline {} {:016x} is lost", side == Side::kOurs ? "to" : "from", id.hi);
  if (side == Side::kOurs && p->home) {
    p->home->up_since = 0;
    p->home->retry.lose(t_);
  }
  if (side == Side::kTheirs && p->importer) p->importer->retry.lose(t_);
  look_again_at(t_);
}

void Membership::on_refused(const ContextId& id, Side side) {
  const Peer* p = find(id);
  if (p == nullptr || (side == Side::kOurs && p->in_doubt())) return;
  prove_end({id, role_of(side)}, Reason::kEnded);
}

}  // namespace cmi::memory

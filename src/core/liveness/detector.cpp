// Evidence to verdicts.
#include "core/liveness/detector.hpp"

#include <algorithm>

namespace cmi::liveness {

namespace {
constexpr Nanos kNobodyToWatch = 3600 * kSecond;
}  // namespace

const char* reason_name(Reason r) {
  switch (r) {
    case Reason::kHeard:
      return "heard of again";
    case Reason::kSilent:
      return "silent";
    case Reason::kUnacknowledged:
      return "owes an answer";
    case Reason::kEnded:
      return "its context has ended";
    case Reason::kGoodbye:
      return "said goodbye";
    case Reason::kDisowned:
      return "it holds us for dead";
  }
  return "?";
}

void Detector::set_unreachable_after(Nanos t) {
  limits_.unreachable = std::max(t, 2 * limits_.beat);
}

void Detector::share(const PeerId& peer, Nanos beat, Nanos t) {
  Peer& p = peers_[peer];
  p.beat = beat;
  if (p.shares) return;
  p.shares = true;
  p.heard = std::max(p.heard, t);
  p.asked = t;
}

void Detector::part(const PeerId& peer) {
  if (auto it = peers_.find(peer); it != peers_.end()) it->second.shares = false;
}

void Detector::heard(const PeerId& peer, Nanos t) {
  if (auto it = peers_.find(peer); it != peers_.end()) {
    it->second.heard = std::max(it->second.heard, t);
  }
}

void Detector::owes(const PeerId& peer, Nanos since) {
  auto it = peers_.find(peer);
  if (it == peers_.end()) {
    if (since == 0) return;
    it = peers_.try_emplace(peer).first;
  }
  if (it->second.unacknowledged == since) return;
  it->second.unacknowledged = since;
  it->second.pardon = 0;
}

void Detector::unlinked(const PeerId& peer, Nanos since, bool line) {
  auto it = peers_.find(peer);
  if (it == peers_.end()) {
    if (since == 0) return;
    it = peers_.try_emplace(peer).first;
  }
  it->second.line = line;
  if (it->second.unlinked == since) return;
  it->second.unlinked = since;
  it->second.unlinked_pardon = 0;
}

void Detector::suspect(const PeerId& peer) {
  if (auto it = peers_.find(peer); it != peers_.end()) it->second.asked = 0;
}

void Detector::ended(const PeerId& peer, Reason proof) {
  Peer& p = peers_[peer];
  if (p.ended) return;
  p.ended = true;
  p.proof = proof;
}

PeerState Detector::state(const PeerId& peer) const {
  auto it = peers_.find(peer);
  return it == peers_.end() ? PeerState::kAlive : it->second.state;
}

void Detector::pardon(Nanos pause, Nanos t) {
  for (auto& [id, p] : peers_) {
    p.heard = std::min(t, p.heard + pause);
    if (p.unacknowledged != 0) p.pardon += pause;
    if (p.unlinked != 0) p.unlinked_pardon += pause;
  }
}

bool Detector::answers(const Peer& p, Nanos t) const {
  return p.shares && p.line && t - p.heard <= limits_.unreachable;
}

// A peer that was out of reach for a while gets the whole time once it is back; but not each time.
Nanos Detector::unacknowledged_from(const Peer& p) const {
  const Nanos since = p.unacknowledged + p.pardon;
  return std::max(since, std::min(p.back, since + 2 * limits_.dead));
}

PeerState Detector::look(const Peer& p, Nanos t, Reason* why) const {
  *why = Reason::kHeard;
  if (p.ended) {
    *why = p.proof;
    return PeerState::kDead;
  }
  const Nanos quiet = p.shares ? t - p.heard : 0;
  const Nanos owing = p.unacknowledged != 0 ? t - unacknowledged_from(p) : 0;
  const Nanos unlinked =
      p.unlinked != 0 && !answers(p, t) ? t - std::max(p.unlinked + p.unlinked_pardon, p.back) : 0;
  if (quiet > limits_.dead) {
    *why = Reason::kSilent;
    return PeerState::kDead;
  }
  if (owing > limits_.dead || unlinked > limits_.dead) {
    *why = Reason::kUnacknowledged;
    return PeerState::kDead;
  }
  if (quiet > limits_.unreachable) {
    *why = Reason::kSilent;
    return PeerState::kUnreachable;
  }
  return PeerState::kAlive;
}

// No later than the next change that time alone brings about.
Nanos Detector::due(const Peer& p, Nanos t) const {
  Nanos at = t + kNobodyToWatch;
  if (p.shares) {
    at = std::min(at, std::max(p.heard, p.asked) + p.beat);
    at = std::min(at, p.heard + limits_.dead + 1);
    if (p.state == PeerState::kAlive) at = std::min(at, p.heard + limits_.unreachable + 1);
  }
  if (p.unacknowledged != 0) at = std::min(at, unacknowledged_from(p) + limits_.dead + 1);
  if (p.unlinked != 0) {
    const Nanos over = std::max(p.unlinked + p.unlinked_pardon, p.back) + limits_.dead + 1;
    const Nanos silent = answers(p, t) ? p.heard + limits_.unreachable + 1 : 0;
    at = std::min(at, std::max(over, silent));
  }
  return at;
}

Nanos Detector::judge(Nanos t, std::vector<Verdict>* verdicts, std::vector<PeerId>* ask) {
  if (due_ != 0 && t - due_ > limits_.beat) pardon(t - due_, t);
  due_ = t + kNobodyToWatch;
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& p = it->second;
    Reason why;
    const PeerState now = look(p, t, &why);
    if (now != p.state) {
      if (p.state == PeerState::kUnreachable) p.back = t;
      p.state = now;
      verdicts->push_back({it->first, now, why});
    }
    if (now == PeerState::kDead) {
      it = peers_.erase(it);
      continue;
    }
    if (p.shares && (p.asked == 0 || (t - p.heard >= p.beat && t - p.asked >= p.beat))) {
      p.asked = t;
      ask->push_back(it->first);
    }
    due_ = std::min(due_, due(p, t));
    ++it;
  }
  return due_;
}

}  // namespace cmi::liveness

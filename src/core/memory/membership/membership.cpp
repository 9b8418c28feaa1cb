// Evidence gathered, verdicts carried out, lines and leases kept.
#include "core/memory/membership/membership.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/base/descriptors_left.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/importer/importer.hpp"
#include "fabric/reach.hpp"

namespace cmi::memory {

using fabric::Side;
using fabric::Sign;
using liveness::PeerId;
using liveness::PeerState;
using liveness::Reason;
using liveness::Role;
using liveness::Verdict;

namespace {
// While the service thread is busy with other things.
constexpr Nanos kPollEvery = 200 * kMicro;
// An importer need not ask its home while the home asks it.
constexpr Nanos kHomesBeat = 400 * kMilli;
constexpr Nanos kNothingDue = 3600 * kSecond;
// A listener is probed where there is no lifeline. That leaves a connection behind at its target
// until that context ends: rarely, and only when an answer is overdue.
constexpr Nanos kProbeListenerAfter = 250 * kMilli, kProbeListenerEvery = kSecond;
// When a verdict has fallen; all those of one round together, since nothing else is done meanwhile.
constexpr Nanos kLastProbes = 50 * kMilli;
}  // namespace

Membership::Membership(const Parts& parts)
    : parts_(parts), detector_(liveness::Limits{.dead = parts_.dead_after}) {}

Result<std::unique_ptr<Membership>> Membership::open(const Parts& parts) {
  std::unique_ptr<Membership> w(new Membership(parts));
  if (fault_point_fails("watch_no_lifelines")) return w;
  const std::vector<fabric::ListenerAddress> listeners = w->parts_.server.listeners();
  std::vector<Bytes> at;
  at.reserve(listeners.size());
  for (const auto& listener : listeners) at.emplace_back(listener.blob);
  auto lines = fabric::Lifelines::open(at, w->parts_.self, w->parts_.dead_after, *w);
  if (lines) {
    w->lines_ = lines.take();
  } else if (lines.status() == Status::kNotSupp) {
    trace(kFacIni, kWarn, "provider {} has no IP addresses: no lifelines", listeners[0].provider);
  } else {
    return lines.status();
  }
  return w;
}

void Membership::start(Home& home, Importer& importer) {
  home_ = &home;
  importer_ = &importer;
}

void Membership::stop() {
  if (lines_ != nullptr) lines_->say_goodbye();
}

void Membership::forget_in_child() {
  if (lines_ != nullptr) lines_->forget_in_child();
}

uint64_t Membership::expect(const ContextId& importer) {
  SignalsBlocked quiet;
  uint64_t secret;
  {
    Guard g(mu_);
    // Those that asked and never came are forgotten when there are very many.
    if (expected_.size() >= kMaxExpected && expected_.count(importer) == 0) {
      std::erase_if(expected_, [&](auto& e) { return !parts_.server.clients().knows(e.first); });
    }
    Expected& e = expected_[importer];
    if (e.secret != 0) return e.secret;
    e.secret = secret = random_u64();
    left_.store(true, std::memory_order_release);
  }
  if (lines_ != nullptr) lines_->wake();
  return secret;
}

bool Membership::watch_home(const access::RsegInfo& rseg, const fabric::Link& link, uint16_t port,
                            uint64_t secret, Deadline deadline) {
  const bool line = port != 0 && lines_ != nullptr;
  {
    SignalsBlocked quiet;
    Guard g(mu_);
    if (watched_.count(rseg.home) != 0) return true;
    to_watch_.push_back(
        {rseg.home, rseg.home_node, link.home_listener(), line ? port : uint16_t{0}, secret});
    left_.store(true, std::memory_order_release);
  }
  if (lines_ != nullptr) lines_->wake();
  if (!line) return true;  // judged by what it owes
  while (!deadline.passed()) {
    if (link.condemned()) return false;
    {
      SignalsBlocked quiet;
      Guard g(mu_);
      if (watched_.count(rseg.home) != 0) return true;
    }
    ::usleep(100);
  }
  trace(kFacSeg, kError, "the home's lifelines at port {} cannot be reached", port);
  return false;
}

void Membership::unwatch_home(const ContextId& home) {
  SignalsBlocked quiet;
  {
    Guard g(mu_);
    to_unwatch_.push_back(home);
    left_.store(true, std::memory_order_release);
  }
  if (lines_ != nullptr) lines_->wake();
}

void Membership::look() {
  left_.store(true, std::memory_order_release);
  if (lines_ != nullptr) lines_->wake();
}

void Membership::suspect(const ContextId& peer) {
  SignalsBlocked quiet;
  {
    Guard g(mu_);
    if (std::find(suspects_.begin(), suspects_.end(), peer) == suspects_.end()) {
      suspects_.push_back(peer);
    }
    left_.store(true, std::memory_order_release);
  }
  if (lines_ != nullptr) lines_->wake();
}

Membership::Peer* Membership::find(const ContextId& id) {
  auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : &it->second;
}

Nanos Membership::advance(Nanos t, bool woken) {
  if (!woken && t < due_ && t - polled_ < kPollEvery) return due_;
  polled_ = t_ = t;
  if (lines_ != nullptr) lines_->advance(t);
  if (left_.load(std::memory_order_acquire)) take_in();
  // Proof found while a round is made is judged in the next one, at once.
  while (t >= due_) gather(t);
  return lines_ != nullptr ? std::min(due_, lines_->due()) : due_;
}

// What other threads have left.
void Membership::take_in() {
  std::vector<WatchedHome> follows;
  std::vector<ContextId> unwatched, suspects;
  {
    Guard g(mu_);
    left_.store(false, std::memory_order_relaxed);
    follows.swap(to_watch_);
    unwatched.swap(to_unwatch_);
    suspects.swap(suspects_);
    for (auto& [id, e] : expected_) {
      if (e.taken) continue;
      e.taken = true;
      Peer& p = peers_[id];
      if (!p.importer) p.importer.emplace();
    }
  }
  for (WatchedHome& f : follows) {
    Peer& p = peers_[f.home];
    if (p.home) continue;
    p.home.emplace();
    p.home->node = f.node;
    p.home->listener = std::move(f.listener);
    p.home->met.insert(p.home->listener.blob);
    p.home->port = f.port;
    p.home->secret = f.secret;
    if (f.port != 0) p.home->retry.lose(t_);
  }
  for (const ContextId& id : unwatched) {
    Peer* p = find(id);
    // A line that was up stays, as after the last import; one that another import waits for, too.
    if (p == nullptr || !p->home || p->home->up_since != 0 || p->home->lease != 0 ||
        importer_->homes().imports_from(id)) {
      continue;
    }
    p->home.reset();
    if (lines_ != nullptr) lines_->hang_up(id, Side::kOurs);
    detector_.unlinked({id, Role::kHome}, 0, false);
    if (!p->importer) peers_.erase(id);
  }
  for (const ContextId& id : suspects) {
    detector_.suspect({id, Role::kHome});
    if (Peer* p = find(id); p != nullptr && p->home && p->home->retry.lost) p->home->retry.at = t_;
  }
  look_again_at(t_);
}

// One round: everything that is known goes to the detector, and what it says is done.
void Membership::gather(Nanos t) {
  due_ = t + kNothingDue;
  probes_left_ = kLastProbes;
  if (importer_->reconf_timeout().is_set()) {
    detector_.set_unreachable_after(importer_->reconf_timeout().get());
  }
  std::map<ContextId, Nanos> unacknowledged;
  home_->importers().unacknowledged_since(&unacknowledged);
  if (!unacknowledged.empty() && !descriptors_left(1)) short_of_descriptors(&unacknowledged, t);
  for (auto& [id, since] : unacknowledged) {
    Peer& p = peers_[id];  // it may never have asked for a lifeline
    if (!p.importer) p.importer.emplace();
  }
  for (auto& [id, p] : peers_) {
    auto it = unacknowledged.find(id);
    if (p.home) gather(id, *p.home, t);
    if (p.importer) gather(id, *p.importer, it == unacknowledged.end() ? 0 : it->second, t);
  }
  std::vector<Verdict> verdicts;
  std::vector<PeerId> asks;
  look_again_at(detector_.judge(t, &verdicts, &asks));
  for (const PeerId& peer : asks) ask(peer);
  for (const Verdict& v : verdicts) carry_out(v);
  for (auto& [id, p] : peers_) {
    if (p.home) keep_line(id, *p.home);
    if (p.home) keep_lease(id, *p.home);
    if (p.importer) look_for(id, *p.importer);
  }
  // Those that left before they had a lifeline.
  std::erase_if(peers_, [&](auto& e) {
    return !e.second.home && !e.second.importer->greeted && !parts_.server.clients().knows(e.first);
  });
}

// Our messages may never have left: no importer is at fault for our own need. But an importer that
// has had no lifeline for so long was never let in: it has nothing of ours, and is not waited for.
void Membership::short_of_descriptors(std::map<ContextId, Nanos>* unacknowledged, Nanos t) {
  home_->importers().extend_deadlines();
  for (auto& [id, since] : *unacknowledged) {
    const Peer* p = find(id);
    const bool line = p != nullptr && p->importer && p->importer->greeted;
    if (!line && lines_ != nullptr && t - since > kProbeListenerAfter) {
      detector_.ended({id, Role::kImporter}, Reason::kUnacknowledged);
    }
    since = t;
  }
}

void Membership::gather(const ContextId& id, AsHome& home, Nanos t) {
  const PeerId peer{id, Role::kHome};
  // A line that was up and is lost is waited for like a sign of life.
  if (home.lease != 0 && (home.retry.lost || importer_->homes().imports_from(id))) {
    detector_.share(peer, detector_.limits().beat, t);
  } else {
    detector_.part(peer);
  }
  Nanos unlinked = 0;
  if (auto link = importer_->homes().link_with(id); link != nullptr) {
    // A link that could not be had is tried again even when nobody asks for it at the moment.
    if (link->health().unreachable_since() != 0 || link->health().local_fault()) link->advance();
    detector_.heard(peer, link->health().heard());
    unlinked = link->health().unreachable_since();
  }
  detector_.unlinked(peer, unlinked, home.up_since != 0);
  // A link tells nobody that it cannot be had; where there is a lifeline, that tells.
  const bool links_alone = home.port == 0 && importer_->homes().imports_from(id);
  if (unlinked != 0 || links_alone) look_again_at(t + detector_.limits().beat);
}

void Membership::gather(const ContextId& id, AsImporter& importer, Nanos unacknowledged, Nanos t) {
  const PeerId peer{id, Role::kImporter};
  if (importer.greeted && (importer.retry.lost || home_->importers().knows(id))) {
    detector_.share(peer, kHomesBeat, t);
  } else {
    detector_.part(peer);
  }
  detector_.heard(peer, parts_.server.clients().heard(id));
  detector_.owes(peer, unacknowledged);
  if (unacknowledged == 0) return;
  look_again_at(t + detector_.limits().beat);  // to see it grow old
  if (!importer.greeted && t - unacknowledged > kProbeListenerAfter &&
      t - importer.listener_probed > kProbeListenerEvery) {
    importer.listener_probed = t;
    const auto listener = parts_.server.client_listener(id);
    if (fabric::probe_listener(listener, 2 * kMilli) == fabric::Reach::kRefused) {
      prove_end(peer, Reason::kEnded);
    }
  }
}

void Membership::ask(const PeerId& peer) {
  Peer* p = find(peer.context);
  if (p == nullptr) return;
  const auto value = static_cast<uint64_t>(t_);
  // What fits into no buffer is not said: a peer that does not read is silent anyhow.
  if (peer.role == Role::kImporter) {
    if (p->importer && p->importer->greeted) {
      lines_->send(peer.context, Side::kTheirs, Sign::kAsk, value);
    }
  } else if (p->home && lines_->send(peer.context, Side::kOurs, Sign::kAsk, value)) {
    p->home->asked = t_;
  }
}

// Connects and connects again. What was sent into a network that was down is repeated ever more
// rarely by the kernel: a line that stays silent is replaced, so that it is found out soon when the
// network is back.
void Membership::keep_line(const ContextId& id, AsHome& home) {
  if (home.up_since != 0 && importer_->homes().imports_from(id)) {
    const Nanos quiet_since = std::max(home.up_since, home.heard);
    if (t_ - quiet_since > kSecond &&
        detector_.state({id, Role::kHome}) == PeerState::kUnreachable) {
      home.up_since = 0;
      home.retry.lose(t_);
    }
  }
  if (!home.retry.lost) return;
  if (lines_->trying(id)) return;
  if (t_ >= home.retry.at) {
    home.retry.next(t_);
    home.asked = t_;  // a greeting is answered, too
    // Where it has several listeners, they are tried one after the other.
    if (const auto link = importer_->homes().link_with(id))
      home.listener = link->home_listener(home.tries++);
    lines_->connect(id, home.listener.blob, home.port, home.secret, t_);
  }
  look_again_at(std::max(home.retry.at, t_ + kMilli));
}

void Membership::keep_lease(const ContextId& id, AsHome& home) {
  if (home.lease == 0 || !importer_->homes().imports_from(id)) return;
  const Nanos ends = home.vouched + home.lease;
  if (t_ < ends) {
    look_again_at(ends);
  } else if (!home.lease_expired) {
    home.lease_expired = true;
    trace(kFacMem, kWarn, "context {:016x} has not vouched for us: its pages are out of use",
          id.hi);
    importer_->homes().set_lease_expired(id, true);
  }
  // Asked for in time even when there is so much traffic that no heartbeat is due.
  const Nanos every = home.lease_expired ? detector_.limits().beat : home.lease / 4;
  const Nanos again = std::max(home.vouched, home.asked) + every;
  if (t_ < again) return look_again_at(again);
  lines_->send(id, Side::kOurs, Sign::kAsk, static_cast<uint64_t>(t_));
  home.asked = t_;
  look_again_at(t_ + every);
}

// An importer whose line has ended: does it live?
void Membership::look_for(const ContextId& id, AsImporter& importer) {
  if (!importer.retry.lost) return;
  if (t_ >= importer.retry.at) {
    importer.retry.next(t_);
    if (importer.slot && !parts_.node.members().alive(*importer.slot, id)) {
      return prove_end({id, Role::kImporter}, Reason::kEnded);
    }
    lines_->probe(id, parts_.server.client_listener(id).blob, importer.listener_port, t_);
  }
  look_again_at(std::max(importer.retry.at, t_ + kMilli));
}

}  // namespace cmi::memory

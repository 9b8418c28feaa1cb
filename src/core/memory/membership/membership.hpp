// Who of those that we share segments with is alive: brings the evidence of the whole process to
// the detector (liveness/detector.hpp) and carries out its verdicts. Evidence: signs and ends of
// the lifelines, what links and server have heard, acknowledgements that are overdue, links that
// cannot be had, liveness locks of the node. Verdicts: the home side fences and forgets an
// importer, the importing side gives a home up; an observer is told.
//
// Keeps the lease, too: a home vouches in its answers to our heartbeats that it has heard us, and
// for as long as it did lately, what we have cached of it may be used. When that runs out, the
// pages are taken out of use before the home can have declared us dead, and come back with its next
// vouching (liveness::lease_of).
//
// Threads: the service thread, but for what says otherwise. mu_ is a leaf and guards what other
// threads leave for the service thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/lock.hpp"
#include "core/liveness/detector.hpp"
#include "core/liveness/peer_watch.hpp"
#include "core/memory/home/lock_order.hpp"
#include "core/memory/membership/peer_record.hpp"
#include "core/memory/page/observer.hpp"
#include "core/node/node.hpp"
#include "fabric/lifeline.hpp"
#include "fabric/link.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

class Home;
class Importer;

class Membership final : public liveness::PeerWatch, private fabric::LifelineOwner {
 public:
  struct Parts {
    node::Node& node;
    fabric::Server& server;
    ContextId self;
    Nanos dead_after = 0;
    Observer& observer;
  };
  // Without an IP address (a provider with other ones) there are no lifelines: then only overdue
  // answers are evidence.
  static Result<std::unique_ptr<Membership>> open(const Parts& parts);
  // Before the service thread runs. Both must stay until stop().
  void start(Home& home, Importer& importer);
  // After the service thread has ended: tells the peers that this is the end.
  void stop();

  // liveness::PeerWatch
  uint16_t port() const override { return lines_ != nullptr ? lines_->port() : 0; }
  uint64_t expect(const ContextId& importer) override;
  bool watch_home(const access::RsegInfo& rseg, const fabric::Link& link, uint16_t port,
                  uint64_t secret, Deadline deadline) override;
  void unwatch_home(const ContextId& home) override;
  Nanos dead_after() const override { return parts_.dead_after; }
  void look() override;
  void suspect(const ContextId& peer) override;

  int descriptor() const { return lines_ != nullptr ? lines_->descriptor() : -1; }
  // `woken`: by a descriptor, or something may have come in. Returns when it wants to be called
  // again.
  Nanos advance(Nanos t, bool woken);

  void forget_in_child();

 private:
  using Peer = PeerRecord;
  using AsHome = PeerRecord::AsHome;
  using AsImporter = PeerRecord::AsImporter;

  struct WatchedHome {
    ContextId home;
    NodeId node;
    fabric::ListenerAddress listener;
    uint16_t port;
    uint64_t secret;
  };
  struct Expected {
    uint64_t secret = 0;
    bool taken = false;  // the service thread knows of it
  };
  static constexpr size_t kMaxExpected = 4 * fabric::kMaxClients;

  explicit Membership(const Parts& parts);

  // fabric::LifelineOwner
  bool admits(const ContextId& peer, uint64_t secret) override;
  bool follows(const ContextId& home) override;
  void on_up(const ContextId& id, fabric::Side side, uint16_t listener_port,
             uint64_t value) override;
  void on_sign(const ContextId& id, fabric::Side side, fabric::Sign sign, uint64_t value) override;
  void on_lost(const ContextId& id, fabric::Side side) override;
  void on_refused(const ContextId& id, fabric::Side side) override;

  Peer* find(const ContextId& id);
  void take_in();
  void gather(Nanos t);
  void short_of_descriptors(std::map<ContextId, Nanos>* unacknowledged, Nanos t);
  void gather(const ContextId& id, AsHome& home, Nanos t);
  void gather(const ContextId& id, AsImporter& importer, Nanos unacknowledged, Nanos t);
  void carry_out(const liveness::Verdict& v);
  void carry_out_death(const liveness::Verdict& v, Peer* p);
  bool out_of_reach(const liveness::PeerId& peer);
  void notify_unreachable(const liveness::PeerId& peer, Peer* p);
  void ask(const liveness::PeerId& peer);
  void keep_line(const ContextId& id, AsHome& home);
  void keep_lease(const ContextId& id, AsHome& home);
  void look_for(const ContextId& id, AsImporter& importer);
  void prove_end(const liveness::PeerId& peer, liveness::Reason proof);
  void look_again_at(Nanos t) { due_ = std::min(due_, t); }

  const Parts parts_;
  Home* home_ = nullptr;
  Importer* importer_ = nullptr;
  std::unique_ptr<fabric::Lifelines> lines_;
  liveness::Detector detector_;
  std::map<ContextId, Peer> peers_;
  Nanos t_ = 0;  // of the advance() that runs
  Nanos due_ = 0, polled_ = 0;
  Nanos probes_left_ = 0;  // of the round's time for probing listeners

  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_rounds);
  std::map<ContextId, Expected> expected_ CMI_GUARDED_BY(mu_);
  std::vector<WatchedHome> to_watch_ CMI_GUARDED_BY(mu_);
  std::set<ContextId> watched_ CMI_GUARDED_BY(mu_);  // whose line was up once
  std::vector<ContextId> suspects_ CMI_GUARDED_BY(mu_);
  std::atomic<bool> left_{false};  // something lies in these, or in the next
  std::vector<ContextId> to_unwatch_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory

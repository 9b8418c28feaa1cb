// What one context starts toward one other: a connection of its own (an initiating endpoint here, a
// serving endpoint there) over which one-sided operations and requests go, rebuilt when it breaks.
//
// A Session is one life of the connection. A rebuilt connection has a new generation: the home has
// fenced the old one (closed its serving endpoint and its session keys) before it welcomes the new
// one, so nothing sent on the old one can still take effect.
//
// Requests have numbers and are sent again, under the same number, on each new Session until they
// are answered; the home executes each number once.
//
// A Link connects its parts with the session that is current: RoutePicker (where to connect),
// RequestWindow (what is asked), DirectAckLog (what was answered directly) and LinkHealth. mu_
// guards the first three together, because each of their changes must see one and the same session.
//
// Threads: any. advance() is what moves a connection forward without blocking; the service thread
// calls it from its loop, waiting threads from theirs. mu_ is never held across a poll.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/direct_ack_log.hpp"
#include "fabric/fabric.hpp"
#include "fabric/link_health.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/request.hpp"
#include "fabric/request_window.hpp"
#include "fabric/ring/dialer.hpp"
#include "fabric/route_picker.hpp"
#include "fabric/session.hpp"

namespace cmi::fabric {

// What a context says of itself when it opens a link.
struct Identity {
  ContextId id;
  NodeId node;
  uint64_t notification_secret = 0;  // notifications to us must carry it
  std::vector<std::byte> listener;   // our listener's address; for a link with one route
};

// Size: requests, sessions and rings are one state under one lock.
class Link {
 public:
  using Taking = RoutePicker::Taking;
  // For routes, `dead_after` and `taking` see RoutePicker. `taking` runs with the link's lock held.
  // Counts in `held_back` the requests that wait because the home takes no more.
  Link(std::vector<Route> routes, Identity self, ContextId home, Nanos dead_after, Taking taking,
       std::atomic<uint64_t>* held_back = nullptr);
  Link(Fabric& fabric, Identity self, ContextId home, std::vector<std::byte> home_listener,
       Nanos dead_after = 10 * kSecond);
  ~Link();  // no user may be left

  const ContextId& home() const { return home_; }
  // The listener of the home that the link goes to, or tries to, at the moment; `next`: of so many
  // routes further on.
  ListenerAddress home_listener(size_t next = 0) const {
    return listener_of(routes_.current(next));
  }
  std::vector<ListenerAddress> home_listeners() const;  // each once
  // Which routes there are, and which one the link goes by; what needs no lock.
  const RoutePicker& routes() const { return routes_; }
  // When the home was last heard of, and whether it can be reached.
  const LinkHealth& health() const { return health_; }
  void alive_at(Nanos t) { health_.alive_at(t); }  // the home has given a sign over its lifeline

  // The live session, connecting if needed. Null when that was not possible by the deadline.
  std::shared_ptr<Session> session(Deadline deadline);
  std::shared_ptr<Session> current();  // null when there is none right now; never connects
  // The session is of no use any more. Its users see broken() and release it.
  void retire(const std::shared_ptr<Session>& session);

  // Queues a request; it is sent now or as soon as there is a session. DirectAcks::kTaken: a secret
  // (u64, or 0) goes behind the payload. The home may split it into ack tokens, one for each
  // receiver of its notifications. When all tokens have come back, the request is answered
  // (kReceived) and the home's own answer is not waited for.
  enum class DirectAcks : uint8_t { kNone, kTaken };
  std::shared_ptr<Request> start(uint16_t type, Bytes payload, Request::Callback on_answer = {},
                                 DirectAcks direct_acks = DirectAcks::kNone);
  // kOk: answered. kTimeout: not by the deadline; it stays queued unless forgotten. kPeerLost: the
  // link was condemned.
  Cause await(const std::shared_ptr<Request>& request, Deadline deadline);
  void forget(const std::shared_ptr<Request>& request);
  // For a request that may have no waiter any more: `late` runs once, with no lock held, when it is
  // answered or ends without an answer, before it counts as over. False: it is over.
  bool when_late(const std::shared_ptr<Request>& request, std::function<void()> late);
  // Ends as lost all requests that were begun by then and have no answer, and ends the session. A
  // request that has not taken effect when the home welcomes the next session never will.
  void give_up(Nanos asked_before);
  // start + await, forgotten on failure.
  Result<std::vector<std::byte>> call(uint16_t type, Bytes payload, Deadline deadline);

  // The home is on this machine: requests go by rings from the next time on that there is a
  // session, and by now if there is one. Nothing where the link has a dialer.
  void go_by_rings(std::unique_ptr<ring::Dialer> dialer);
  // Rings could not be passed, and it is time to try once more: dial_again().
  bool dial_due() const {
    const Nanos due = dial_due_.load(std::memory_order_relaxed);
    return due != 0 && now() >= due;
  }
  void dial_again();

  // The home is dead for good: pending requests fail, nothing is started or connected any more.
  // False: it was condemned before.
  bool condemn();
  bool condemned() const { return condemned_.load(std::memory_order_acquire); }

  // Tells the home which requests direct acknowledgements have answered. The next request says so
  // as well, unless an earlier one has no answer. To be called from time to time: a home that gets
  // no report asks the receivers. False: there is nothing to report.
  bool report_acked_below();
  // Non-blocking progress: connects if something is queued, polls, pumps, notices stalls.
  // Returns how many events there were.
  int advance();
  void pump(Session& s) { s.pump(); }
  size_t pending() const { return window_.pending(); }  // requests
  // Of these, how many the home takes at once at the moment.
  size_t allowed() const { return window_.allowed(); }
  bool has_pending() const { return pending() != 0; }
  // A thread waits on this link and takes in all that comes, and there is nothing else to be done
  // for the link.
  bool left_to_waiters();
  bool has_detached() const { return detached_count_.load(std::memory_order_relaxed) != 0; }
  // Of requests without an answer; more are sent as these are answered.
  static constexpr size_t kMostUnderWay = RequestWindow::kMostUnderWay;
  // Silence after which a session that owes an answer is rebuilt.
  static constexpr Nanos kStall = 500 * kMilli;
  // The same while a swap is under way: its result is lost with the session, for good.
  static constexpr Nanos kSwapStall = 5 * kSecond;

 private:
  // Between two attempts to pass rings: each pause is twice as long as the one before.
  static constexpr Nanos kShortestDialPause = 10 * kMilli, kLongestDialPause = 10 * kSecond;
  friend class Session;
  static ListenerAddress listener_of(const Route& r) {
    return {r.fabric->traits().provider, r.home_listener};
  }

  // Connecting: link_connect.cpp.
  void connect_locked() CMI_REQUIRES(mu_);
  void no_endpoint_locked(Status why) CMI_REQUIRES(mu_);
  void say_hello_locked(const std::shared_ptr<Session>& s) CMI_REQUIRES(mu_);
  void trace_next_route_locked(const Route& before) CMI_REQUIRES(mu_);
  bool stalled_locked() CMI_REQUIRES(mu_);
  void dial_locked(Session& s) CMI_REQUIRES(mu_);
  bool up_locked() const CMI_REQUIRES(mu_) {
    return current_ != nullptr && current_->up_.load(std::memory_order_acquire);
  }
  // What arrives on a session.
  void welcomed(Session& s, const Frame& f);
  void refused(const Session& s, const Frame& f);
  void has_ring(Session& s);
  void replied(Session& s, const Frame& f);
  void received(Session& s, const Frame& f);
  // Requests: link.cpp.
  void send_locked(Session& s, Request& r) CMI_REQUIRES(mu_);
  void send_more_locked(Session& s, Nanos t) CMI_REQUIRES(mu_);
  void answered_locked(Session& s, const Request& r, Nanos t) CMI_REQUIRES(mu_);
  void fail_pending();
  static void answer(Request& r, Bytes reply);
  static void lost(Request& r, Cause cause);

  const Identity self_;
  const ContextId home_;
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_hello)
      CMI_ACQUIRED_BEFORE(lock_order::after_sessions);
  RoutePicker routes_;                      // changed under mu_
  RequestWindow window_;                    // mu_, but for pending() and allowed()
  std::atomic<uint64_t>* const held_back_;  // null: nowhere
  DirectAckLog direct_acks_ CMI_GUARDED_BY(mu_);
  Secrets secrets_ CMI_GUARDED_BY(mu_);
  std::unique_ptr<ring::Dialer> dialer_ CMI_GUARDED_BY(mu_);
  bool ring_refused_ CMI_GUARDED_BY(mu_) = false;  // the home has lied in one
  Nanos dial_pause_ CMI_GUARDED_BY(mu_) = kShortestDialPause;
  std::atomic<Nanos> dial_due_{0};                        // 0: no attempt has failed
  std::shared_ptr<Session> current_ CMI_GUARDED_BY(mu_);  // up or connecting
  Nanos connecting_since_ CMI_GUARDED_BY(mu_) = 0;        // once it is up: since when it is
  uint32_t generation_ CMI_GUARDED_BY(mu_) = 0;
  LinkHealth health_;
  std::atomic<size_t> detached_count_{0};  // of all its sessions
  std::atomic<bool> condemned_{false};
};

}  // namespace cmi::fabric

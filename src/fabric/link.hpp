// What one context starts toward one other: a connection of its own (an initiating endpoint here, a
// serving endpoint there) over which one-sided operations and requests go, rebuilt when it breaks.
//
// A Session is one life of the connection. Users hold it by shared_ptr; the endpoint is closed when
// the last one lets go, so a buffer whose operation was given up is free once its life() has
// expired. A rebuilt connection has a new generation: the home has fenced the old one
// (closed its serving endpoint and its session keys) before it welcomes the new one, so nothing
// sent on the old one can still take effect.
//
// Where both have several listeners there are several routes. One that does not answer a hello, or
// whose connection has broken and does not come back, gives way to the next, and the last to the
// first: to the home it is a new generation like any other.
//
// Requests have numbers and are sent again, under the same number, on each new Session until they
// are answered; the home executes each number once.
//
// Threads: any. advance() is what moves a connection forward without blocking; the service thread
// calls it from its loop, waiting threads from theirs. mu_ is never held across a poll.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/fabric.hpp"
#include "fabric/port.hpp"

namespace cmi::fabric {

// What a context says of itself when it opens a link.
struct Identity {
  ContextId id;
  NodeId node;
  uint64_t notification_secret = 0;  // notices to us must carry it
  std::vector<std::byte>
      listener;  // where our listener listens, same provider; for a link with one route
};

// From one of our listeners to one of the home's, of the same provider.
struct Route {
  Fabric* fabric = nullptr;  // what we start goes by it
  size_t via = 0;            // number of our listener, as Server counts them
  bool cas = false;          // its swaps are coherent with the CPU's
  std::vector<std::byte> own_door, home_listener;
};

class Link;

class Session : public Receiver, public std::enable_shared_from_this<Session> {
 public:
  ~Session() override;
  uint32_t generation() const { return generation_; }
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  Endpoint& endpoint() { return port_->endpoint(); }
  Fabric& fabric() { return *route_.fabric; }

  // One-sided, waiting. kOk: done. Everything else: the link may be broken, and what the operation
  // was given stays in use until this Session is destroyed. `meanwhile` may run when it is on
  // its way, unless others wait for the link, too.
  Cause read(void* to, size_t len, RemoteKey from, uint64_t offset, Deadline deadline,
             const std::function<void()>& meanwhile = {});
  Cause write(const void* from, size_t len, RemoteKey to, uint64_t offset, Deadline deadline);
  Cause cas(uint64_t* found, uint64_t expected, uint64_t desired, RemoteKey at, uint64_t offset,
            Deadline deadline);

  // One-sided, not waiting. `ended` runs once, with no lock held: with kOk on a thread that polls;
  // with anything else after this Session was closed, so that the memory is free and what has not
  // taken effect at the home never will once there is a new Session. Until then the fate is open.
  using Ended = std::function<void(Cause)>;
  void start_read(void* to, size_t len, RemoteKey from, uint64_t offset, Ended ended);
  void start_write(const void* from, size_t len, RemoteKey to, uint64_t offset, Ended ended);
  // Expires when the endpoint is closed: nothing touches what operations were given any more.
  std::weak_ptr<void> life() const { return life_; }

  void on_message(Endpoint& ep, Bytes message) override;

 private:
  friend class Link;
  struct Slot {  // an op and the words an atomic works on
    Op op;
    uint64_t found = 0, expected = 0, desired = 0;
  };
  struct Detached {  // an operation that nobody waits for
    explicit Detached(Session& s) : op(&Detached::over, this), session(s) {}
    static void over(Op& op);
    Op op;
    Session& session;
    size_t len = 0;
    std::function<Post(Op&)> post;
    Ended ended;
    std::list<Detached>::iterator self;
  };
  // Bytes of detached operations that are posted at once: enough to keep a wire busy, little enough
  // that a page somebody waits for is not far behind.
  static constexpr size_t kDetachedBytes = size_t{8} << 20;

  Session(Link& link, const Route& route, uint32_t generation)
      : link_(link), route_(route), generation_(generation) {}
  void start(size_t len, std::function<Post(Op&)> post, Ended ended);
  int pump();  // send buffers, and detached operations that could not be posted yet
  Slot* take_slot();
  void give_slot(Slot* slot);
  Cause finish(Slot* slot, Cause c);
  template <class PostFn>
  Cause run(Slot& slot, Deadline deadline, PostFn post,
            const std::function<void()>& meanwhile = {});

  Link& link_;
  const Route& route_;  // one of the link's
  const uint32_t generation_;
  const uint64_t nonce_ =
      random_u64();                  // told in the hello; only the home's listener can welcome us
  std::atomic<bool> up_{false};      // release: home_ and secret_ are set
  std::atomic<bool> broken_{false};  // no new operation; users let go
  std::atomic<Nanos> heard_{0};      // last sign of life
  Peer door_{}, home_{};
  uint64_t secret_ = 0;
  Mutex slots_mu_;
  std::vector<std::unique_ptr<Slot>> slots_ CMI_GUARDED_BY(slots_mu_);
  std::vector<Slot*> free_slots_ CMI_GUARDED_BY(slots_mu_);
  std::atomic<Slot*> spare_{nullptr};  // a free one, for who is alone: no lock
  std::shared_ptr<void> life_ = std::make_shared<char>();
  Mutex detached_mu_;
  std::list<Detached> detached_ CMI_GUARDED_BY(detached_mu_);
  std::deque<Detached*> unposted_ CMI_GUARDED_BY(detached_mu_);
  size_t detached_bytes_ CMI_GUARDED_BY(detached_mu_) = 0;  // posted
  std::atomic<size_t> detached_count_{0};
  std::atomic<Nanos> detached_since_{0};  // when the first after none was started
  std::unique_ptr<Port> port_;            // last: closed first
};

class Request {
 public:
  // Takes the reply, which is not kept then; an empty one when none will come. On the polling
  // thread, no lock held.
  using Callback = std::function<void(Bytes)>;
  bool answered() const { return op_.done(); }
  Bytes reply() const { return reply_; }  // once answered, without a callback
  uint64_t number() const { return number_; }
  Op& op() { return op_; }  // to wait for

 private:
  friend class Link;
  Op op_;  // done when the reply is here, so that waiting for it is waiting for an op
  uint64_t number_ = 0;
  uint16_t type_ = 0;
  // When it was sent last, and whether that was to ask again; guarded by Link::mu_, as begun_at_
  // is, and what is known of direct acks.
  Nanos begun_at_ = 0, sent_at_ = 0;
  bool repeated_ = false;
  bool receipts_ = false;  // its payload ends with the secret, or 0
  uint64_t secret_ = 0;    // 0: none is told, or the session has gone that it was told on
  uint64_t missing_ = 0;   // of that, the shares that have not been received
  size_t received_ = 0;    // how many have, and which
  std::array<uint64_t, kMostDirectAcks> shares_;
  // False: it has come before, or there cannot be so many.
  bool take_share(uint64_t share) {
    const auto seen = std::span(shares_).first(received_);
    if (received_ == shares_.size() || std::find(seen.begin(), seen.end(), share) != seen.end()) {
      return false;
    }
    shares_[received_++] = share;
    missing_ ^= share;
    return true;
  }
  // A copy that lives as long as this does. Most are a few words and lie in `little_`.
  Bytes keep(Bytes b) {
    if (b.empty()) return {};
    void* copy = memory_.allocate(b.size(), 1);
    return {static_cast<std::byte*>(std::memcpy(copy, b.data(), b.size())), b.size()};
  }
  std::array<std::byte, 192> little_;
  std::pmr::monotonic_buffer_resource memory_{little_.data(), little_.size()};
  Bytes payload_, reply_;
  Callback on_answer_;
  std::function<void()> late_;  // guarded by Link::mu_ while it is pending
};

class Link {
 public:
  // Of routes that lead to the home, the best first; at least one. `taking` is called before one is
  // taken for the first time, or instead of another, with the link's lock held: what the home sends
  // to our listener has to be understood from then on. False: not this one.
  // `dead_after`: when a home that cannot be reached counts as dead.
  using Taking = std::function<bool(const Route&)>;
  Link(std::vector<Route> routes, Identity self, ContextId home, Nanos dead_after, Taking taking);
  Link(Fabric& fabric, Identity self, ContextId home, std::vector<std::byte> home_listener,
       Nanos dead_after = 10 * kSecond);
  ~Link();  // no user may be left

  const ContextId& home() const { return home_; }
  // The listener of the home that the link goes to, or tries to, at the moment; `next`: of so many
  // routes further on.
  ListenerAddress home_listener(size_t next = 0) const {
    return door_of(routes_[(route_.load(std::memory_order_relaxed) + next) % routes_.size()]);
  }
  std::vector<ListenerAddress> home_doors() const;  // each once
  const Route& route() const { return routes_[route_.load(std::memory_order_relaxed)]; }
  size_t routes() const { return routes_.size(); }
  // Swaps may go by the provider, whichever route is taken.
  bool cas() const { return cas_; }

  // The live session, connecting if needed. Null when that was not possible by the deadline.
  std::shared_ptr<Session> session(Deadline deadline);
  std::shared_ptr<Session> current();  // null when there is none right now; never connects
  // The session is of no use any more. Its users see broken() and let go.
  void retire(const std::shared_ptr<Session>& session);

  // Queues a request; it is sent now or as soon as there is a session. Receipts::kTaken: behind the
  // payload goes a secret, u64, or 0. Where the home shares it out among those whom it tells, and
  // the shares come back from them (Receipt), that is the answer: kReceived, and the home's own is
  // not waited for.
  enum class DirectAcks : uint8_t { kNone, kTaken };
  std::shared_ptr<Request> start(uint16_t type, Bytes payload, Request::Callback on_answer = {},
                                 DirectAcks direct_acks = DirectAcks::kNone);
  // kOk: answered. kTimeout: not by the deadline; it stays queued unless forgotten. kPeerLost: the
  // link was condemned.
  Cause await(const std::shared_ptr<Request>& request, Deadline deadline);
  void forget(const std::shared_ptr<Request>& request);
  // Of one that nobody may be waiting for any more: `late` runs once, with no lock held, when it is
  // answered or ends without an answer, before it counts as over. False: it is over.
  bool when_late(const std::shared_ptr<Request>& request, std::function<void()> late);
  // Ends as lost what was asked before then and has no answer, and the session with it: what of it
  // has not taken effect by the time the home welcomes the next session never will.
  void give_up(Nanos asked_before);
  // start + await, forgotten on failure.
  Result<std::vector<std::byte>> call(uint16_t type, Bytes payload, Deadline deadline);

  // The home is dead for good: what is pending fails, nothing is started or connected any more.
  // False: it was condemned before.
  bool condemn();
  bool condemned() const { return condemned_.load(std::memory_order_acquire); }

  // Tells the home what has ended with direct acks, which the next request would, unless something
  // before it has no answer. From time to time: a home that does not hear of it asks those whom it
  // has told. False: there is nothing to tell.
  bool report_acked_below();
  // Non-blocking progress: connects if something is queued, polls, pumps, notices stalls.
  // Returns how many events there were.
  int advance();
  void pump(Session& s) { s.pump(); }
  size_t pending() const { return pending_count_.load(std::memory_order_relaxed); }  // requests
  bool has_pending() const { return pending() != 0; }
  // A thread waits for something of this link, and takes in all that comes; and there is nothing
  // else to be done for it.
  bool left_to_waiters();
  bool has_detached() const { return detached_count_.load(std::memory_order_relaxed) != 0; }
  // When the peer was last heard of (0: never).
  Nanos heard() const { return heard_.load(std::memory_order_relaxed); }
  // No session could be had since then, although this side had all it takes (0: there is one, or
  // nobody asked).
  Nanos unreachable_since() const { return unreachable_since_.load(std::memory_order_relaxed); }
  // From a request's (last) sending to its answer, the last time (0: never).
  Nanos took() const { return took_.load(std::memory_order_relaxed); }
  // The last session failed, or the next could not begin, by a fault of this side.
  bool local_fault() const { return local_fault_.load(std::memory_order_acquire); }
  // The provider took none of the home's listeners for an address: nothing will ever answer.
  bool without_door() const { return without_door_.load(std::memory_order_relaxed); }
  // Of requests without an answer; more are sent as these are answered. Half of what a server
  // takes.
  static constexpr size_t kMostUnderWay = 8192;
  // Silence after which a session that owes an answer is rebuilt.
  static constexpr Nanos kStall = 500 * kMilli;

 private:
  static ListenerAddress door_of(const Route& r) {
    return {r.fabric->traits().provider, r.home_listener};
  }
  friend class Session;
  void fail_pending();
  void connect_locked() CMI_REQUIRES(mu_);
  Nanos patience_locked() const CMI_REQUIRES(mu_);
  void try_another_locked() CMI_REQUIRES(mu_);
  void no_door_locked() CMI_REQUIRES(mu_);
  std::deque<std::shared_ptr<Request>>::iterator behind_locked(uint64_t number) CMI_REQUIRES(mu_);
  void ask_again_locked(Session& s, Nanos since) CMI_REQUIRES(mu_);
  void repeat_locked(Session& s, Request& r, Nanos t) CMI_REQUIRES(mu_);
  void send_locked(Session& s, Request& r, Nanos t) CMI_REQUIRES(mu_);
  void send_more_locked(Session& s, Nanos t) CMI_REQUIRES(mu_);
  std::shared_ptr<Request> take_locked(uint64_t number) CMI_REQUIRES(mu_);
  void welcomed(Session& s, const Frame& f);
  void replied(Session& s, const Frame& f);
  void received(Session& s, const Frame& f);
  static void answer(Request& r, Bytes reply);
  std::deque<std::shared_ptr<Request>>::iterator find_locked(uint64_t number) CMI_REQUIRES(mu_);
  uint64_t settled_locked() const CMI_REQUIRES(mu_);
  void receipts_missed_locked(const Request& r, Nanos t) CMI_REQUIRES(mu_);
  static void lost(Request& r, Cause cause);
  bool stalled(Session& s, Nanos since) const;

  const std::vector<Route> routes_;
  const bool cas_;
  const Identity self_;
  const ContextId home_;
  const Taking taking_;
  std::atomic<size_t> route_{0};  // stored under mu_
  Mutex mu_;
  bool taken_ CMI_GUARDED_BY(mu_) = false;     // route_ was told to taking_
  size_t in_vain_ CMI_GUARDED_BY(mu_) = 0;     // routes tried since there was a session
  size_t not_opened_ CMI_GUARDED_BY(mu_) = 0;  // routes in a row on which we got no endpoint
  size_t no_doors_ CMI_GUARDED_BY(mu_) = 0;    // routes in a row whose listener is no address
  std::shared_ptr<Session> current_ CMI_GUARDED_BY(mu_);  // up or connecting
  Nanos connecting_since_ CMI_GUARDED_BY(mu_) = 0;        // once it is up: since when it is
  Nanos owed_since_ CMI_GUARDED_BY(mu_) = 0;   // the first request after none was pending
  Nanos asked_again_ CMI_GUARDED_BY(mu_) = 0;  // when the oldest request was last repeated
  uint64_t asked_to_ CMI_GUARDED_BY(mu_) = 0;  // the last of those behind it that was looked at
  uint32_t generation_ CMI_GUARDED_BY(mu_) = 0;
  uint64_t next_number_ CMI_GUARDED_BY(mu_) = 1;
  std::deque<std::shared_ptr<Request>> pending_ CMI_GUARDED_BY(mu_);  // by number
  uint64_t sent_to_ CMI_GUARDED_BY(mu_) = 0;  // of those, on this session; the rest has to wait
  Secrets secrets_ CMI_GUARDED_BY(mu_);
  std::vector<uint64_t> received_ CMI_GUARDED_BY(mu_);  // with these; the home has not been told
  // The first that was given up with its direct acks missing: to call it settled would say that it
  // had them, until the next session.
  uint64_t unsettled_ CMI_GUARDED_BY(mu_) = UINT64_MAX;
  // A request was answered by the home because direct acks did not come: none are asked for until
  // then, the longer the more often in a row that was so. What had been asked by then counts once.
  Nanos receipts_from_ CMI_GUARDED_BY(mu_) = 0, without_ CMI_GUARDED_BY(mu_) = 0;
  std::atomic<size_t> pending_count_{0}, detached_count_{0};  // the latter of all its sessions
  std::atomic<Nanos> heard_{0}, unreachable_since_{0}, took_{0};
  std::atomic<bool> condemned_{false}, local_fault_{false}, without_door_{false};
  const Nanos longest_wait_;  // for the answer to one hello
};

}  // namespace cmi::fabric

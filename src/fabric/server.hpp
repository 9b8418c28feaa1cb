// The side that is reached: listeners that take first contacts, hands each initiator a serving
// endpoint of its own, and delivers requests, exactly once each, to a handler. The listeners also
// carry notices to other listeners and their acknowledgements.
//
// There is a listener for each fabric that we are given, by number in their order. A client comes
// by one of them, and may come by another with its next generation; its numbers and answers go with
// it.
//
// A client that comes back with a newer generation has its old serving endpoint closed before it is
// welcomed: whatever its old connection still carried is then without effect (a fence). The handler
// closes that client's session keys in on_new_session, which runs in between.
//
// Threads: any; poll() by several at once. mu_ is never held while the handler runs or while an
// endpoint is polled or closed. Handlers must not block.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/fabric.hpp"
#include "fabric/port.hpp"

namespace cmi::fabric {

inline constexpr size_t kMaxClients = 1024;  // of a server; further hellos are dropped
// From so many on, who has said hello and nothing that the handler kept makes room for newcomers
// after kStrangersStay of silence: first contacts cost nothing, and each takes descriptors here.
inline constexpr size_t kCrowded = 128;
inline constexpr Nanos kStrangersStay = kSecond;

struct ClientInfo {
  ContextId id;
  NodeId node;
  size_t via = 0;  // which of our listeners its present session came by: Server::fabric()
};

// What the receiver of a notification gives to who waits until it is followed, beside the home that
// sent it: a share of a secret that he has chosen. Who has all shares knows that all have followed
// it, and nobody can give another one's.
struct DirectAck {
  uint64_t number = 0;  // of his request; 0: nobody is to have one
  uint64_t share = 0;
  Bytes to;  // his initiating endpoint
};

class ServerHandler {
 public:
  virtual ~ServerHandler() = default;
  // False: not welcome (its context was declared dead).
  virtual bool on_hello(const ClientInfo& client) = 0;
  // The client's old serving endpoint is closed; its session keys must be closed before this
  // returns.
  virtual void on_new_session(const ClientInfo& client) = 0;
  // A request, once per number. Answer with Server::reply, now or later.
  virtual void on_request(const ClientInfo& client, uint64_t number, uint16_t type,
                          Reader payload) = 0;
  // A notice from a home that add_home named; `secret` and `number` go back with Server::ack.
  // `direct ack`: to be given with Server::give, instead of the acknowledgement where that
  // succeeds.
  virtual void on_notification(const ContextId& home, uint64_t secret, uint64_t number,
                               uint16_t type, Reader payload, const DirectAck& direct_ack) = 0;
  // Requests below this number, of which some had no answer, and these behind it are over at the
  // client, who has had direct acks for them.
  virtual void on_acked_below(const ContextId& client, uint64_t below,
                              std::span<const uint64_t> behind) = 0;
  virtual void on_ack(const ContextId& client, uint64_t number, Reader payload) = 0;
  // Nothing is kept for this client: its connection may be closed after a long silence.
  virtual bool may_sweep(const ContextId& client) = 0;
};

class Server : public Receiver {
 public:
  static Result<std::unique_ptr<Server>> open(Fabric& fabric, ContextId self,
                                              ServerHandler& handler) {
    return open(std::vector<Fabric*>{&fabric}, self, handler);
  }
  static Result<std::unique_ptr<Server>> open(std::vector<Fabric*> fabrics, ContextId self,
                                              ServerHandler& handler);
  ~Server() override;

  Bytes door_address(size_t via = 0) const { return doors_[via]->endpoint().address(); }
  std::vector<ListenerAddress> listeners() const;
  Fabric& fabric(size_t via) const { return *fabrics_[via]; }

  // Memory that the client is to reach, on the fabric that it came by and at its serving endpoint,
  // if not at others as well. Null while it has no such endpoint: no key would be of use to it.
  Result<std::unique_ptr<Region>> register_for(const ContextId& client, void* addr, size_t len,
                                               uint32_t rights, uint64_t wanted_key);
  // The same at a listener, for nobody in particular.
  Result<std::unique_ptr<Region>> register_at(size_t via, void* addr, size_t len, uint32_t rights,
                                              uint64_t wanted_key);

  // To a client, on its present session. Kept until the client says it has it.
  // Shared: those who were told of what it did were asked for direct acks.
  void reply(const ContextId& client, uint64_t number, Bytes payload, Shared shared = Shared::kNo);
  // To a client's listener. False when there is no such client. `last`: it is fenced next.
  bool notification(const ContextId& client, uint64_t number, uint16_t type, Bytes payload,
                    bool last = false, const DirectAck& direct_ack = {});
  // Whether these can give direct acks to this client: they are reached over the fabric that it
  // came by. Returns where it is to be had, in `to` (kMaxDirectAckAddress bytes); empty: they
  // cannot.
  Bytes receives_from(const ContextId& client, std::span<const ContextId> givers,
                      std::span<std::byte> to);
  // By the listener that reaches this home. True: over a connection that has carried one before, so
  // the home need not be told as well.
  bool give(const ContextId& home, const DirectAck& direct_ack);
  // Homes whose notices are heard. Their listener as in their handles, and which of ours reaches
  // it; for a home that is known already the new way to it. `secret` is what our hello tells that
  // home and no other, and what its notifications must carry.
  Status add_home(const ContextId& home, Bytes listener, uint64_t secret, size_t via = 0);
  void ack(const ContextId& home, uint64_t secret, uint64_t number, Bytes payload = {});

  // Cuts a client off: its serving endpoint is closed when this returns, its messages are dropped
  // from now on. `forever`: it is not welcomed again. Not from a handler of that client's request.
  void fence(const ContextId& client, bool forever);
  // Lets go of clients that have been silent for so long and that the handler does not need: their
  // serving endpoints are closed; should one come back, it is welcomed anew.
  void sweep(Nanos silence);
  bool knows(const ContextId& client);
  uint32_t session_of(const ContextId& client);  // its generation; 0: none is open
  ListenerAddress client_listener(const ContextId& client);
  Nanos heard(const ContextId& client);  // its last hello or request; 0: unknown

  // `all`: before the caller sleeps for a while.
  int poll(bool all = false);
  // When something has come while the caller slept: the listeners' queues first, by the shortest
  // way. Where the endpoints that serve share those, that was all.
  int poll_listeners();
  void descriptors(std::vector<int>* fds);  // to sleep on
  bool idle();                              // no send buffer waits to be posted
  bool serves();                            // somebody has a serving endpoint
  size_t waiters();                         // who has been given direct acks lately
  bool may_sleep();
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  void on_message(Endpoint& ep, Bytes message) override;

 private:
  struct Serving;
  struct Client {
    ClientInfo info;
    uint32_t generation = 0;
    uint64_t secret = 0;                         // requests carry it
    uint64_t notification_secret = 0;            // our notices carry it
    uint64_t ack_secret = 0;                     // told in our notices to it; its acks carry it
    Nanos heard = 0;                             // last hello or request
    std::vector<std::byte> listener, initiator;  // addresses
    Peer door_peer{};                            // of our listener info.via
    std::shared_ptr<Serving> serving;
    uint64_t settled = 0;                                // numbers below are over at the client
    std::map<uint64_t, std::vector<std::byte>> answers;  // by number, until settled
    std::deque<uint64_t> answered;  // their numbers in the order they were given
    uint64_t forgotten = 0;         // up to here there were too many: not executed again
    std::deque<uint64_t> large;     // the numbers of large answers, the last
    std::vector<uint64_t> open;     // begun, not answered: few
    int closing = 0;                // serving endpoints on their way out: not closed yet
    bool fenced = false;            // for ever
  };

  Server(std::vector<Fabric*> fabrics, ContextId self, ServerHandler& handler)
      : fabrics_(std::move(fabrics)), self_(self), handler_(handler) {}
  void hello(size_t via, const Frame& f);
  size_t door_of(const Endpoint& ep) const;
  void request(Serving& serving, const Frame& f);
  void settled(Serving& serving, const Frame& f);
  bool settle_locked(Client& c, uint64_t number) CMI_REQUIRES(mu_);
  void keep_answer_locked(Client& c, uint64_t number, Bytes payload) CMI_REQUIRES(mu_);
  bool admit_locked(Client& c, Serving& serving, const Frame& f) CMI_REQUIRES(mu_);
  void close_serving(std::shared_ptr<Serving> serving);
  size_t let_go(Nanos silence, size_t most, const ContextId& but = {});
  int poll_one(size_t index);  // of the listeners, then of the serving endpoints
  void drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }

  const std::vector<Fabric*> fabrics_;
  const ContextId self_;
  ServerHandler& handler_;
  std::vector<std::unique_ptr<Port>> doors_;  // constant once open
  Mutex hello_mu_;                            // one hello at a time; taken before mu_
  Mutex mu_;
  std::map<ContextId, Client> clients_ CMI_GUARDED_BY(mu_);
  struct HomeDoor {
    size_t via = 0;
    Peer peer{};
    uint64_t secret = 0;
  };
  std::map<ContextId, HomeDoor> homes_ CMI_GUARDED_BY(mu_);
  // Whom direct acks have been given. Homes name them: no more than so many, of which those make
  // room for others that have not been given any for a second.
  struct Waiter {
    std::vector<std::byte> at;
    size_t via = 0;
    Peer peer{};
    Nanos used = 0;
  };
  static constexpr size_t kMostWaiters = 64;
  static constexpr Nanos kWaiterStays = kSecond;
  Waiter* waiter_locked(Bytes at, size_t via) CMI_REQUIRES(mu_);
  void let_go_of_waiters(Nanos silence);
  std::vector<Waiter> waiters_ CMI_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Serving>> servings_ CMI_GUARDED_BY(mu_);
  std::atomic<uint64_t> dropped_{0};
  std::atomic<size_t> next_{0};  // of all listeners and endpoints, whose turn it is in poll()
  std::atomic<unsigned> busy_rounds_{0};       // in which the one that is awaited had something
  std::atomic<const Port*> awaited_{nullptr};  // who will be heard of first; only compared
};

}  // namespace cmi::fabric

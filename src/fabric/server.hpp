// The side that is reached: listeners take first contacts, and give each client a serving endpoint
// of its own, over which its requests come, each executed once. The listeners also carry
// notifications to other contexts' listeners, and their acknowledgements.
//
// There is a listener for each fabric that the Server is given, with the index of that fabric. A
// client comes by one of them, and may come by another with its next generation; its numbers and
// answers go with it.
//
// A client that comes back with a newer generation has its old serving endpoint closed before it is
// welcomed: what its old connection still carries is then without effect (a fence). The handler
// closes the keys of that client's old session in on_new_session, which runs in between.
//
// A Server owns no state but its ports; its parts do: ClientTable, KnownHomes, DirectAckSender,
// PollOrder.
//
// Threads: any; poll() by several at once. No lock is held while the handler runs or while an
// endpoint is polled or closed. Handlers must not block.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/client_table.hpp"
#include "fabric/direct_ack_sender.hpp"
#include "fabric/fabric.hpp"
#include "fabric/known_homes.hpp"
#include "fabric/listener_ports.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/poll_order.hpp"
#include "fabric/port.hpp"
#include "fabric/server_handler.hpp"

namespace cmi::fabric {

inline constexpr size_t kMaxClients = 1024;  // of a server; further hellos are dropped
// First contacts cost a client nothing, and each takes descriptors here. So from so many clients
// on, a client that has been silent for kStrangersStay makes room for newcomers, if the handler
// keeps nothing for it.
inline constexpr size_t kCrowded = 128;
inline constexpr Nanos kStrangersStay = kSecond;
// Descriptors that a newcomer takes here, one by one, with its lifeline and some to spare; and for
// how long it may take it to have all of them.
inline constexpr int kDescriptorsOfClient = 12;
inline constexpr Nanos kComingIn = 2 * kSecond;

// Size: one call for each kind of message, and rings beside what has gone over the network before.
class Server : private Receiver, private ServingSink, private HomeSink, private ListenerPorts {
 public:
  static Result<std::unique_ptr<Server>> open(Fabric& fabric, ContextId self,
                                              ServerHandler& handler) {
    return open(std::vector<Fabric*>{&fabric}, self, handler);
  }
  static Result<std::unique_ptr<Server>> open(std::vector<Fabric*> fabrics, ContextId self,
                                              ServerHandler& handler);
  ~Server() override;

  Bytes listener_address(size_t listener_index = 0) const {
    return ports_[listener_index]->endpoint().address();
  }
  std::vector<ListenerAddress> listeners() const;
  Fabric& fabric(size_t listener_index) const { return *fabrics_[listener_index]; }

  // Memory that the client is to reach, on the fabric that it came by, and at its serving endpoint
  // where registrations are bound to endpoints. Null while it has no such endpoint: no key would be
  // of use to it.
  Result<std::unique_ptr<Region>> register_for(const ContextId& client, void* addr, size_t len,
                                               uint32_t rights, uint64_t wanted_key);
  // The same at a listener, for any client.
  Result<std::unique_ptr<Region>> register_at(size_t listener_index, void* addr, size_t len,
                                              uint32_t rights, uint64_t wanted_key);

  // To a client, on its present session. Kept until the client says that it has it. `tokens`: the
  // receivers of this request's notifications were asked for direct acknowledgements.
  void reply(const ContextId& client, uint64_t number, Bytes payload,
             TokensSent tokens = TokensSent::kNo);
  // To a client's listener. False when there is no such client. `last`: it is fenced next.
  bool notification(const ContextId& client, uint64_t number, uint16_t type, Bytes payload,
                    bool last = false, const DirectAck& direct_ack = {});
  // Whether all of `givers` can send direct acknowledgements to this client: they are reached over
  // the fabric that it came by. Returns where they go, in `to` (kMaxDirectAckAddress bytes); empty:
  // they cannot.
  Bytes direct_ack_address(const ContextId& client, std::span<const ContextId> givers,
                           std::span<std::byte> to) {
    return clients_.initiator_of(client, givers, to);
  }
  // By the listener that reaches this home. True: over a connection that has carried one before, so
  // no report to the home is needed as well.
  bool give(const ContextId& home, const DirectAck& direct_ack);
  // A home whose notifications are heard: its listener as in its handles, and the index of our
  // listener that reaches it. For a home that is known already, the new way to it. `secret` is what
  // our hello tells that home and no other, and what its notifications must carry.
  Status add_home(const ContextId& home, Bytes listener, uint64_t secret,
                  size_t listener_index = 0) {
    return homes_.add(home, listener, secret, listener_index);
  }
  void ack(const ContextId& home, uint64_t secret, uint64_t number, Bytes payload = {});

  // Rings to processes of this machine (fabric/ring). Of a client: what it has passed, and whether
  // it is taken. Of a home that add_home named: by which its notifications come as well.
  bool take_rings(const ring::Proof& proof, ring::Channel::Passed requests,
                  ring::Channel::Passed notifications);
  void hear_by_ring(const ContextId& home, std::unique_ptr<ring::Channel> notifications) {
    homes_.take_ring(home, std::make_shared<HomeRing>(static_cast<HomeSink&>(*this), home,
                                                      std::move(notifications)));
  }
  ring::Sockets& ring_sockets() { return ring_sockets_; }
  // After fork: closes the sockets of rings, touches nothing else.
  void forget_in_child() { ring_sockets_.close_in_child(); }

  // Cuts a client off: its serving endpoint is closed when this returns, its messages are dropped
  // from now on. `forever`: it is not welcomed again. Not from a handler of that client's request.
  void fence(const ContextId& client, bool forever) { clients_.fence(client, forever); }
  // Closes the serving endpoints of clients that have been silent for so long and that the handler
  // does not need. A client that comes back is welcomed anew.
  void sweep(Nanos silence);
  // What is known of clients.
  const ClientTable& clients() const { return clients_; }
  ListenerAddress client_listener(const ContextId& client);

  // `all`: looks at each port. Before the caller sleeps for a while.
  int poll(bool all = false);
  // When something has come while the caller slept: looks at the listeners' queues first. Where the
  // serving endpoints share those, that was all.
  int poll_listeners();
  void descriptors(std::vector<int>* fds);  // to sleep on
  bool idle();                              // nothing waits to be posted
  size_t direct_ack_addresses() { return direct_acks_.addresses(); }
  bool may_sleep();
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // Receiver: what arrives at a listener. Public for the fuzzer, which plays a stranger.
  void on_message(Endpoint& ep, Bytes message) override;

 private:
  Server(std::vector<Fabric*> fabrics, ContextId self, ServerHandler& handler)
      : fabrics_(std::move(fabrics)), self_(self), handler_(handler) {}

  // What arrives at serving endpoints.
  void on_client_frame(Serving& from, const Frame& f) override;
  void on_client_ack(const Serving& from, const Frame& f) override;
  void on_home_frame(const ContextId& home, const Frame& f) override;
  void on_no_frame() override { drop(); }
  void on_hello(size_t index, const Frame& f);
  void on_notification(const ContextId& from, const Frame& f, Reader in);
  void on_request(Serving& from, const Frame& f);
  void on_acked_below(Serving& from, const Frame& f);
  bool read_hello(const Frame& f, Hello* hello) const;
  void make_room(const ContextId& newcomer);
  bool may_come(const Hello& hello) CMI_REQUIRES(hello_mu_);
  void refuse(const Hello& hello) CMI_REQUIRES(hello_mu_);
  bool open_serving(Serving& serving, const Hello& hello, bool known);
  void drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }

  // For the tables.
  Result<Peer> add_peer(size_t index, Bytes address) override {
    return ports_[index]->add(address);
  }
  void remove_peer(size_t index, Peer peer) override { ports_[index]->remove(peer); }
  bool send(size_t index, Peer peer, const Frame& frame, bool last) override {
    return ports_[index]->send(peer, frame, last);
  }

  size_t index_of(const Endpoint& ep) const;  // of a listener
  size_t close_silent(Nanos silence, size_t most, const ContextId& but = {});
  int poll_some(bool all);
  int poll_one(size_t i);  // of the listeners, the serving endpoints, the rings of homes
  int poll_rings();
  size_t hot_port(size_t ports);

  const std::vector<Fabric*> fabrics_;
  const ContextId self_;
  ServerHandler& handler_;
  std::vector<std::unique_ptr<Port>> ports_;  // the listeners'; constant once open
  Mutex hello_mu_ CMI_ACQUIRED_BEFORE(
      lock_order::after_hello);  // one hello at a time; before the tables' locks
  ring::Sockets ring_sockets_;
  ClientTable clients_{*this};
  KnownHomes homes_{*this};
  DirectAckSender direct_acks_{*this};
  Nanos newcomer_ CMI_GUARDED_BY(hello_mu_) = 0;  // when the last one was let in
  Nanos refused_ CMI_GUARDED_BY(hello_mu_) = 0;   // when such a refusal was last sent
  PollOrder order_;
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace cmi::fabric

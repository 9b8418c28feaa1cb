// The clients of a Server: their sessions, secrets, addresses, requests, and serving endpoints.
//
// Invariants:
//  1. At most one session of a client is served. The serving endpoint of the one before has been
//     closed before the next session begins (the fence that a new generation is).
//  2. A client that is fenced for ever stays listed, so that it is not welcomed again; nothing else
//     of it is kept.
//  3. A client that has a session is in the address book of the listener that it came by, once.
//  4. An entry stays while one of its serving endpoints is being closed.
//
// Threads: any. mu_ is held while a frame is posted, since a peer's number or a session may change
// hands otherwise; posting neither waits nor calls back. It is not held while an endpoint is polled
// or closed.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/intake.hpp"
#include "fabric/listener_ports.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/reply_cache.hpp"
#include "fabric/ring/dialer.hpp"
#include "fabric/server_handler.hpp"
#include "fabric/serving.hpp"

namespace cmi::fabric {

// What a client says of itself in its hello. The addresses are valid while it is handled.
struct Hello {
  ClientInfo info;
  uint64_t notification_secret = 0;  // our notifications to it must carry it
  uint32_t generation = 0;
  uint64_t nonce = 0;
  Bytes initiator, listener_address;
};

// What is to be done with a request, beside what the table has sent.
struct AdmittedRequest {
  ClientInfo client;
  uint64_t acked_below = 0;
  bool newly_acked = false;  // requests without an answer are below acked_below since now
  ReplyCache::Verdict verdict{};
};

class ClientTable {
 public:
  explicit ClientTable(ListenerPorts& ports) : ports_(ports) {}
  void clear();  // closes all serving endpoints; no other thread may poll

  // A session begins in two steps. In between no session of the client is served.
  // Ends the one before. False: the client is not welcome, or the hello is an old one.
  bool end_session(const Hello& hello, size_t most_clients);
  // Returns the secret that its requests must carry. Nothing: it has been fenced for ever
  // meanwhile.
  std::optional<uint64_t> begin_session(const Hello& hello, Peer at_listener,
                                        const std::shared_ptr<Serving>& serving);

  // Nothing: not from the session that is served. Repeated requests are answered here.
  std::optional<AdmittedRequest> admit(Serving& from, const Frame& request);
  // The client has had direct acknowledgements for the requests in `behind` as well.
  // Nothing: not from the session that is served. True: it must be passed on to the handler.
  std::optional<bool> acknowledge(const Serving& from, const Frame& f,
                                  std::span<const uint64_t> behind);
  // Answers an open request. Returns where the client is served and what it came by, if it is.
  struct Answered {
    std::shared_ptr<Serving> serving;
    size_t index = 0;
  };
  Answered reply(const ContextId& client, uint64_t number, Bytes payload, TokensSent tokens);
  // The client is of this machine. False: this is not its present session, or it has rings.
  bool take_rings(const ring::Proof& proof, std::unique_ptr<ring::Channel> requests,
                  std::unique_ptr<ring::Channel> notifications);
  // `frame` but for its secret and what stands in front of its payload (`head`, from byte
  // kAckSecretAt of which the secret of acknowledgements goes). Nothing: no such client. Else where
  // the acknowledgement is to come.
  static constexpr size_t kAckSecretAt = 2 * sizeof(uint64_t);
  struct Notified {
    size_t index = 0;               // of our listeners
    const Port* by_ring = nullptr;  // of the client's serving endpoint
  };
  std::optional<Notified> notify(const ContextId& client, Frame frame, std::span<std::byte> head,
                                 bool last);
  bool may_acknowledge(const ContextId& client, uint64_t secret);  // a notification
  // Where direct acknowledgements to the client go, if all of `senders` came by the listener that
  // it came by. Empty: they cannot be sent.
  Bytes initiator_of(const ContextId& client, std::span<const ContextId> senders,
                     std::span<std::byte> to);

  // Closes the session of a client and waits until that is done. `forever`: it is fenced.
  void fence(const ContextId& client, bool forever);
  // Clients that have been silent for so long and have nothing open, the longest silent first.
  std::vector<ContextId> silent(Nanos silence, const ContextId& but);
  // Forgets a client, unless it has a session again or is fenced.
  void erase_if_closed(const ContextId& client);

  bool listed(const ContextId& client) const;
  bool knows(const ContextId& client) const;           // and does not fence it
  uint32_t session_of(const ContextId& client) const;  // its generation; 0: none is open
  Nanos heard(const ContextId& client) const;          // its last hello or request; 0: unknown
  Answered served(const ContextId& client);            // and by which listener it came
  // By which listener it came, and where it listens itself.
  std::optional<std::pair<size_t, std::vector<std::byte>>> listener_of(const ContextId& client);

  // The thread that looks for requests has found none. So what is to be done is done, and clients
  // need not be bounded.
  void found_nothing();

  // For polling.
  size_t serving_count() const;
  bool serves() const { return serving_count() != 0; }
  std::shared_ptr<Serving> serving_at(size_t i);  // null: there are fewer
  template <class F>
  void each_serving(F f) {
    Guard g(mu_);
    for (const auto& s : servings_) f(*s);
  }

 private:
  struct Client {
    ClientInfo info;
    uint32_t generation = 0;           // 0: it has never had a session
    uint64_t secret = 0;               // requests carry it
    uint64_t notification_secret = 0;  // our notifications to it carry it
    uint64_t ack_secret = 0;           // our notifications tell it; their acknowledgements carry it
    Nanos heard = 0;                   // last hello or request
    std::vector<std::byte> listener_address, initiator;
    Peer at_listener{};  // of our listener info.listener_index
    std::shared_ptr<Serving> serving;
    ReplyCache requests;
    Intake::OfClient intake;
    int closing = 0;      // serving endpoints that are being closed
    bool fenced = false;  // for ever
  };
  // Null: this is not its present session, or the secret is wrong.
  Client* present(const Serving& from, uint64_t secret) CMI_REQUIRES(mu_);
  std::shared_ptr<Serving> take_serving(Client& c) CMI_REQUIRES(mu_);
  // Its requests have changed.
  void count_open(Client& c) CMI_REQUIRES(mu_) { intake_.now_open(c.intake, c.requests.open()); }
  void close(std::shared_ptr<Serving> serving);
  void await_closed(const ContextId& client);

  ListenerPorts& ports_;
  mutable Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_sessions)
      CMI_ACQUIRED_BEFORE(lock_order::after_tables);
  std::map<ContextId, Client> clients_ CMI_GUARDED_BY(mu_);
  Intake intake_ CMI_GUARDED_BY(mu_);
  std::atomic<bool> has_taken_{false};  // what intake_ says, for who has no lock
  std::vector<std::shared_ptr<Serving>> servings_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::fabric

// What a Server reports to the code above it: clients that come, requests, acknowledgements.
// Threads: any thread that polls the Server; no lock of the Server is held. No call may block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/codec.hpp"
#include "core/base/ids.hpp"

namespace cmi::fabric {

struct ClientInfo {
  ContextId id;
  NodeId node;
  size_t listener_index = 0;  // the listener that its present session came by: Server::fabric()
};

// A direct acknowledgement that the receiver of a notification owes to the client whose request
// caused it, beside the one for the home. The client has split a secret of its own into tokens, one
// for each receiver. A client that has all tokens knows that every receiver has carried out the
// notification. No receiver knows the token of another.
struct DirectAck {
  uint64_t number = 0;  // of the client's request; 0: no direct acknowledgement is wanted
  uint64_t token = 0;
  Bytes to;  // the client's initiating endpoint
};

class ServerHandler {
 public:
  virtual ~ServerHandler() = default;
  // False: the client is not welcome (its context was declared dead).
  virtual bool on_hello(const ClientInfo& client) = 0;
  // The client's old serving endpoint is closed. The keys of its old session must be closed before
  // this returns.
  virtual void on_new_session(const ClientInfo& client) = 0;
  // A request, once per number. It is answered with Server::reply, now or later.
  virtual void on_request(const ClientInfo& client, uint64_t number, uint16_t type,
                          Reader payload) = 0;
  // A notification from a home that add_home named. `secret` and `number` go back with Server::ack.
  // `direct ack` is to be sent with Server::give; where that succeeds, no Server::ack is needed.
  virtual void on_notification(const ContextId& home, uint64_t secret, uint64_t number,
                               uint16_t type, Reader payload, const DirectAck& direct_ack) = 0;
  // The client needs no answer any more to its requests below this number, of which some had none,
  // nor to those in `behind`: direct acknowledgements have answered them.
  virtual void on_acked_below(const ContextId& client, uint64_t below,
                              std::span<const uint64_t> behind) = 0;
  virtual void on_ack(const ContextId& client, uint64_t number, Reader payload) = 0;
  // True: the handler keeps nothing for this client, so a silent connection may be closed.
  virtual bool may_sweep(const ContextId& client) = 0;
};

}  // namespace cmi::fabric

// The endpoint that serves one client in one generation. The client's entry in the table holds it,
// and each thread that polls it for the length of one poll.
// Threads: any.
#pragma once

#include <memory>

#include "core/base/ids.hpp"
#include "fabric/port.hpp"

namespace cmi::fabric {

class Serving;

// What takes the frames that arrive at serving endpoints.
class ServingSink {
 public:
  virtual ~ServingSink() = default;
  virtual void on_client_frame(Serving& from, const Frame& f) = 0;
  virtual void on_no_frame() = 0;  // a message that is no frame
};

class Serving : public Receiver {
 public:
  Serving(ServingSink& sink, ContextId client) : sink_(sink), client_(client) {}
  ~Serving() override { port_.reset(); }

  // Before anything else. Shares the queue of `beside` where that makes polling cheaper.
  Status open(Fabric& fabric, Port* beside) {
    auto port = Port::open(fabric, *this, beside);
    if (!port) return port.status();
    port_ = port.take();
    port_->limit_backlog();
    return Status::kOk;
  }
  Status connect(Bytes initiator) {
    auto peer = port_->add(initiator);
    if (!peer) return peer.status();
    initiator_ = *peer;
    return Status::kOk;
  }
  // To the client. Posts only; tests without a network override it.
  virtual void send(const Frame& frame) { port_->send(initiator_, frame); }

  const ContextId& client() const { return client_; }
  Port* port() const { return port_.get(); }
  Endpoint& endpoint() const { return port_->endpoint(); }

  void on_message(Endpoint&, Bytes message) override {
    Frame f;
    if (!decode_frame(message, &f)) return sink_.on_no_frame();
    sink_.on_client_frame(*this, f);
  }

 private:
  ServingSink& sink_;
  const ContextId client_;
  Peer initiator_{};  // the client's initiating endpoint
  std::unique_ptr<Port> port_;
};

}  // namespace cmi::fabric

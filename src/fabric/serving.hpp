// The endpoint that serves one client in one generation, and the rings by which a client of this
// machine is served. The client's entry in the table holds it,
// and each thread that polls it for the length of one poll.
// Threads: any.
#pragma once

#include <memory>

#include "core/base/ids.hpp"
#include "fabric/port.hpp"
#include "fabric/ring/channel.hpp"

namespace cmi::fabric {

class Serving;

// What takes the frames that arrive at serving endpoints.
class ServingSink {
 public:
  virtual ~ServingSink() = default;
  virtual void on_client_frame(Serving& from, const Frame& f) = 0;
  // By the ring of its notifications.
  virtual void on_client_ack(const Serving& from, const Frame& f) = 0;
  virtual void on_no_frame() = 0;  // a message that is no frame
};

class Serving : public Receiver, private ring::ChannelSink {
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
  virtual void send(const Frame& frame) {
    if (!has_rings() || !requests_->send(frame)) port_->send(initiator_, frame);
  }

  // Once. Under the table's lock, as are send() and notify().
  void take_rings(std::unique_ptr<ring::Channel> requests,
                  std::unique_ptr<ring::Channel> notifications) {
    requests_ = std::move(requests);
    notifications_ = std::move(notifications);
    has_rings_.store(true, std::memory_order_release);
  }
  bool has_rings() const { return has_rings_.load(std::memory_order_acquire); }
  // By which way the client's next request is likely to come.
  bool asked_by_ring() const { return has_rings() && !requests_->ended(); }
  // To the client's own listener, in its place. False: there is no ring any more.
  bool notify(const Frame& frame) { return has_rings() && notifications_->send(frame); }
  int poll_rings() {
    if (!has_rings()) return 0;
    int events = 0;
    for (ring::Channel* ring : {requests_.get(), notifications_.get()}) {
      events += ring->pump() + ring->poll(*this);
    }
    return events;
  }
  template <class F>
  void each_ring(F f) {
    if (!has_rings()) return;
    f(*requests_);
    f(*notifications_);
  }

  const ContextId& client() const { return client_; }
  Port* port() const { return port_.get(); }
  Endpoint& endpoint() const { return port_->endpoint(); }

  void on_message(Endpoint&, Bytes message) override {
    Frame f;
    if (!decode_frame(message, &f)) return sink_.on_no_frame();
    sink_.on_client_frame(*this, f);
  }

 private:
  void on_ring_message(ring::Channel& from, Bytes message) override {
    Frame f;
    if (!decode_frame(message, &f)) return sink_.on_no_frame();
    if (&from == requests_.get()) return sink_.on_client_frame(*this, f);
    sink_.on_client_ack(*this, f);
  }

  ServingSink& sink_;
  const ContextId client_;
  Peer initiator_{};  // the client's initiating endpoint
  std::unique_ptr<ring::Channel> requests_, notifications_;
  std::atomic<bool> has_rings_{false};  // release: both are set
  std::unique_ptr<Port> port_;
};

}  // namespace cmi::fabric

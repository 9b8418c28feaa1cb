// An Endpoint together with the send buffers that are on their way from it: send and forget, with a
// retry for as long as the provider says "again", up to a bound. It also keeps the peers that they
// go to: a peer leaves the endpoint's address book when nobody has it any more and no send buffer
// to it is with the provider, which must not meet an address that it has forgotten. Threads: any; a
// send buffer is owned by the port from send() until the provider is done with it.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/base/lock.hpp"
#include "fabric/fabric.hpp"
#include "fabric/frame.hpp"
#include "fabric/lock_order.hpp"

namespace cmi::fabric {

class Port {
 public:
  static Result<std::unique_ptr<Port>> open(Fabric& fabric, Receiver& receiver,
                                            Port* beside = nullptr);
  ~Port();  // closes the endpoint first, then frees what the provider was still holding

  Endpoint& endpoint() { return *endpoint_; }
  // The same peer for the same address, which stays until each add() has had its remove().
  Result<Peer> add(Bytes address);
  void remove(Peer peer);
  // Copies the frame. A frame that cannot be sent within kSendLife is dropped, and so is one for a
  // peer that has been removed: the deadlines of the protocol see that it is missing.
  // A port with a limited backlog sends short frames without a send buffer (it injects them) once
  // one buffer has reached the peer. Nothing says when an injected frame has gone, or that it was
  // lost with a connection. So at most kMostInjected are sent before the next send buffer. A peer's
  // frames go in order: once that buffer has gone, they have. A lost one is asked for again, as the
  // home does for the answer to a notification. Requests are never injected: one that fails shows
  // its link that the connection is broken. `last`: the peer is removed next; a send buffer puts
  // that off until it has gone. Returns whether something has gone to this peer before and nothing
  // waits.
  bool send(Peer peer, const Frame& frame, bool last = false);
  // From now on frames for a peer that does not read are dropped beyond kMostBuffers and
  // kMostBytes: such a peer asks for the same answer again and again, and each would be copied. Not
  // for a port of requests: the link's window bounds their number.
  void limit_backlog() { backlog_limited_ = true; }
  // Retries what the provider answered with "again". Cheap when there is nothing. Returns send
  // buffers accepted.
  int pump();
  bool idle() const { return waiting_count_.load(std::memory_order_relaxed) == 0; }

 private:
  static constexpr Nanos kSendLife = 10 * kSecond;
  // What a direct ack says the home asks for soon.
  static constexpr Nanos kDirectAckLife = 100 * kMilli;
  static constexpr int kAttempts = 3;  // of one send buffer, when the provider said it failed
  // The backlog of one peer: room for the answers to a link's whole window, and for notifications.
  static constexpr size_t kMostBuffers = 32768, kMostBytes = size_t{64} << 20;
  static constexpr size_t kSpare = 1024;  // send buffers that keep their memory
  static constexpr size_t kShort = 128;   // bytes
  // Injected frames between two send buffers: a provider's queue may have no bound.
  static constexpr uint64_t kMostInjected = 64;
  struct SendBuffer {
    explicit SendBuffer(Port& p) : op(&SendBuffer::sent, this), port(p) {}
    static void sent(Op& op);
    Op op;
    Port& port;
    Peer peer{};
    Nanos expires = 0;
    Nanos life = 0;
    int attempts = 0;
    uint64_t behind = 0;  // what had been injected to its peer when it was posted
    size_t size = 0;
    std::vector<std::byte> bytes;  // at least so many; it grows and does not shrink
  };

  struct Known {
    std::vector<std::byte> address;
    int uses = 0;                     // by its senders
    int under_way = 0;                // send buffers that the provider has, or is given
    bool reached = false;             // by a send buffer
    uint64_t injected = 0, gone = 0;  // so many; and so many of them have gone
    // Send buffers to it and their bytes, waiting and under way; and how many of them wait.
    size_t buffers = 0, bytes = 0, waiting = 0;
  };

  explicit Port() = default;
  void ended(Peer peer) CMI_REQUIRES(mu_);
  void forget_unused(Peer peer) CMI_REQUIRES(mu_);
  void drop_locked(Peer peer) CMI_REQUIRES(mu_);
  SendBuffer* take_buffer() CMI_REQUIRES(mu_);
  void put_buffer(SendBuffer* buffer) CMI_REQUIRES(mu_);
  void queue(SendBuffer* buffer) CMI_REQUIRES(mu_);
  void release_buffer(SendBuffer* buffer, bool reached = false);
  void wait(SendBuffer* buffer);
  Post try_post(SendBuffer& buffer);

  std::unique_ptr<Endpoint> endpoint_;
  bool backlog_limited_ = false;  // set before the first send buffer
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_tables) CMI_ACQUIRED_BEFORE(
      lock_order::after_ports);  // leaf; never held across a call into the provider's poll
  std::vector<std::unique_ptr<SendBuffer>> all_ CMI_GUARDED_BY(mu_);
  std::vector<SendBuffer*> free_ CMI_GUARDED_BY(mu_);
  std::deque<SendBuffer*> waiting_ CMI_GUARDED_BY(mu_);  // in order per peer
  std::unordered_map<Peer, Known> known_ CMI_GUARDED_BY(mu_);
  std::atomic<int> waiting_count_{0};
};

}  // namespace cmi::fabric

// The inside of the fake: what is on its way between endpoints, under one lock for the whole net.
// An operation travels as a Packet from its initiator's post to the target's inbox, is executed
// when the target polls, and comes back into the initiator's queue of results.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "core/base/fd.hpp"
#include "core/base/lock.hpp"
#include "fabric/fake/fake.hpp"

namespace cmi::fabric::fake {

using EndpointId = uint64_t;  // never used twice in a net
using NodeId = uint64_t;

struct Packet {
  enum class Kind : uint8_t { kRead, kWrite, kCas, kMessage };
  Kind kind{};
  EndpointId from = 0, to = 0;
  Op* op = nullptr;       // null: nobody waits for the outcome, or does any more
  bool injected = false;  // counts as in flight without an op
  void* local = nullptr;  // read: destination; write: source, read when the target executes
  uint64_t* result = nullptr;
  uint64_t expected = 0, desired = 0;
  size_t len = 0;
  uint64_t key = 0, address = 0;  // address: offset, or virtual address by mode
  std::vector<std::byte> bytes;   // a message, what a read found, a write whose initiator is gone
  Cause cause = Cause::kOk;
};

class Net;

class FakeEndpoint final : public Endpoint {
 public:
  FakeEndpoint(std::shared_ptr<Net> net, NodeId node, Receiver& receiver);
  ~FakeEndpoint() override;

  EndpointId id() const { return id_; }
  Bytes address() const override { return address_; }
  Result<Peer> add_peer(Bytes address) override;
  void remove_peer(Peer peer) override;
  Post read(Op& op, Peer peer, void* to, size_t len, RemoteKey from, uint64_t offset) override;
  Post write(Op& op, Peer peer, const void* from, size_t len, RemoteKey to,
             uint64_t offset) override;
  Post cas(Op& op, Peer peer, uint64_t* result, const uint64_t* expected, const uint64_t* desired,
           RemoteKey at, uint64_t offset) override;
  Post send(Op& op, Peer peer, const void* message, size_t len) override;
  bool inject(Peer peer, const void* message, size_t len) override;
  int poll() override;
  int wait_fd() const override { return event_.get(); }
  bool may_sleep() override;
  bool broken() const override { return broken_.load(std::memory_order_relaxed); }

 private:
  friend class Net;
  Post post(Op& op, Packet packet);

  const std::shared_ptr<Net> net_;
  const NodeId node_;
  const EndpointId id_;
  std::atomic<size_t> posts_{0};  // reads and writes so far
  Receiver& receiver_;
  std::array<std::byte, 16> address_{};
  Fd event_;  // readable when inbox_ or results_ may hold something; -1 by mode
  std::atomic<bool> broken_{false};
  std::atomic<int> dispatching_{0};  // threads handing out; nobody falls asleep meanwhile
  Mutex poll_lock_;                  // one poller takes packets at a time
  // What an earlier poll had no time to hand out.
  std::vector<Packet> left_ CMI_GUARDED_BY(poll_lock_);

  // Under the net's lock.
  std::deque<Packet> inbox_;    // for us as a target
  std::deque<Packet> results_;  // our operations that have ended
  size_t in_flight_ = 0;
  bool stopped_ = false, dead_ = false, vanished_ = false;
  int lose_ = 0;
};

class FakeRegion final : public Region {
 public:
  FakeRegion(std::shared_ptr<Net> net, NodeId node, RemoteKey key)
      : net_(std::move(net)), node_(node), key_(key) {}
  ~FakeRegion() override;
  RemoteKey key() const override { return key_; }

 private:
  const std::shared_ptr<Net> net_;
  const NodeId node_;
  const RemoteKey key_;
};

class Net final : public FakeNet, public std::enable_shared_from_this<Net> {
 public:
  explicit Net(const FakeModes& modes) : modes_(modes) {}
  const FakeModes& modes() const { return modes_; }

  std::unique_ptr<Fabric> open() override;
  void kill(Bytes endpoint) override;
  void vanish(Bytes endpoint) override;
  void stop(Bytes endpoint) override;
  void resume(Bytes endpoint) override;
  void cut(Bytes one, Bytes other) override;
  void heal(Bytes one, Bytes other) override;
  void reset(Bytes one, Bytes other) override;
  void lose_messages(Bytes to, int count) override;
  FakeTraffic traffic() override;

  uint64_t new_id();  // of a node or an endpoint
  void join(FakeEndpoint& ep);
  void leave(FakeEndpoint& ep);
  void drop_injected(FakeEndpoint& from, EndpointId to);
  Post post(FakeEndpoint& from, Packet packet);
  // One round of an endpoint: executes what has arrived, returns what is to be handed out.
  std::vector<Packet> turn(FakeEndpoint& ep);
  bool idle(FakeEndpoint& ep);

  // `through`: the only endpoint at which the region may be accessed; 0: at each of the node.
  Result<RemoteKey> add_region(NodeId node, void* addr, size_t len, uint32_t rights, uint64_t key,
                               EndpointId through);
  void remove_region(NodeId node, uint64_t key);

  std::array<std::byte, 16> encode(EndpointId id) const;
  static EndpointId decode(Bytes address);  // 0: not one of ours

 private:
  struct Memory {
    std::byte* data;
    size_t len;
    uint32_t rights;
    EndpointId through;  // 0: any of the node's
  };
  using Pair = std::pair<EndpointId, EndpointId>;  // the smaller id first

  FakeEndpoint* find(EndpointId id) CMI_REQUIRES(mu_);
  FakeEndpoint* find(Bytes address) CMI_REQUIRES(mu_);
  bool passes(EndpointId one, EndpointId other) CMI_REQUIRES(mu_);
  void wake(FakeEndpoint& ep) CMI_REQUIRES(mu_);
  void finish(Packet packet, Cause cause) CMI_REQUIRES(mu_);
  void end_between(EndpointId one, EndpointId other) CMI_REQUIRES(mu_);  // both directions
  // False when the operation was refused and the connection goes down for it.
  bool execute(FakeEndpoint& target, Packet packet, std::vector<Packet>* out) CMI_REQUIRES(mu_);
  std::byte* locate(const FakeEndpoint& target, const Packet& packet, uint32_t rights)
      CMI_REQUIRES(mu_);

  const FakeModes modes_;
  Mutex mu_;  // leaf: nothing of the client is called under it
  uint64_t last_id_ CMI_GUARDED_BY(mu_) = 0;
  FakeTraffic traffic_ CMI_GUARDED_BY(mu_);
  std::map<EndpointId, FakeEndpoint*> endpoints_ CMI_GUARDED_BY(mu_);
  std::map<std::pair<NodeId, uint64_t>, Memory> regions_ CMI_GUARDED_BY(mu_);
  std::set<Pair> cut_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::fabric::fake

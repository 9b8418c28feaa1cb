// A node of the fake and its endpoints: the seam's side of it.
#include <sys/eventfd.h>

#include <cassert>
#include <iterator>
#include <utility>

#include "fabric/fake/net.hpp"

namespace cmi::fabric {

namespace fake {
namespace {
EndpointId id_of(Peer peer) { return static_cast<EndpointId>(peer); }

class FakeFabric final : public Fabric {
 public:
  FakeFabric(std::shared_ptr<Net> net, NodeId node) : net_(std::move(net)), node_(node) {
    const FakeModes& m = net_->modes();
    traits_.provider = "fake";
    traits_.cas = m.cas;
    traits_.wait_fd = m.wait_fd;
    traits_.ordered_after_write = m.ordered;
    traits_.cheap_regions = m.cheap_regions;
    traits_.max_message = m.max_message;
    traits_.max_rma = m.max_rma;
  }
  const Traits& traits() const override { return traits_; }
  Result<std::unique_ptr<Endpoint>> open_endpoint(Receiver& receiver, Endpoint*) override {
    return std::unique_ptr<Endpoint>(new FakeEndpoint(net_, node_, receiver));
  }
  Result<std::unique_ptr<Region>> register_memory(void* addr, size_t len, uint32_t rights,
                                                  uint64_t wanted_key, Endpoint* through) override {
    EndpointId only = 0;
    if (net_->modes().bound_regions) {
      if (through == nullptr) return Status::kInval;
      only = static_cast<FakeEndpoint*>(through)->id();
    }
    Result<RemoteKey> key = net_->add_region(node_, addr, len, rights, wanted_key, only);
    if (!key) return key.status();
    return std::unique_ptr<Region>(new FakeRegion(net_, node_, *key));
  }

 private:
  const std::shared_ptr<Net> net_;
  const NodeId node_;
  Traits traits_;
};
}  // namespace

std::unique_ptr<Fabric> Net::open() {
  return std::make_unique<FakeFabric>(shared_from_this(), new_id());
}

FakeRegion::~FakeRegion() { net_->remove_region(node_, key_.key); }

FakeEndpoint::FakeEndpoint(std::shared_ptr<Net> net, NodeId node, Receiver& receiver)
    : net_(std::move(net)),
      node_(node),
      id_(net_->new_id()),
      receiver_(receiver),
      address_(net_->encode(id_)) {
  if (net_->modes().wait_fd) event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  net_->join(*this);
}

FakeEndpoint::~FakeEndpoint() { net_->leave(*this); }

Result<Peer> FakeEndpoint::add_peer(Bytes address) {
  const EndpointId id = Net::decode(address);
  if (id == 0) return Status::kInval;
  return Peer{id};
}

Post FakeEndpoint::post(Op& op, Packet packet) {
  op.begin();
  packet.op = &op;
  const Post p = net_->post(*this, std::move(packet));
  if (p != Post::kPosted) op.revert();
  return p;
}

Post FakeEndpoint::read(Op& op, Peer peer, void* to, size_t len, RemoteKey from, uint64_t offset) {
  assert(len > 0 && len <= net_->modes().max_rma);
  if (posts_.fetch_add(1) >= net_->modes().posts) return Post::kFailed;
  Packet p;
  p.kind = Packet::Kind::kRead;
  p.to = id_of(peer);
  p.local = to;
  p.len = len;
  p.key = from.key;
  p.address = from.base + offset;
  return post(op, std::move(p));
}

Post FakeEndpoint::write(Op& op, Peer peer, const void* from, size_t len, RemoteKey to,
                         uint64_t offset) {
  assert(len > 0 && len <= net_->modes().max_rma);
  if (posts_.fetch_add(1) >= net_->modes().posts) return Post::kFailed;
  Packet p;
  p.kind = Packet::Kind::kWrite;
  p.to = id_of(peer);
  p.local = const_cast<void*>(from);
  p.len = len;
  p.key = to.key;
  p.address = to.base + offset;
  return post(op, std::move(p));
}

Post FakeEndpoint::cas(Op& op, Peer peer, uint64_t* result, const uint64_t* expected,
                       const uint64_t* desired, RemoteKey at, uint64_t offset) {
  if (!net_->modes().cas) return Post::kFailed;
  Packet p;
  p.kind = Packet::Kind::kCas;
  p.to = id_of(peer);
  p.result = result;
  p.expected = *expected;
  p.desired = *desired;
  p.len = sizeof(uint64_t);
  p.key = at.key;
  p.address = at.base + offset;
  return post(op, std::move(p));
}

Post FakeEndpoint::send(Op& op, Peer peer, const void* message, size_t len) {
  assert(len <= net_->modes().max_message);
  Packet p;
  p.kind = Packet::Kind::kMessage;
  p.to = id_of(peer);
  const auto* b = static_cast<const std::byte*>(message);
  p.bytes.assign(b, b + len);
  return post(op, std::move(p));
}

bool FakeEndpoint::inject(Peer peer, const void* message, size_t len) {
  if (len > net_->modes().inject) return false;
  Packet p;
  p.kind = Packet::Kind::kMessage;
  p.to = id_of(peer);
  p.injected = true;
  const auto* b = static_cast<const std::byte*>(message);
  p.bytes.assign(b, b + len);
  return net_->post(*this, std::move(p)) == Post::kPosted;
}

// What was injected and has not arrived may go with it, as with a connection that is closed.
void FakeEndpoint::remove_peer(Peer peer) { net_->drop_injected(*this, id_of(peer)); }

int FakeEndpoint::poll() {
  if (!poll_lock_.try_lock()) return 0;
  dispatching_.fetch_add(1, std::memory_order_acq_rel);
  std::vector<Packet> events = std::exchange(left_, {});
  if (events.empty()) events = net_->turn(*this);
  poll_lock_.unlock();
  const Nanos begun = events.size() > 1 ? now() : 0;
  size_t n = 0;
  while (n < events.size()) {
    const Packet& p = events[n++];
    if (p.op != nullptr) {
      p.op->complete(p.cause);
    } else {
      receiver_.on_message(*this, p.bytes);
    }
    if (n < events.size() && now() - begun > kStretch) break;
  }
  if (n < events.size()) {
    Guard g(poll_lock_);
    left_.insert(left_.begin(), std::make_move_iterator(events.begin() + static_cast<ptrdiff_t>(n)),
                 std::make_move_iterator(events.end()));
    if (event_) eventfd_write(event_.get(), 1);  // a sleeper would not wake up for them
  }
  dispatching_.fetch_sub(1, std::memory_order_acq_rel);
  if (n > 0) wake_sleeper();
  return static_cast<int>(n);
}

bool FakeEndpoint::may_sleep() {
  if (!event_) return false;
  if (!net_->idle(*this) || dispatching_.load(std::memory_order_acquire) != 0) return false;
  Guard g(poll_lock_);
  return left_.empty();
}

}  // namespace fake

std::shared_ptr<FakeNet> FakeNet::make(const FakeModes& modes) {
  return std::make_shared<fake::Net>(modes);
}

}  // namespace cmi::fabric

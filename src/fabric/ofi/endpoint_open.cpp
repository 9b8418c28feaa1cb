// Setting up an OfiEndpoint and its address book. See endpoint.hpp.
#include <netinet/in.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstring>

#include "core/base/log.hpp"
#include "fabric/ofi/cause.hpp"
#include "fabric/ofi/endpoint.hpp"
#include "fabric/ofi/region.hpp"

namespace cmi::fabric::ofi {

namespace {
// Addresses come off the wire: what is handed to the provider must at least have its shape.
// libfabric is not told their length, so those of an unknown kind must be as long as `ours`.
bool plausible(Bytes address, uint32_t format, Bytes ours) {
  const auto family = [&] {
    sa_family_t f = AF_UNSPEC;
    if (address.size() >= sizeof f) std::memcpy(&f, address.data(), sizeof f);
    return f;
  };
  switch (format) {
    case FI_SOCKADDR_IN: {
      sockaddr_in in;
      if (address.size() != sizeof in || family() != AF_INET) return false;
      std::memcpy(&in, address.data(), sizeof in);
      return in.sin_port != 0 && in.sin_addr.s_addr != 0;
    }
    case FI_SOCKADDR_IN6: {
      sockaddr_in6 in;
      if (address.size() != sizeof in || family() != AF_INET6) return false;
      std::memcpy(&in, address.data(), sizeof in);
      return in.sin6_port != 0;
    }
    case FI_ADDR_STR:  // read up to its end
      return !address.empty() && address.size() < 256 && address.back() == std::byte{0};
    default:
      return address.size() == ours.size();
  }
}
}  // namespace

Result<std::unique_ptr<OfiEndpoint>> OfiEndpoint::open(const OfiFabric& fabric, Receiver& receiver,
                                                       const OfiEndpoint* beside) {
  KeepSignalHandlers keep;
  CloseOnExec mark;
  std::unique_ptr<OfiEndpoint> ep(new OfiEndpoint(fabric, receiver));
  if (beside != nullptr && Queue::can_be_shared(fabric)) {
    ep->queue_ = beside->queue_;
    ep->shares_queue_ = true;
  }
  if (Status s = ep->start(); !ok(s)) return s;
  return ep;
}

Status OfiEndpoint::open_all() {
  Guard g(fabric_.gate());
  if (queue_ == nullptr) {
    auto queue = Queue::open(fabric_);
    if (!queue) return queue.status();
    queue_ = queue.take();
  }
  fi_av_attr av_attr = {};
  av_attr.type = fabric_.info()->domain_attr->av_type;
  fid_av* av = nullptr;
  if (int rc = fi_av_open(fabric_.domain(), &av_attr, &av, nullptr); rc != 0)
    return failed("address vector", rc);
  peers_.reset(av);
  fid_ep* ep = nullptr;
  if (int rc = fi_endpoint(fabric_.domain(), fabric_.info(), &ep, nullptr); rc != 0)
    return failed("open", rc);
  ep_.reset(ep);
  if (int rc = fi_ep_bind(ep, &av->fid, 0); rc != 0) return failed("bind addresses", rc);
  if (int rc = fi_ep_bind(ep, &queue_->get()->fid, FI_TRANSMIT | FI_RECV); rc != 0)
    return failed("bind queue", rc);
  if (int rc = fi_enable(ep); rc != 0) return failed("enable", rc);

  address_.resize(256);
  size_t len = address_.size();
  if (int rc = fi_getname(&ep->fid, address_.data(), &len); rc != 0) return failed("name", rc);
  address_.resize(len);
  return Status::kOk;
}

Status OfiEndpoint::start() {
  if (Status s = open_all(); !ok(s)) return s;
  fabric_.connections().add(address_);

  // Mapped, not allocated: most links see small messages, and what is never written to stays free.
  void* memory = mmap(nullptr, kSlots * kMaxMessage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return failed("receive buffers", -FI_ENOMEM);
  memory_ = Mapping(memory, kSlots * kMaxMessage);
  if (fabric_.local_registration()) {
    memory_mr_ = register_local(fabric_, ep_.get(), memory, memory_.size());
    if (memory_mr_ == nullptr) return failed("registering receive buffers", -FI_ENOMEM);
  }
  for (size_t i = 0; i < kSlots; ++i) {
    contexts_[i] = {{}, this, &slots_[i]};
    slots_[i].data = memory_.data() + i * kMaxMessage;
    post_receive(slots_[i]);
  }
  // Only then may others post what is left over.
  queue_->join(*this);
  return Status::kOk;
}

bool OfiEndpoint::can_cas() const {
  // Asked of the endpoint: net advertises atomics and has none.
  size_t count = 0;
  return fi_compare_atomicvalid(ep_.get(), FI_UINT64, FI_CSWAP, &count) == 0 && count >= 1;
}

Result<Peer> OfiEndpoint::add_peer(Bytes address) {
  if (!plausible(address, fabric_.info()->addr_format, address_)) return Status::kInval;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const int rc = [&] {
    Guard g(fabric_.gate());
    return fi_av_insert(peers_.get(), address.data(), 1, &peer, 0, nullptr);
  }();
  if (rc != 1 || peer == FI_ADDR_NOTAVAIL) {
    trace(kFacCtrl, kWarn, "peer address not taken: {}", error_text(rc));
    return rc == -FI_ENOMEM ? Status::kNoMem : Status::kInval;
  }
  {
    Guard g(book_lock_);
    book_.emplace_back(Peer{peer}, std::vector<std::byte>(address.begin(), address.end()));
  }
  fabric_.connections().add(address);
  return Peer{peer};
}

void OfiEndpoint::remove_peer(Peer peer) {
  std::vector<std::byte> address;
  {
    Guard g(book_lock_);
    auto it = std::find_if(book_.begin(), book_.end(), [&](auto& e) { return e.first == peer; });
    if (it == book_.end()) return;
    address = std::move(it->second);
    book_.erase(it);
  }
  fabric_.connections().remove(address);
  fi_addr_t a = static_cast<fi_addr_t>(peer);
  Guard g(fabric_.gate());
  if (int rc = fi_av_remove(peers_.get(), &a, 1, 0); rc != 0)
    trace(kFacCtrl, kWarn, "peer not removed: {}", error_text(rc));
}

// net of libfabric 1.17, and tcp of later ones up to 2.x, forgets, when an endpoint closes, the
// connections that it has accepted for it and that have asked for nothing yet. It looks at them
// later, when another endpoint of the domain is polled and they have something to say, through a
// pointer to what was closed. So they end first, where the provider can see it, and nobody connects
// any more.
void OfiEndpoint::end_accepted() {
  constexpr int kLooks = 1000;  // a few make it
  Accepted accepted(address_);
  for (int look = 0; look < kLooks && accepted.shut_down() != 0; ++look) queue_->look();
}

// The provider closes sockets within a look, and reuses their numbers: none is meanwhile.
void OfiEndpoint::end_strangers() {
  Guard alone(queue_->look_lock());
  Guard g(fabric_.gate());
  if (strangers_.end(address_, Queue::can_be_shared(fabric_)) != 0) queue_->look();
}

void OfiEndpoint::bind(const std::shared_ptr<Registration>& registration) {
  Guard g(bound_mu_);
  std::erase_if(bound_, [](auto& t) { return t.expired(); });
  bound_.push_back(registration);
}

// cxi does not close an endpoint that anything is bound to (FI_EBUSY), and closes a registration
// whose endpoint is open; the manual of libfabric says it the other way round.
void OfiEndpoint::close_registrations() {
  if (!fabric_.bound_to_endpoints()) return;
  {
    Guard g(bound_mu_);
    for (auto& t : bound_) {
      if (const auto registration = t.lock()) registration->close();
    }
  }
  Guard g(locals_mu_);
  locals_.clear();
  memory_mr_.reset();
}

OfiEndpoint::~OfiEndpoint() {
  fabric_.connections().remove(address_);
  for (auto& [peer, address] : book_) fabric_.connections().remove(address);
  if (queue_ != nullptr) {
    queue_->quiet(*this);
    Guard alone(queue_->look_lock());
    Guard g(fabric_.gate());
    if (ep_ != nullptr && !address_.empty() && Queue::can_be_shared(fabric_)) end_accepted();
    close_registrations();
    ep_.reset();
    queue_->leave(*this, unposted_.load(std::memory_order_relaxed));
  }
  Guard g(fabric_.gate());
  queue_.reset();
  peers_.reset();
}

}  // namespace cmi::fabric::ofi

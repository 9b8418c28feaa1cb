// The objects of a libfabric provider over the fake's net. See provider.hpp.
#include "fabric/fake/provider.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/fake/net.hpp"
#include "fabric/ofi/domain.hpp"

namespace cmi::fabric::fake {

namespace {

struct FakeDomain;
struct FakeQueue;
struct FakeEp;

// The object that a fid of libfabric is the first member of.
template <class T>
T& object(void* fid) {
  return *reinterpret_cast<T*>(fid);
}
template <class T>
int close_object(fid* f) {
  delete &object<T>(f);
  return 0;
}

template <class T>
fi_ops closing_ops(int (*control)(fid*, int, void*) = nullptr,
                   int (*bind)(fid*, fid*, uint64_t) = nullptr) {
  fi_ops ops = {};
  ops.size = sizeof ops;
  ops.close = close_object<T>;
  ops.bind = bind;
  ops.control = control;
  return ops;
}

// One for all nodes of a test: the wire, and what raw keys stand for.
class Provider final : public FakeProvider, public std::enable_shared_from_this<Provider> {
 public:
  explicit Provider(const ProviderModes& m) : modes(m) {
    FakeModes net;
    net.cas = m.atomics;
    net.wait_fd = m.wait_fd;
    net.ordered = m.ordered;
    net.virtual_addresses = (m.mr_mode & FI_MR_VIRT_ADDR) != 0;
    net.bound_regions = (m.mr_mode & FI_MR_ENDPOINT) != 0;
    net.one_sided = m.automatic;
    net.max_message = net.max_rma = m.max_message;
    net_ = FakeNet::make(net);
  }
  Result<std::unique_ptr<Fabric>> open() override;
  ofi::Info describe() override;
  FakeNet& net() override { return *net_; }
  void overrun(Bytes endpoint) override {
    Guard g(mu);
    overrun_.emplace(endpoint.begin(), endpoint.end());
  }
  bool is_overrun(Bytes endpoint) {
    Guard g(mu);
    return overrun_.contains({endpoint.begin(), endpoint.end()});
  }

  // What a key of this provider stands for in the net; 0: nothing.
  uint64_t resolve(const std::vector<uint8_t>& raw) {
    Guard g(mu);
    auto it = raw_keys.find(raw);
    return it == raw_keys.end() ? 0 : it->second;
  }

  const ProviderModes modes;
  Mutex mu;
  std::map<std::vector<uint8_t>, uint64_t> raw_keys CMI_GUARDED_BY(mu);

 private:
  std::set<std::vector<std::byte>> overrun_ CMI_GUARDED_BY(mu);
  std::shared_ptr<FakeNet> net_;
};

struct FakeFabricFid {
  fid_fabric fid = {};
  std::shared_ptr<Provider> provider;
};

struct FakeMr {
  fid_mr fid = {};
  FakeDomain* domain = nullptr;
  const std::byte* data = nullptr;
  size_t len = 0;
  uint32_t rights = 0;
  uint64_t key = 0;  // in the net
  std::vector<uint8_t> raw;
  FakeEp* bound = nullptr;         // FI_MR_ENDPOINT: whose it is
  bool enabled = false;            // of no use before
  std::unique_ptr<Region> region;  // null: for local use only, or not enabled
  ~FakeMr();
};

struct FakeDomain {
  fid_domain fid = {};
  std::shared_ptr<Provider> provider;
  std::unique_ptr<Fabric> node;
  Mutex mu;
  std::set<FakeMr*> live CMI_GUARDED_BY(mu);
  std::vector<std::unique_ptr<Region>> kept CMI_GUARDED_BY(mu);  // closed, by mode still open
  std::map<uint64_t, uint64_t> mapped CMI_GUARDED_BY(mu);        // raw keys that initiators may use
  uint64_t last_mapped CMI_GUARDED_BY(mu) = 0;

  bool wants(int mode) const { return (provider->modes.mr_mode & mode) != 0; }
  // FI_MR_LOCAL: the buffer lies in a registration that is alive, and desc says in which.
  bool covered(const FakeEp& ep, void* desc, const void* buffer, size_t len) {
    if (!wants(FI_MR_LOCAL) || len == 0) return true;
    Guard g(mu);
    auto* mr = static_cast<FakeMr*>(desc);
    if (live.count(mr) == 0 || !mr->enabled) return false;
    if (wants(FI_MR_ENDPOINT) && mr->bound != &ep) return false;
    const auto* from = static_cast<const std::byte*>(buffer);
    return from >= mr->data && from + len <= mr->data + mr->len;
  }
  // False: an initiator that has no such key.
  bool net_key(uint64_t* key) {
    if (!wants(FI_MR_RAW)) return true;
    Guard g(mu);
    auto it = mapped.find(*key);
    if (it == mapped.end()) return false;
    *key = it->second;
    return true;
  }
};

FakeMr::~FakeMr() {
  {
    Guard g(domain->mu);
    domain->live.erase(this);
    if (domain->provider->modes.keeps_closed_keys && region != nullptr)
      domain->kept.push_back(std::move(region));
  }
  if (!raw.empty()) {
    Guard g(domain->provider->mu);
    domain->provider->raw_keys.erase(raw);
  }
}

struct FakeAv {
  fid_av fid = {};
  Mutex mu;
  std::vector<std::vector<std::byte>> addresses CMI_GUARDED_BY(mu);
};

struct FakeQueue {
  fid_cq fid = {};
  Fd wait;  // an epoll over the endpoints', which come later, and `signalled`; none by mode
  Fd signalled;
  std::vector<FakeEp*> eps;  // bound to it; changed and used one call at a time (OfiFabric::gate)
  Mutex mu;
  std::deque<fi_cq_msg_entry> good CMI_GUARDED_BY(mu);
  std::deque<fi_cq_err_entry> bad CMI_GUARDED_BY(mu);
};

struct FakeEp final : Receiver {
  struct Handle {
    fid_ep fid = {};
    FakeEp* self = nullptr;
  };
  Handle handle;
  FakeDomain* domain = nullptr;
  FakeQueue* queue = nullptr;
  FakeAv* av = nullptr;
  struct Receive {
    void* buffer;
    size_t len;
    void* context;
  };
  Mutex mu;
  std::deque<Receive> receives CMI_GUARDED_BY(mu);
  std::deque<std::vector<std::byte>> early CMI_GUARDED_BY(mu);
  std::map<fi_addr_t, Peer> peers CMI_GUARDED_BY(mu);
  struct NetOp;
  std::set<NetOp*> ops CMI_GUARDED_BY(mu);
  std::unique_ptr<Endpoint> endpoint;
  bool enabled = false;

  ~FakeEp() override {
    if (queue != nullptr) std::erase(queue->eps, this);
    endpoint.reset();
    Guard g(mu);
    for (NetOp* op : ops) delete op;
  }
  void on_message(Endpoint&, Bytes message) override {
    Guard g(mu);
    early.emplace_back(message.begin(), message.end());
    match();
  }
  void match() CMI_REQUIRES(mu) {
    while (!early.empty() && !receives.empty()) {
      const Receive r = receives.front();
      receives.pop_front();
      const size_t n = std::min(r.len, early.front().size());
      std::copy_n(early.front().data(), n, static_cast<std::byte*>(r.buffer));
      early.pop_front();
      Guard g(queue->mu);
      queue->good.push_back({r.context, FI_RECV | FI_MSG, n});
    }
  }
  Peer peer_of(fi_addr_t addr) {
    Guard g(mu);
    auto it = peers.find(addr);
    if (it != peers.end()) return it->second;
    std::vector<std::byte> address;
    {
      Guard g2(av->mu);
      if (addr < av->addresses.size()) address = av->addresses[addr];
    }
    auto peer = endpoint->add_peer(address);
    return peers[addr] = peer ? *peer : Peer{0};
  }
  // An Op of the net for one of libfabric's, whose end goes to the queue.
  struct NetOp : Op {
    NetOp(FakeEp& e, void* c) : Op(&NetOp::over, this), ep(e), context(c) {}
    static void over(Op& op) {
      auto& self = static_cast<NetOp&>(op);
      self.ep.ended(self);
    }
    FakeEp& ep;
    void* context;
  };
  void ended(NetOp& op) {
    {
      Guard g(queue->mu);
      if (op.cause() == Cause::kOk) {
        queue->good.push_back({op.context, 0, 0});
      } else {
        fi_cq_err_entry e = {};
        e.op_context = op.context;
        e.err = op.cause() == Cause::kRefused ? FI_EACCES : FI_ECONNRESET;
        queue->bad.push_back(e);
      }
    }
    {
      Guard g(mu);
      ops.erase(&op);
    }
    delete &op;
  }
  template <class F>
  ssize_t run(void* context, F post) {
    auto* op = new NetOp(*this, context);
    {
      Guard g(mu);
      ops.insert(op);
    }
    const Post p = post(*op);
    if (p == Post::kPosted) return 0;
    Guard g(mu);
    ops.erase(op);
    delete op;
    return p == Post::kAgain ? -FI_EAGAIN : -FI_EOPNOTSUPP;
  }
};

// --- operations -------------------------------------------------------------------------------

FakeEp& ep_of(fid_ep* f) { return *object<FakeEp::Handle>(f).self; }

ssize_t post_recv(fid_ep* f, void* buffer, size_t len, void* desc, fi_addr_t, void* context) {
  FakeEp& ep = ep_of(f);
  if (!ep.domain->covered(ep, desc, buffer, len)) return -FI_EINVAL;
  Guard g(ep.mu);
  ep.receives.push_back({buffer, len, context});
  ep.match();
  return 0;
}

ssize_t post_send(fid_ep* f, const void* buffer, size_t len, void* desc, fi_addr_t to,
                  void* context) {
  FakeEp& ep = ep_of(f);
  if (!ep.domain->covered(ep, desc, buffer, len)) return -FI_EINVAL;
  const Peer peer = ep.peer_of(to);
  return ep.run(context, [&](Op& op) { return ep.endpoint->send(op, peer, buffer, len); });
}

ssize_t post_inject(fid_ep* f, const void* buffer, size_t len, fi_addr_t to) {
  FakeEp& ep = ep_of(f);
  if (len > ep.domain->provider->modes.inject_size) return -FI_EMSGSIZE;
  return ep.endpoint->inject(ep.peer_of(to), buffer, len) ? 0 : -FI_EAGAIN;
}

ssize_t post_read(fid_ep* f, void* buffer, size_t len, void* desc, fi_addr_t from, uint64_t addr,
                  uint64_t key, void* context) {
  FakeEp& ep = ep_of(f);
  if (!ep.domain->covered(ep, desc, buffer, len)) return -FI_EINVAL;
  if (len > ep.domain->provider->modes.max_message) return -FI_EMSGSIZE;
  if (!ep.domain->net_key(&key)) return -FI_EKEYREJECTED;
  const Peer peer = ep.peer_of(from);
  return ep.run(context, [&](Op& op) {
    return ep.endpoint->read(op, peer, buffer, len, RemoteKey{key, addr}, 0);
  });
}

ssize_t post_writemsg(fid_ep* f, const fi_msg_rma* msg, uint64_t flags) {
  FakeEp& ep = ep_of(f);
  const iovec& local = msg->msg_iov[0];
  void* desc = msg->desc == nullptr ? nullptr : msg->desc[0];
  if (!ep.domain->covered(ep, desc, local.iov_base, local.iov_len)) return -FI_EINVAL;
  if (local.iov_len > ep.domain->provider->modes.max_message) return -FI_EMSGSIZE;
  const bool inject = (flags & FI_INJECT) != 0;
  if (inject && local.iov_len > ep.domain->provider->modes.inject_size) return -FI_EMSGSIZE;
  RemoteKey to{msg->rma_iov[0].key, msg->rma_iov[0].addr};
  if (!ep.domain->net_key(&to.key)) return -FI_EKEYREJECTED;
  const Peer peer = ep.peer_of(msg->addr);
  return ep.run(msg->context, [&](Op& op) {
    return ep.endpoint->write(op, peer, local.iov_base, local.iov_len, to, 0);
  });
}

ssize_t post_swap(fid_ep* f, const void* desired, size_t count, void* desc, const void* expected,
                  void* expected_desc, void* result, void* result_desc, fi_addr_t at, uint64_t addr,
                  uint64_t key, fi_datatype type, fi_op operation, void* context) {
  FakeEp& ep = ep_of(f);
  FakeDomain& d = *ep.domain;
  if (count != 1 || type != FI_UINT64 || operation != FI_CSWAP) return -FI_EOPNOTSUPP;
  if (!d.covered(ep, desc, desired, 8) || !d.covered(ep, expected_desc, expected, 8) ||
      !d.covered(ep, result_desc, result, 8)) {
    return -FI_EINVAL;
  }
  if (!d.net_key(&key)) return -FI_EKEYREJECTED;
  const Peer peer = ep.peer_of(at);
  if (d.provider->modes.lies_about_atomics) {
    return ep.run(context, [&](Op& op) {
      return ep.endpoint->read(op, peer, result, 8, RemoteKey{key, addr}, 0);
    });
  }
  return ep.run(context, [&](Op& op) {
    return ep.endpoint->cas(op, peer, static_cast<uint64_t*>(result),
                            static_cast<const uint64_t*>(expected),
                            static_cast<const uint64_t*>(desired), RemoteKey{key, addr}, 0);
  });
}

int swap_valid(fid_ep* f, fi_datatype type, fi_op operation, size_t* count) {
  if (!ep_of(f).domain->provider->modes.atomics || type != FI_UINT64 || operation != FI_CSWAP)
    return -FI_EOPNOTSUPP;
  *count = 1;
  return 0;
}

// --- queues and addresses ---------------------------------------------------------------------

ssize_t read_queue(fid_cq* f, void* buffer, size_t count) {
  auto& q = object<FakeQueue>(f);
  for (FakeEp* ep : q.eps) {
    ep->endpoint->poll();
    if (ep->domain->provider->is_overrun(ep->endpoint->address())) return -FI_EOVERRUN;
  }
  if (eventfd_t ignored; q.signalled) eventfd_read(q.signalled.get(), &ignored);
  Guard g(q.mu);
  if (!q.bad.empty()) return -FI_EAVAIL;
  if (q.good.empty()) return -FI_EAGAIN;
  auto* out = static_cast<fi_cq_msg_entry*>(buffer);
  size_t n = 0;
  for (; n < count && !q.good.empty(); ++n) {
    out[n] = q.good.front();
    q.good.pop_front();
  }
  return static_cast<ssize_t>(n);
}

ssize_t read_error(fid_cq* f, fi_cq_err_entry* out, uint64_t) {
  auto& q = object<FakeQueue>(f);
  Guard g(q.mu);
  if (q.bad.empty()) return -FI_EAGAIN;
  *out = q.bad.front();
  q.bad.pop_front();
  return 1;
}

int signal_queue(fid_cq* f) {
  auto& q = object<FakeQueue>(f);
  if (!q.signalled) return -FI_EOPNOTSUPP;
  return eventfd_write(q.signalled.get(), 1);
}

int queue_control(fid* f, int command, void* arg) {
  auto& q = object<FakeQueue>(f);
  if (command != FI_GETWAIT || !q.wait) return -FI_ENOSYS;
  *static_cast<int*>(arg) = q.wait.get();
  return 0;
}

int insert_address(fid_av* f, const void* addr, size_t count, fi_addr_t* out, uint64_t, void*) {
  auto& av = object<FakeAv>(f);
  if (count != 1) return -FI_ENOSYS;
  const auto* bytes = static_cast<const std::byte*>(addr);
  if (Net::decode(Bytes(bytes, 16)) == 0) return 0;
  Guard g(av.mu);
  *out = av.addresses.size();
  av.addresses.emplace_back(bytes, bytes + 16);
  return 1;
}

int remove_address(fid_av*, fi_addr_t*, size_t, uint64_t) { return 0; }

// --- endpoints --------------------------------------------------------------------------------

// As cxi does, it stays open while a registration is bound to it.
int ep_close(fid* f) {
  FakeEp& ep = ep_of(reinterpret_cast<fid_ep*>(f));
  {
    Guard g(ep.domain->mu);
    for (const FakeMr* mr : ep.domain->live) {
      if (mr->bound == &ep) return -FI_EBUSY;
    }
  }
  delete &ep;
  return 0;
}

int ep_bind(fid* f, fid* other, uint64_t) {
  FakeEp& ep = ep_of(reinterpret_cast<fid_ep*>(f));
  if (other->fclass == FI_CLASS_CQ) {
    ep.queue = &object<FakeQueue>(other);
    ep.queue->eps.push_back(&ep);
    if (ep.queue->wait) {
      epoll_event e = {};
      e.events = EPOLLIN;
      if (epoll_ctl(ep.queue->wait.get(), EPOLL_CTL_ADD, ep.endpoint->wait_fd(), &e) != 0)
        return -FI_ENOMEM;
    }
  } else {
    ep.av = &object<FakeAv>(other);
  }
  return 0;
}

int ep_control(fid* f, int command, void*) {
  FakeEp& ep = ep_of(reinterpret_cast<fid_ep*>(f));
  if (command != FI_ENABLE || ep.queue == nullptr || ep.av == nullptr) return -FI_ENOSYS;
  ep.enabled = true;
  return 0;
}

int ep_name(fid* f, void* addr, size_t* len) {
  const Bytes name = ep_of(reinterpret_cast<fid_ep*>(f)).endpoint->address();
  if (*len < name.size()) return -FI_ETOOSMALL;
  std::memcpy(addr, name.data(), name.size());
  *len = name.size();
  return 0;
}

int open_endpoint(fid_domain* d, fi_info*, fid_ep** out, void*) {
  static fi_ops ops = {sizeof(fi_ops), ep_close, ep_bind, ep_control, nullptr, nullptr, nullptr};
  static fi_ops_cm cm = [] {
    fi_ops_cm o = {};
    o.size = sizeof o;
    o.getname = ep_name;
    return o;
  }();
  static fi_ops_msg msg = [] {
    fi_ops_msg o = {};
    o.size = sizeof o;
    o.recv = post_recv;
    o.send = post_send;
    o.inject = post_inject;
    return o;
  }();
  static fi_ops_rma rma = [] {
    fi_ops_rma o = {};
    o.size = sizeof o;
    o.read = post_read;
    o.writemsg = post_writemsg;
    return o;
  }();
  static fi_ops_atomic atomic = [] {
    fi_ops_atomic o = {};
    o.size = sizeof o;
    o.compwrite = post_swap;
    o.compwritevalid = swap_valid;
    return o;
  }();
  auto ep = std::make_unique<FakeEp>();
  ep->domain = &object<FakeDomain>(d);
  auto endpoint = ep->domain->node->open_endpoint(*ep);
  if (!endpoint) return -FI_ENOMEM;
  ep->endpoint = endpoint.take();
  fid_ep& fid = ep->handle.fid;
  fid.fid.fclass = FI_CLASS_EP;
  fid.fid.ops = &ops;
  fid.cm = &cm;
  fid.msg = &msg;
  fid.rma = &rma;
  fid.atomic = &atomic;
  ep->handle.self = ep.get();
  *out = &fid;
  [[maybe_unused]] FakeEp* freed_by_close = ep.release();
  return 0;
}

int open_queue(fid_domain* d, fi_cq_attr* attr, fid_cq** out, void*) {
  static fi_ops ops = closing_ops<FakeQueue>(queue_control);
  static fi_ops_cq cq = [] {
    fi_ops_cq o = {};
    o.size = sizeof o;
    o.read = read_queue;
    o.readerr = read_error;
    o.signal = signal_queue;
    return o;
  }();
  const bool wait = attr->wait_obj == FI_WAIT_FD;
  if (wait && !object<FakeDomain>(d).provider->modes.wait_fd) return -FI_ENOSYS;
  auto* q = new FakeQueue;
  if (wait) {
    q->wait.reset(epoll_create1(EPOLL_CLOEXEC));
    q->signalled.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event e = {};
    e.events = EPOLLIN;
    if (epoll_ctl(q->wait.get(), EPOLL_CTL_ADD, q->signalled.get(), &e) != 0) {
      delete q;
      return -FI_ENOMEM;
    }
  }
  q->fid.fid.fclass = FI_CLASS_CQ;
  q->fid.fid.ops = &ops;
  q->fid.ops = &cq;
  *out = &q->fid;
  return 0;
}

int open_av(fid_domain*, fi_av_attr*, fid_av** out, void*) {
  static fi_ops ops = closing_ops<FakeAv>();
  static fi_ops_av av = [] {
    fi_ops_av o = {};
    o.size = sizeof o;
    o.insert = insert_address;
    o.remove = remove_address;
    return o;
  }();
  auto* a = new FakeAv;
  a->fid.fid.fclass = FI_CLASS_AV;
  a->fid.fid.ops = &ops;
  a->fid.ops = &av;
  *out = &a->fid;
  return 0;
}

// --- registrations ----------------------------------------------------------------------------

// From here on it opens something. A provider that chooses keys may do so now.
int enable_mr(FakeMr& mr) {
  FakeDomain& domain = *mr.domain;
  if (mr.enabled || (domain.wants(FI_MR_ENDPOINT) && mr.bound == nullptr)) return -FI_EINVAL;
  if (mr.rights != 0 || !domain.wants(FI_MR_LOCAL)) {
    Endpoint* through = mr.bound == nullptr ? nullptr : mr.bound->endpoint.get();
    auto region = domain.node->register_memory(const_cast<std::byte*>(mr.data), mr.len, mr.rights,
                                               mr.key, through);
    if (!region) return -FI_ENOKEY;
    mr.region = region.take();
  }
  mr.fid.key = mr.raw.empty() ? mr.key : FI_KEY_NOTAVAIL;
  if (!mr.raw.empty()) {
    Guard g(domain.provider->mu);
    domain.provider->raw_keys[mr.raw] = mr.key;
  }
  Guard g(domain.mu);
  mr.enabled = true;
  return 0;
}

// To one endpoint, once, which is up: as cxi does.
int mr_bind(fid* f, fid* other, uint64_t flags) {
  auto& mr = object<FakeMr>(f);
  if (!mr.domain->wants(FI_MR_ENDPOINT)) return -FI_ENOSYS;
  if (flags != 0) return -FI_EBADFLAGS;
  if (other->fclass != FI_CLASS_EP || mr.bound != nullptr) return -FI_EINVAL;
  FakeEp& ep = ep_of(reinterpret_cast<fid_ep*>(other));
  if (ep.domain != mr.domain || !ep.enabled) return -FI_EINVAL;
  Guard g(mr.domain->mu);
  mr.bound = &ep;
  return 0;
}

int mr_control(fid* f, int command, void* arg) {
  auto& mr = object<FakeMr>(f);
  if (command == FI_ENABLE) return enable_mr(mr);
  if (command != FI_GET_RAW_MR || mr.raw.empty()) return -FI_ENOSYS;
  auto* attr = static_cast<struct fi_mr_raw_attr*>(arg);
  if (*attr->key_size < mr.raw.size()) return -FI_ETOOSMALL;
  std::memcpy(attr->raw_key, mr.raw.data(), mr.raw.size());
  *attr->key_size = mr.raw.size();
  *attr->base_addr = mr.domain->wants(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(mr.data) : 0;
  return 0;
}

// All of it: mincore() fails where something is not. (What is there need not be in memory yet: who
// pins pages brings them in.)
bool is_mapped(const void* buffer, size_t len) {
  const auto from = reinterpret_cast<uintptr_t>(buffer) / kPageSize * kPageSize;
  const size_t whole = reinterpret_cast<uintptr_t>(buffer) + len - from;
  std::vector<unsigned char> resident((whole + kPageSize - 1) / kPageSize);
  return mincore(reinterpret_cast<void*>(from), whole, resident.data()) == 0;
}

int register_mr(fid* f, const void* buffer, size_t len, uint64_t access, uint64_t,
                uint64_t requested, uint64_t, fid_mr** out, void*) {
  static fi_ops ops = closing_ops<FakeMr>(mr_control, mr_bind);
  auto& domain = object<FakeDomain>(f);
  const ProviderModes& modes = domain.provider->modes;
  if (domain.wants(FI_MR_ALLOCATED) && !is_mapped(buffer, len)) return -FI_EFAULT;
  const size_t bits = 8 * std::min<size_t>(modes.key_size, 8);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  auto mr = std::make_unique<FakeMr>();
  mr->domain = &domain;
  mr->data = static_cast<const std::byte*>(buffer);
  mr->len = len;
  mr->key = requested;
  if (domain.wants(FI_MR_PROV_KEY | FI_MR_RAW)) {
    mr->key = random_u64() & mask;
  } else if ((mr->key & ~mask) != 0) {
    return -FI_EKEYREJECTED;
  }
  if (access & FI_REMOTE_READ) mr->rights |= kRead;
  if (access & FI_REMOTE_WRITE) mr->rights |= kWrite;
  mr->fid.fid.fclass = FI_CLASS_MR;
  mr->fid.fid.ops = &ops;
  mr->fid.mem_desc = mr.get();
  mr->fid.key = FI_KEY_NOTAVAIL;
  if (domain.wants(FI_MR_RAW)) {
    mr->raw.resize(modes.key_size);
    for (size_t i = 0; i < mr->raw.size(); i += 8) {
      const uint64_t r = random_u64();
      std::memcpy(mr->raw.data() + i, &r, std::min<size_t>(8, mr->raw.size() - i));
    }
  }
  if (!domain.wants(FI_MR_ENDPOINT)) {
    if (const int rc = enable_mr(*mr); rc != 0) return rc;
  }
  Guard g(domain.mu);
  domain.live.insert(mr.get());
  *out = &mr.release()->fid;
  return 0;
}

int domain_control(fid* f, int command, void* arg) {
  auto& domain = object<FakeDomain>(f);
  if (command == FI_UNMAP_KEY) {
    Guard g(domain.mu);
    return domain.mapped.erase(*static_cast<uint64_t*>(arg)) == 1 ? 0 : -FI_EINVAL;
  }
  if (command != FI_MAP_RAW_MR) return -FI_ENOSYS;
  auto* map = static_cast<struct fi_mr_map_raw*>(arg);
  const uint64_t key = domain.provider->resolve({map->raw_key, map->raw_key + map->key_size});
  Guard g(domain.mu);
  *map->key = ++domain.last_mapped;
  domain.mapped[*map->key] = key;  // one that stands for nothing is refused when it is used
  return 0;
}

// --- the tree from the top --------------------------------------------------------------------

int open_domain(fid_fabric* f, fi_info*, fid_domain** out, void*) {
  static fi_ops ops = closing_ops<FakeDomain>(domain_control);
  static fi_ops_domain domain_ops = [] {
    fi_ops_domain o = {};
    o.size = sizeof o;
    o.av_open = open_av;
    o.cq_open = open_queue;
    o.endpoint = open_endpoint;
    return o;
  }();
  static fi_ops_mr mr_ops = {sizeof(fi_ops_mr), register_mr, nullptr, nullptr};
  auto* d = new FakeDomain;
  d->provider = object<FakeFabricFid>(f).provider;
  d->node = d->provider->net().open();
  d->fid.fid.fclass = FI_CLASS_DOMAIN;
  d->fid.fid.ops = &ops;
  d->fid.ops = &domain_ops;
  d->fid.mr = &mr_ops;
  *out = &d->fid;
  return 0;
}

int fabric_trywait(fid_fabric*, fid** fids, int) {
  auto& q = object<FakeQueue>(fids[0]);
  Guard g(q.mu);
  const bool idle =
      q.good.empty() && q.bad.empty() &&
      std::all_of(q.eps.begin(), q.eps.end(), [](FakeEp* ep) { return ep->endpoint->may_sleep(); });
  return idle ? 0 : -FI_EAGAIN;
}

Result<std::unique_ptr<Fabric>> Provider::open() {
  if (ofi::libfabric() == nullptr) return Status::kNotSupp;
  ofi::Info info = describe();
  if (info == nullptr) return Status::kNoMem;
  return ofi::OfiFabric::open(std::move(info), false, open_fabric_of);
}

ofi::Info Provider::describe() {
  static fi_ops ops = closing_ops<FakeFabricFid>();
  static fi_ops_fabric fabric_ops = [] {
    fi_ops_fabric o = {};
    o.size = sizeof o;
    o.domain = open_domain;
    o.trywait = fabric_trywait;
    return o;
  }();
  if (ofi::libfabric() == nullptr) return nullptr;
  ofi::Info info(ofi::libfabric()->dupinfo(nullptr));
  if (info == nullptr) return nullptr;
  auto* fabric = new FakeFabricFid;
  fabric->provider = shared_from_this();
  fabric->fid.fid.fclass = FI_CLASS_FABRIC;
  fabric->fid.fid.ops = &ops;
  fabric->fid.ops = &fabric_ops;
  info->fabric_attr->fabric = &fabric->fid;
  info->fabric_attr->prov_name = strdup(modes.name);  // freed with the info
  info->domain_attr->name = strdup(modes.name);
  info->domain_attr->mr_mode = modes.mr_mode;
  info->domain_attr->mr_key_size = modes.key_size;
  info->domain_attr->av_type = FI_AV_TABLE;
  info->ep_attr->max_msg_size = modes.max_message;
  info->tx_attr->inject_size = modes.inject_size;
  info->tx_attr->size = info->rx_attr->size = 256;
  if (modes.ordered) {
    info->tx_attr->msg_order = info->rx_attr->msg_order = FI_ORDER_SAW | FI_ORDER_SAS;
  }
  return info;
}

}  // namespace
}  // namespace cmi::fabric::fake

namespace cmi::fabric {
// The object was made beforehand.
int open_fabric_of(fi_fabric_attr* attr, fid_fabric** out, void*) {
  *out = std::exchange(attr->fabric, nullptr);
  return 0;
}

std::shared_ptr<FakeProvider> FakeProvider::make(const ProviderModes& modes) {
  return std::make_shared<fake::Provider>(modes);
}
}  // namespace cmi::fabric

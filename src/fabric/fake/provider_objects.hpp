// What libfabric's handles stand for in the provider of provider.hpp, for the files that implement
// it: provider_operations.cpp, provider_endpoints.cpp, provider_queues.cpp, provider_regions.cpp,
// and provider.cpp, which has the tree from the top.
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/lock.hpp"
#include "fabric/fake/net.hpp"
#include "fabric/fake/provider.hpp"

namespace cmi::fabric::fake {

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

inline FakeEp& ep_of(fid_ep* f) { return *object<FakeEp::Handle>(f).self; }

// What may be called on an endpoint: provider_operations.cpp.
fi_ops_msg* message_operations();
fi_ops_rma* rma_operations();
fi_ops_atomic* atomic_operations();

// What a domain opens: provider_endpoints.cpp, provider_queues.cpp, provider_regions.cpp.
int open_endpoint(fid_domain* d, fi_info*, fid_ep** out, void*);
int open_queue(fid_domain* d, fi_cq_attr* attr, fid_cq** out, void*);
int open_av(fid_domain*, fi_av_attr*, fid_av** out, void*);
int register_mr(fid* f, const void* buffer, size_t len, uint64_t access, uint64_t,
                uint64_t requested, uint64_t, fid_mr** out, void*);
int domain_control(fid* f, int command, void* arg);  // maps raw keys
// Whether nothing waits in the queue or is under way.
int fabric_trywait(fid_fabric*, fid** fids, int);

}  // namespace cmi::fabric::fake

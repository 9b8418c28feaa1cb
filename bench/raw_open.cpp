// Opening a RawEndpoint. libfabric is opened with dlopen, as by the library, after the variables
// that keep Debian's from installing signal handlers were set (see main.cpp).
#include <dlfcn.h>
#include <rdma/fi_cm.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "raw.hpp"

namespace bench {

namespace {
struct Libfabric {
  decltype(&fi_version) version;
  decltype(&fi_getinfo) getinfo;
  decltype(&fi_freeinfo) freeinfo;
  decltype(&fi_dupinfo) dupinfo;
  decltype(&fi_fabric) fabric;
  decltype(&fi_strerror) strerror;
};

template <class F>
void find(void* library, const char* name, F& to) {
  to = reinterpret_cast<F>(dlsym(library, name));
  must(to != nullptr, std::string("libfabric has no ") + name);
}

const Libfabric& libfabric() {
  static const Libfabric lib = [] {
    void* so = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    must(so != nullptr, "libfabric cannot be loaded");
    Libfabric l{};
    find(so, "fi_version", l.version);
    find(so, "fi_getinfo", l.getinfo);
    find(so, "fi_freeinfo", l.freeinfo);
    find(so, "fi_dupinfo", l.dupinfo);
    find(so, "fi_fabric", l.fabric);
    find(so, "fi_strerror", l.strerror);
    return l;
  }();
  return lib;
}

void good(const char* what, int rc) {
  if (rc != 0) {
    fail(std::string("raw libfabric: ") + what + ": " + libfabric().strerror(std::abs(rc)));
  }
}

using Info = std::unique_ptr<fi_info, FreeInfo>;

Info query(const std::string& provider) {
  for (int mr_mode : {0, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY}) {
    const Info h(libfabric().dupinfo(nullptr));
    h->caps = FI_MSG | FI_RMA | FI_ATOMIC;
    h->mode = FI_CONTEXT | FI_CONTEXT2;
    h->ep_attr->type = FI_EP_RDM;
    h->domain_attr->threading = FI_THREAD_SAFE;
    h->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    h->domain_attr->resource_mgmt = FI_RM_ENABLED;
    h->domain_attr->mr_mode = mr_mode;
    h->fabric_attr->prov_name = strdup(provider.c_str());  // freed with the hints
    const bool local = provider == "shm";
    fi_info* list = nullptr;
    if (libfabric().getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
                            local ? nullptr : "127.0.0.1", nullptr, local ? 0 : FI_SOURCE, h.get(),
                            &list) != 0) {
      continue;
    }
    const Info owner(list);
    for (fi_info* i = list; i != nullptr; i = i->next) {
      if (provider == i->fabric_attr->prov_name) return Info(libfabric().dupinfo(i));
    }
  }
  return nullptr;
}
}  // namespace

void FreeInfo::operator()(fi_info* i) const { libfabric().freeinfo(i); }

std::string choose_provider() {
  const char* asked = std::getenv("CMI_PROVIDER");
  const std::string wish = asked != nullptr ? asked : "";
  if (!wish.empty() && wish != "tcp") {
    must(query(wish) != nullptr,
         "CMI_PROVIDER: no provider of exactly this name works here: " + wish);
    return wish;
  }
  for (const char* name : {"tcp", "net", "tcp;ofi_rxm"}) {
    if (query(name) != nullptr) return name;
  }
  fail("no libfabric provider for tcp works here");
}

std::string libfabric_version() {
  const uint32_t v = libfabric().version();
  return std::to_string(FI_MAJOR(v)) + "." + std::to_string(FI_MINOR(v));
}

RawEndpoint::RawEndpoint(const std::string& provider, void* memory, size_t size, bool sleeping,
                         size_t receive_buffers)
    : info_(query(provider)), memory_(memory), size_(size) {
  must(info_ != nullptr, "raw libfabric: no provider " + provider);
  fid_fabric* fabric = nullptr;
  good("fabric", libfabric().fabric(info_->fabric_attr, &fabric, nullptr));
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  good("domain", fi_domain(fabric, info_.get(), &domain, nullptr));
  domain_.reset(domain);
  if (size > 0) {
    std::random_device random;
    const uint64_t key = (uint64_t{random()} << 32) | random();
    fid_mr* region = nullptr;
    good("registration", fi_mr_reg(domain, memory, size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key,
                                   0, &region, nullptr));
    region_.reset(region);
  }
  open_queue(sleeping);
  fi_av_attr av_attr{};
  av_attr.type = info_->domain_attr->av_type;
  fid_av* av = nullptr;
  good("address vector", fi_av_open(domain, &av_attr, &av, nullptr));
  peers_.reset(av);
  fid_ep* ep = nullptr;
  good("endpoint", fi_endpoint(domain, info_.get(), &ep, nullptr));
  ep_.reset(ep);
  good("bind", fi_ep_bind(ep, &av->fid, 0));
  good("bind", fi_ep_bind(ep, &queue_->fid, FI_TRANSMIT | FI_RECV));
  good("enable", fi_enable(ep));

  contexts_.resize(kDepth);
  uses_.resize(kDepth);
  for (auto& c : contexts_) free_.push_back(&c);
  receives_.resize(receive_buffers);
  for (auto& r : receives_) post_receive(r);
}

RawEndpoint::~RawEndpoint() { ep_.reset(); }  // before what is bound to it

void RawEndpoint::open_queue(bool sleeping) {
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_CONTEXT;
  attr.size = info_->tx_attr->size + info_->rx_attr->size;
  attr.wait_obj = sleeping ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
  fid_cq* queue = nullptr;
  good("completion queue", fi_cq_open(domain_.get(), &attr, &queue, nullptr));
  queue_.reset(queue);
}

void RawEndpoint::post_receive(Receive& r) {
  good("receive buffer", static_cast<int>(fi_recv(ep_.get(), r.data, kPingSize, nullptr,
                                                  FI_ADDR_UNSPEC, &r.context)));
}

void RawEndpoint::describe(RawTarget* to) const {
  std::byte name[256];
  size_t length = sizeof name;
  good("name", fi_getname(&ep_->fid, name, &length));
  to->address.set(name, length);
  if (region_ == nullptr) return;
  to->key = fi_mr_key(region_.get());
  const bool virtual_addresses = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  to->base = virtual_addresses ? reinterpret_cast<uint64_t>(memory_) : 0;
}

fi_addr_t RawEndpoint::add_peer(const Blob& address) {
  fi_addr_t peer = FI_ADDR_UNSPEC;
  must(fi_av_insert(peers_.get(), address.bytes, 1, &peer, 0, nullptr) == 1,
       "raw libfabric: the other side's address was not taken");
  return peer;
}

}  // namespace bench

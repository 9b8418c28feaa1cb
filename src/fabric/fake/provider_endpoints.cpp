// Endpoints of the played provider.
#include <sys/epoll.h>

#include <cstring>

#include "fabric/fake/provider_objects.hpp"

namespace cmi::fabric::fake {

namespace {

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

}  // namespace

int open_endpoint(fid_domain* d, fi_info*, fid_ep** out, void*) {
  static fi_ops ops = {sizeof(fi_ops), ep_close, ep_bind, ep_control, nullptr, nullptr, nullptr};
  static fi_ops_cm cm = [] {
    fi_ops_cm o = {};
    o.size = sizeof o;
    o.getname = ep_name;
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
  fid.msg = message_operations();
  fid.rma = rma_operations();
  fid.atomic = atomic_operations();
  ep->handle.self = ep.get();
  *out = &fid;
  [[maybe_unused]] FakeEp* freed_by_close = ep.release();
  return 0;
}

}  // namespace cmi::fabric::fake

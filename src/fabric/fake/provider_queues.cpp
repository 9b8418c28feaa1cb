// Completion queues and address vectors of the played provider.
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "fabric/fake/provider_objects.hpp"

namespace cmi::fabric::fake {

namespace {

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

}  // namespace

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

int fabric_trywait(fid_fabric*, fid** fids, int) {
  auto& q = object<FakeQueue>(fids[0]);
  Guard g(q.mu);
  const bool idle =
      q.good.empty() && q.bad.empty() &&
      std::all_of(q.eps.begin(), q.eps.end(), [](FakeEp* ep) { return ep->endpoint->may_sleep(); });
  return idle ? 0 : -FI_EAGAIN;
}

}  // namespace cmi::fabric::fake

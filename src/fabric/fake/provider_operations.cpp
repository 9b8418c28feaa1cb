// Messages, reads, writes and swaps of the played provider.
#include "fabric/fake/provider_objects.hpp"

namespace cmi::fabric::fake {

namespace {

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

}  // namespace

fi_ops_msg* message_operations() {
  static fi_ops_msg msg = [] {
    fi_ops_msg o = {};
    o.size = sizeof o;
    o.recv = post_recv;
    o.send = post_send;
    o.inject = post_inject;
    return o;
  }();
  return &msg;
}

fi_ops_rma* rma_operations() {
  static fi_ops_rma rma = [] {
    fi_ops_rma o = {};
    o.size = sizeof o;
    o.read = post_read;
    o.writemsg = post_writemsg;
    return o;
  }();
  return &rma;
}

fi_ops_atomic* atomic_operations() {
  static fi_ops_atomic atomic = [] {
    fi_ops_atomic o = {};
    o.size = sizeof o;
    o.compwrite = post_swap;
    o.compwritevalid = swap_valid;
    return o;
  }();
  return &atomic;
}

}  // namespace cmi::fabric::fake

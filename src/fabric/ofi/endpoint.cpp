// Operations of an OfiEndpoint and the handing out of what they become. See endpoint.hpp.
#include "fabric/ofi/endpoint.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <cassert>
#include <new>

#include "core/base/log.hpp"
#include "fabric/ofi/cause.hpp"
#include "fabric/ofi/region.hpp"

namespace cmi::fabric::ofi {

template <class F>
Post OfiEndpoint::post(Op& op, F call) {
  Guard g(fabric_.gate());
  op.begin();  // before: another thread may reap the completion while we are still in the call
  auto* context = new (op.provider_area) Context{{}, this, nullptr};
  const Post p = post_of(call(context));
  if (p == Post::kPosted) return p;
  op.revert();
  undescribe(op);
  return p;
}

[[gnu::hot]] void* OfiEndpoint::describe(const Op& op, const void* buffer, size_t len) {
  if (!fabric_.local_registration() || len == 0) return nullptr;
  Fid<fid_mr> mr = register_local(fabric_, ep_.get(), const_cast<void*>(buffer), len);
  if (mr == nullptr) return nullptr;
  void* desc = fi_mr_desc(mr.get());
  Guard g(locals_mu_);
  locals_.emplace(&op, std::move(mr));
  return desc;
}

void OfiEndpoint::undescribe(const Op& op) {
  if (!fabric_.local_registration()) return;
  Guard g(locals_mu_);
  locals_.erase(&op);
}

[[gnu::hot]] Post OfiEndpoint::read(Op& op, Peer peer, void* to, size_t len, RemoteKey from,
                                    uint64_t offset) {
  assert(len > 0 && len <= max_rma_);
  void* desc = describe(op, to, len);
  return post(op, [&](Context* context) {
    return fi_read(ep_.get(), to, len, desc, static_cast<fi_addr_t>(peer), from.base + offset,
                   from.key, context);
  });
}

Post OfiEndpoint::write(Op& op, Peer peer, const void* from, size_t len, RemoteKey to,
                        uint64_t offset) {
  assert(len > 0 && len <= max_rma_);
  iovec local{const_cast<void*>(from), len};
  fi_rma_iov remote{to.base + offset, len, to.key};
  void* desc = describe(op, from, len);
  fi_msg_rma msg = {};
  msg.msg_iov = &local;
  msg.desc = &desc;
  msg.iov_count = 1;
  msg.addr = static_cast<fi_addr_t>(peer);
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  // Without the flag a refused write completes well, and a good one before it is in the memory.
  return post(op, [&](Context* context) {
    msg.context = context;
    return fi_writemsg(ep_.get(), &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
  });
}

Post OfiEndpoint::cas(Op& op, Peer peer, uint64_t* result, const uint64_t* expected,
                      const uint64_t* desired, RemoteKey at, uint64_t offset) {
  void* desired_desc = describe(op, desired, sizeof *desired);
  void* expected_desc = describe(op, expected, sizeof *expected);
  void* result_desc = describe(op, result, sizeof *result);
  return post(op, [&](Context* context) {
    return fi_compare_atomic(ep_.get(), desired, 1, desired_desc, expected, expected_desc, result,
                             result_desc, static_cast<fi_addr_t>(peer), at.base + offset, at.key,
                             FI_UINT64, FI_CSWAP, context);
  });
}

Post OfiEndpoint::send(Op& op, Peer peer, const void* message, size_t len) {
  assert(len <= kMaxMessage);
  void* desc = describe(op, message, len);
  return post(op, [&](Context* context) {
    return fi_send(ep_.get(), message, len, desc, static_cast<fi_addr_t>(peer), context);
  });
}

bool OfiEndpoint::inject(Peer peer, const void* message, size_t len) {
  if (len > fabric_.info()->tx_attr->inject_size) return false;
  Guard g(fabric_.gate());
  return fi_inject(ep_.get(), message, len, static_cast<fi_addr_t>(peer)) == 0;
}

void OfiEndpoint::post_receive(Slot& slot) {
  slot.posted.store(true, std::memory_order_relaxed);
  long rc;
  {
    Guard g(fabric_.gate());
    void* desc = memory_mr_ == nullptr ? nullptr : fi_mr_desc(memory_mr_.get());
    rc = fi_recv(ep_.get(), slot.data, kMaxMessage, desc, FI_ADDR_UNSPEC,
                 &contexts_[static_cast<size_t>(&slot - slots_.data())]);
  }
  if (rc == 0) return;
  slot.posted.store(false, std::memory_order_release);  // pairs with post_left_over
  unposted_.fetch_add(1, std::memory_order_relaxed);
  queue_->unposted(1);
  if (rc != -FI_EAGAIN)
    trace(kFacCtrl, kWarn, "receive buffer not taken: {}", error_text(static_cast<int>(rc)));
}

void OfiEndpoint::post_left_over() {
  for (Slot& s : slots_) {
    if (s.posted.load(std::memory_order_acquire)) continue;
    unposted_.fetch_sub(1, std::memory_order_relaxed);
    queue_->unposted(-1);
    post_receive(s);
  }
}

void OfiEndpoint::over(Op& op, Cause cause) {
  undescribe(op);  // before: a waiter may use the operation again at once
  op.complete(cause);
}

void OfiEndpoint::arrived(Slot& slot, size_t len, Cause cause) {
  if (cause == Cause::kOk) receiver_.on_message(*this, Bytes(slot.data, len));
  post_receive(slot);
}

void OfiEndpoint::op_failed(int err) {
  if (ends_connection(err)) broken_.store(true, std::memory_order_relaxed);
}

void OfiEndpoint::handed_out() {
  wake_sleeper();
  in_hand_.fetch_sub(1, std::memory_order_release);
}

}  // namespace cmi::fabric::ofi

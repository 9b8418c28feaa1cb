// Operations of an OfiEndpoint and the handing out of what they become. See endpoint.hpp.
#include "fabric/ofi/endpoint.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <cassert>

#include "core/base/log.hpp"
#include "fabric/ofi/cause.hpp"
#include "fabric/ofi/region.hpp"

namespace cmi::fabric::ofi {

namespace {
static_assert(sizeof(Op::provider_area) >= sizeof(fi_context2));

Op& op_of(void* context) {
  // Op is no standard-layout type, for which alone offsetof is defined: measured on one instead.
  static const ptrdiff_t at = [] {
    Op op;
    return reinterpret_cast<std::byte*>(&op.provider_area) - reinterpret_cast<std::byte*>(&op);
  }();
  return *reinterpret_cast<Op*>(static_cast<std::byte*>(context) - at);
}
}  // namespace

template <class F>
Post OfiEndpoint::post(Op& op, F call) {
  Guard g(fabric_.gate());
  op.begin();  // before: another thread may reap the completion while we are still in the call
  const Post p = post_of(call());
  if (p == Post::kPosted) return p;
  op.revert();
  undescribe(op);
  return p;
}

void* OfiEndpoint::describe(const Op& op, const void* buffer, size_t len) {
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

Post OfiEndpoint::read(Op& op, Peer peer, void* to, size_t len, RemoteKey from, uint64_t offset) {
  assert(len > 0 && len <= max_rma_);
  void* desc = describe(op, to, len);
  return post(op, [&] {
    return fi_read(ep_.get(), to, len, desc, static_cast<fi_addr_t>(peer), from.base + offset,
                   from.key, &op.provider_area);
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
  msg.context = &op.provider_area;
  // Without the flag a refused write completes well, and a good one before it is in the memory.
  return post(op,
              [&] { return fi_writemsg(ep_.get(), &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE); });
}

Post OfiEndpoint::cas(Op& op, Peer peer, uint64_t* result, const uint64_t* expected,
                      const uint64_t* desired, RemoteKey at, uint64_t offset) {
  void* desired_desc = describe(op, desired, sizeof *desired);
  void* expected_desc = describe(op, expected, sizeof *expected);
  void* result_desc = describe(op, result, sizeof *result);
  return post(op, [&] {
    return fi_compare_atomic(ep_.get(), desired, 1, desired_desc, expected, expected_desc, result,
                             result_desc, static_cast<fi_addr_t>(peer), at.base + offset, at.key,
                             FI_UINT64, FI_CSWAP, &op.provider_area);
  });
}

Post OfiEndpoint::send(Op& op, Peer peer, const void* message, size_t len) {
  assert(len <= kMaxMessage);
  void* desc = describe(op, message, len);
  return post(op, [&] {
    return fi_send(ep_.get(), message, len, desc, static_cast<fi_addr_t>(peer), &op.provider_area);
  });
}

void OfiEndpoint::post_receive(Slot& slot) {
  slot.posted.store(true, std::memory_order_relaxed);
  long rc;
  {
    Guard g(fabric_.gate());
    void* desc = memory_mr_ == nullptr ? nullptr : fi_mr_desc(memory_mr_.get());
    rc = fi_recv(ep_.get(), slot.data, kMaxMessage, desc, FI_ADDR_UNSPEC, &slot.context);
  }
  if (rc == 0) return;
  slot.posted.store(false, std::memory_order_release);  // pairs with post_left_over
  unposted_.fetch_add(1, std::memory_order_release);
  if (rc != -FI_EAGAIN)
    trace(kFacCtrl, kWarn, "receive buffer not taken: {}", error_text(static_cast<int>(rc)));
}

void OfiEndpoint::post_left_over() {
  for (Slot& s : slots_) {
    if (s.posted.load(std::memory_order_acquire)) continue;
    unposted_.fetch_sub(1, std::memory_order_relaxed);
    post_receive(s);
  }
}

OfiEndpoint::Slot* OfiEndpoint::slot_of(void* context) {
  auto at = reinterpret_cast<uintptr_t>(context);
  auto first = reinterpret_cast<uintptr_t>(slots_.data());
  if (at < first || at >= first + slots_.size() * sizeof(Slot)) return nullptr;
  return &slots_[(at - first) / sizeof(Slot)];
}

OfiEndpoint::Event OfiEndpoint::event_of(const fi_cq_msg_entry& entry) {
  if (entry.op_context == nullptr) return {};
  if (Slot* slot = slot_of(entry.op_context)) return {nullptr, Cause::kOk, slot, entry.len};
  return {&op_of(entry.op_context), Cause::kOk, nullptr, 0};
}

OfiEndpoint::Event OfiEndpoint::error_event() {
  fi_cq_err_entry e = {};
  if (fi_cq_readerr(queue_.get(), &e, 0) != 1) return {};
  trace(kFacMem, kDebug, "operation ended: {} ({}, provider {})", error_text(e.err), e.err,
        e.prov_errno);
  if (e.op_context == nullptr) return {};  // rxm adds such to a refused atomic
  if (Slot* slot = slot_of(e.op_context)) return {nullptr, cause_of(e.err), slot, 0};
  if (ends_connection(e.err)) broken_.store(true, std::memory_order_relaxed);
  return {&op_of(e.op_context), cause_of(e.err), nullptr, 0};
}

size_t OfiEndpoint::drain(Event* events) {
  fi_cq_msg_entry entries[kBatch];
  // Errors stand in the way of what is behind them: they are taken one by one, then the rest.
  for (size_t errors = 0; errors < kBatch; ++errors) {
    const ssize_t n = fi_cq_read(queue_.get(), entries, kBatch - errors);
    if (n > 0) {
      for (ssize_t i = 0; i < n; ++i)
        events[errors + static_cast<size_t>(i)] = event_of(entries[i]);
      return errors + static_cast<size_t>(n);
    }
    if (n == -FI_EAVAIL) {
      events[errors] = error_event();
      continue;
    }
    if (n != -FI_EAGAIN && n != 0) {
      trace(kFacCtrl, kError, "completion queue: {}", error_text(static_cast<int>(n)));
      faulty_.store(true, std::memory_order_relaxed);
      broken_.store(true, std::memory_order_relaxed);
    }
    return errors;
  }
  return kBatch;
}

int OfiEndpoint::poll() {
  if (!drain_lock_.try_lock()) return 0;
  Event events[kBatch];
  size_t n;
  {
    Guard g(fabric_.gate());
    n = drain(events);
  }
  // Before the lock goes, without which nobody finds the queue empty and goes to sleep.
  if (n > 0) dispatching_.fetch_add(1, std::memory_order_acq_rel);
  if (unposted_.load(std::memory_order_relaxed) > 0) post_left_over();
  drain_lock_.unlock();
  if (n == 0) return 0;
  for (size_t i = 0; i < n; ++i) {
    Event& e = events[i];
    if (e.op != nullptr) {
      undescribe(*e.op);  // before: a waiter may use the operation again at once
      e.op->complete(e.cause);
    }
    if (e.slot != nullptr) {
      if (e.cause == Cause::kOk) receiver_.on_message(*this, Bytes(e.slot->data, e.len));
      post_receive(*e.slot);
    }
  }
  dispatching_.fetch_sub(1, std::memory_order_acq_rel);
  wake_sleeper();
  fabric_.connections().mark_now_and_then();
  return static_cast<int>(n);
}

bool OfiEndpoint::may_sleep() {
  fabric_.connections().mark_now_and_then();
  if (wait_fd_ < 0 || !drain_lock_.try_lock()) return false;
  fid* queue = &queue_->fid;
  int rc;
  {
    Guard g(fabric_.gate());
    if (wait_set_ != nullptr) {
      rc = fi_wait(wait_set_.get(), 0) == -FI_ETIMEDOUT ? 0 : -FI_EAGAIN;
    } else {
      rc = fi_trywait(fabric_.fabric(), &queue, 1);
    }
  }
  drain_lock_.unlock();
  return rc == 0 && dispatching_.load(std::memory_order_acquire) == 0;
}

}  // namespace cmi::fabric::ofi

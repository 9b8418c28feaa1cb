// Operations of a RawEndpoint.
#include "raw.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <sched.h>

#include <cstring>

namespace bench {

namespace {
constexpr double kWithin = 20 * kSecond;  // first contact included

[[noreturn]] void queue_failed(fid_cq* queue) {
  fi_cq_err_entry e{};
  fi_cq_readerr(queue, &e, 0);
  fail("raw libfabric: an operation failed with error " + std::to_string(e.err));
}
}  // namespace

int RawEndpoint::take_in(const fi_cq_entry* entries, ssize_t n) {
  if (n == -FI_EAVAIL) queue_failed(queue_.get());
  must(n >= 0 || n == -FI_EAGAIN || n == -FI_EINTR, "raw libfabric: the completion queue failed");
  for (ssize_t i = 0; i < n; ++i) {
    auto* context = static_cast<fi_context2*>(entries[i].op_context);
    if (context >= contexts_.data() && context < contexts_.data() + contexts_.size()) {
      free_.push_back(context);
      ++uses_[static_cast<size_t>(context - contexts_.data())];
      continue;
    }
    const auto* first = reinterpret_cast<const std::byte*>(receives_.data());
    const auto at = static_cast<size_t>(reinterpret_cast<const std::byte*>(context) - first);
    if (context != nullptr && at < receives_.size() * sizeof(Receive)) {
      arrived_.push_back(at / sizeof(Receive));
    }
  }
  return n > 0 ? static_cast<int>(n) : 0;
}

int RawEndpoint::reap() {
  fi_cq_entry entries[16];
  return take_in(entries, fi_cq_read(queue_.get(), entries, 16));
}

// Until the provider takes it: full queues and a peer that is not connected yet are no errors.
template <class F>
fi_context2* RawEndpoint::post(F call) {
  double give_up = 0;
  for (;;) {
    if (!free_.empty()) {
      fi_context2* context = free_.back();
      const ssize_t rc = call(context);
      if (rc == 0) {
        free_.pop_back();
        return context;
      }
      must(rc == -FI_EAGAIN, "raw libfabric: a post failed with " + std::to_string(rc));
    }
    if (reap() > 0) continue;
    if (give_up == 0) give_up = now() + kWithin;
    must(now() < give_up, "raw libfabric: the provider takes no operation");
  }
}

void RawEndpoint::wait_until(size_t in_flight) {
  unsigned idle = 0;
  const double give_up = now() + kWithin;
  while (contexts_.size() - free_.size() > in_flight) {
    if (reap() != 0) continue;
    if (yields_) sched_yield();
    if (++idle % 4096 == 0) must(now() < give_up, "raw libfabric: an operation does not end");
  }
}

void RawEndpoint::read(fi_addr_t peer, const RawTarget& target, void* to, size_t n, uint64_t offset,
                       const std::function<void()>& meanwhile) {
  post([&](fi_context2* c) {
    return fi_read(ep_.get(), to, n, nullptr, peer, target.base + offset, target.key, c);
  });
  if (meanwhile) meanwhile();
  wait_until(0);
}

RawEndpoint::Begun RawEndpoint::begin_read(fi_addr_t peer, const RawTarget& target, void* to,
                                           size_t n, uint64_t offset) {
  const fi_context2* const context = post([&](fi_context2* c) {
    return fi_read(ep_.get(), to, n, nullptr, peer, target.base + offset, target.key, c);
  });
  const auto index = static_cast<size_t>(context - contexts_.data());
  return {index, uses_[index]};
}

void RawEndpoint::await_read(Begun read) {
  const double give_up = now() + kWithin;
  for (unsigned idle = 0; uses_[read.context] == read.use;) {
    if (reap() == 0 && ++idle % 4096 == 0) {
      must(now() < give_up, "raw libfabric: an operation does not end");
    }
  }
}

ssize_t RawEndpoint::write_one(fi_addr_t peer, const RawTarget& target, const void* from, size_t n,
                               uint64_t offset, fi_context2* context) {
  iovec local{const_cast<void*>(from), n};
  fi_rma_iov remote{target.base + offset, n, target.key};
  fi_msg_rma msg{};
  msg.msg_iov = &local;
  msg.iov_count = 1;
  msg.addr = peer;
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  msg.context = context;
  return fi_writemsg(ep_.get(), &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

void RawEndpoint::write(fi_addr_t peer, const RawTarget& target, const void* from, size_t n,
                        uint64_t offset) {
  post([&](fi_context2* c) { return write_one(peer, target, from, n, offset, c); });
  wait_until(0);
}

void RawEndpoint::read_many(fi_addr_t peer, const RawTarget& target, std::byte* to, size_t n,
                            size_t count, size_t depth) {
  for (size_t i = 0; i < count; ++i) {
    wait_until(depth - 1);
    post([&](fi_context2* c) {
      return fi_read(ep_.get(), to + i * n, n, nullptr, peer, target.base + i * n, target.key, c);
    });
  }
  wait_until(0);
}

void RawEndpoint::write_many(fi_addr_t peer, const RawTarget& target, const std::byte* from,
                             size_t n, size_t stride, size_t count, size_t depth) {
  for (size_t i = 0; i < count; ++i) {
    wait_until(depth - 1);
    post([&](fi_context2* c) {
      return write_one(peer, target, from + i * stride, n, i * stride, c);
    });
  }
  wait_until(0);
}

bool RawEndpoint::has_cas() const {
  size_t count = 0;
  return fi_compare_atomicvalid(ep_.get(), FI_UINT64, FI_CSWAP, &count) == 0 && count >= 1;
}

uint64_t RawEndpoint::cas(fi_addr_t peer, const RawTarget& target, uint64_t offset,
                          uint64_t expected, uint64_t desired) {
  uint64_t found = 0;
  post([&](fi_context2* c) {
    return fi_compare_atomic(ep_.get(), &desired, 1, nullptr, &expected, nullptr, &found, nullptr,
                             peer, target.base + offset, target.key, FI_UINT64, FI_CSWAP, c);
  });
  wait_until(0);
  return found;
}

void RawEndpoint::send(fi_addr_t peer, const std::byte* data) {
  if (info_->tx_attr->inject_size >=
      kPingSize) {  // no completion to be reaped: the fastest there is
    double give_up = 0;
    for (;;) {
      const ssize_t rc = fi_inject(ep_.get(), data, kPingSize, peer);
      if (rc == 0) return;
      must(rc == -FI_EAGAIN, "raw libfabric: a message was refused");
      if (give_up == 0) give_up = now() + kWithin;
      must(now() < give_up, "raw libfabric: the provider takes no message");
      reap();
    }
  }
  post([&](fi_context2* c) { return fi_send(ep_.get(), data, kPingSize, nullptr, peer, c); });
}

void RawEndpoint::ping(fi_addr_t peer, const std::function<void()>& meanwhile) {
  std::byte message[kPingSize]{};
  ++pings_;
  std::memcpy(message, &pings_, sizeof pings_);
  send(peer, message);
  if (meanwhile) meanwhile();
  unsigned idle = 0;
  const double give_up = now() + kWithin;
  while (arrived_.empty()) {
    if (reap() == 0 && ++idle % 4096 == 0) {
      must(now() < give_up, "raw libfabric: a ping is not answered");
    }
  }
  Receive& r = receives_[arrived_.back()];
  arrived_.pop_back();
  uint64_t got = 0;
  std::memcpy(&got, r.data, sizeof got);
  post_receive(r);
  wait_until(0);
  must(got == pings_, "raw libfabric: the answer to another ping arrived");
}

void RawEndpoint::fetch(fi_addr_t peer, void* to, size_t n, uint64_t offset,
                        const std::function<void()>& meanwhile) {
  post([&](fi_context2* c) { return fi_recv(ep_.get(), to, n, nullptr, FI_ADDR_UNSPEC, c); });
  std::byte message[kPingSize]{};
  const uint64_t what[] = {offset, n};
  std::memcpy(message, what, sizeof what);
  send(peer, message);
  if (meanwhile) meanwhile();
  wait_until(0);
}

void RawEndpoint::serve_fetches(fi_addr_t peer) {
  std::byte message[kPingSize];
  if (!receive(message)) return;
  uint64_t what[2];
  std::memcpy(what, message, sizeof what);
  must(what[0] <= size_ && what[1] <= size_ - what[0], "raw libfabric: a fetch beyond the memory");
  const auto* from = static_cast<const std::byte*>(memory_) + what[0];
  post([&](fi_context2* c) { return fi_send(ep_.get(), from, what[1], nullptr, peer, c); });
}

bool RawEndpoint::receive(std::byte* data) {
  if (arrived_.empty()) reap();
  if (arrived_.empty()) return false;
  Receive& r = receives_[arrived_.back()];
  arrived_.pop_back();
  std::memcpy(data, r.data, kPingSize);
  post_receive(r);
  return true;
}

void RawEndpoint::serve(fi_addr_t peer) {
  std::byte message[kPingSize];
  for (bool first = true; first || !arrived_.empty(); first = false) {
    if (receive(message)) send(peer, message);
  }
}

void RawEndpoint::serve_sleeping(fi_addr_t peer, int milliseconds) {
  fi_cq_entry entries[16];
  take_in(entries, fi_cq_sread(queue_.get(), entries, 16, nullptr, milliseconds));
  serve(peer);
}

}  // namespace bench

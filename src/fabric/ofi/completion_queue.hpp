// A completion queue and the handing out of what comes by it, of one endpoint or of several: where
// a look takes in what has arrived anywhere in the domain (net, tcp), one queue of all that a
// thread looks after costs one look, and one for each endpoint as many. Any thread.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <memory>
#include <vector>

#include "core/base/lock.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/ofi/domain.hpp"

namespace cmi::fabric::ofi {

class OfiEndpoint;

// A receive buffer. Owned by the provider from fi_recv until its completion, then by the thread
// that reaped it, which gives it back.
struct Slot {
  std::atomic<bool> posted{false};  // false: the provider had no room, a later look tries again
  std::byte* data = nullptr;
};

// What libfabric is given with an operation or a buffer, and gives back with its end.
struct Context {
  fi_context2 provider;
  OfiEndpoint* endpoint;
  Slot* slot;  // of a buffer; null: it is the provider_area of an Op
};
static_assert(sizeof(Op::provider_area) >= sizeof(Context));

class Queue {
 public:
  static Result<std::shared_ptr<Queue>> open(const OfiFabric& fabric);
  // Whether a look at any queue of the provider takes in what has arrived for all of them.
  static bool can_be_shared(const OfiFabric& fabric);
  ~Queue();  // under the fabric's gate

  fid_cq* get() const { return queue_.get(); }
  int wait_fd() const { return wait_fd_; }
  bool faulty() const { return faulty_.load(std::memory_order_relaxed); }

  // As Endpoint's, for all endpoints of the queue.
  int poll() CMI_EXCLUDES(look_lock_, due_lock_);
  bool may_sleep() CMI_EXCLUDES(look_lock_);
  // An endpoint has more, or fewer, buffers that the provider had no room for.
  void unposted(int more) { unposted_.fetch_add(more, std::memory_order_release); }

  void join(OfiEndpoint& ep) CMI_EXCLUDES(look_lock_);
  // How an endpoint leaves. First nothing of it is handed out any more, nor in the hands of another
  // thread; then it is closed under look_lock() and, taken after that, the gate; what has
  // ended with it is dropped by leave(), and what that finds for others kept for their next poll.
  void quiet(OfiEndpoint& ep) CMI_EXCLUDES(due_lock_);
  Mutex& look_lock() CMI_TSA(lock_returned(look_lock_)) { return look_lock_; }
  void leave(OfiEndpoint& ep, int unposted) CMI_REQUIRES(look_lock_) CMI_EXCLUDES(due_lock_);
  // Takes off the queue what is there, and lets the provider see what has arrived. False: nothing.
  bool look() CMI_REQUIRES(look_lock_) CMI_EXCLUDES(due_lock_);

 private:
  // The end of an operation, or a message.
  struct Event {
    OfiEndpoint* endpoint = nullptr;
    Op* op = nullptr;  // null: a message
    Cause cause = Cause::kOk;
    Slot* slot = nullptr;
    size_t len = 0;
  };
  static constexpr size_t kBatch = 16;

  explicit Queue(const OfiFabric& fabric) : fabric_(fabric) {}
  Status open_any();
  bool open_with_wait_set(fi_cq_attr attr);
  Event error_event();
  bool take(Event* event) CMI_EXCLUDES(due_lock_);
  void drop_quiet() CMI_REQUIRES(due_lock_);

  const OfiFabric& fabric_;
  int wait_fd_ = -1;
  std::atomic<bool> faulty_{false};
  // Threads between having found something and having handed it out. A thread about to sleep must
  // not do so then: what it waits for may be in their hands (pairs with may_sleep).
  std::atomic<int> dispatching_{0};
  std::atomic<int> unposted_{0};  // slots that are not with the provider for want of room
  Mutex look_lock_ CMI_ACQUIRED_AFTER(lock_order::after_ports)
      CMI_ACQUIRED_BEFORE(lock_order::after_queues);  // one thread at a time reads the queue
  std::vector<OfiEndpoint*> endpoints_ CMI_GUARDED_BY(look_lock_);
  Mutex due_lock_ CMI_ACQUIRED_AFTER(lock_order::after_providers);  // leaf
  std::vector<Event> due_ CMI_GUARDED_BY(due_lock_);  // found, from next_ on nobody's yet
  size_t next_ CMI_GUARDED_BY(due_lock_) = 0;
  std::atomic<size_t> due_count_{0};  // of the latter; changed under due_lock_
  Fid<fid_wait> wait_set_;            // what queue_ signals; null: fi_trywait does
  Fid<fid_cq> queue_;
};

}  // namespace cmi::fabric::ofi

// An endpoint over libfabric: one fi_endpoint, its completion queue or a part in another's, its
// address vector and its receive buffers. Progress is manual: nothing moves but in poll(), whoever
// calls it. Any thread.
#pragma once

#include <rdma/fi_cm.h>

#include <array>
#include <unordered_map>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/lock.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/ofi/completion_queue.hpp"
#include "fabric/ofi/domain.hpp"

namespace cmi::fabric::ofi {

class Registration;

// Size: it implements each operation of Endpoint, by which all code above uses a provider.
class OfiEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<OfiEndpoint>> open(const OfiFabric& fabric, Receiver& receiver,
                                                   const OfiEndpoint* beside = nullptr);
  ~OfiEndpoint() override;  // the members' order closes the endpoint before its buffers

  Bytes address() const override { return address_; }
  Result<Peer> add_peer(Bytes address) override;
  void remove_peer(Peer peer) override;
  Post read(Op& op, Peer peer, void* to, size_t len, RemoteKey from, uint64_t offset) override;
  Post write(Op& op, Peer peer, const void* from, size_t len, RemoteKey to,
             uint64_t offset) override;
  Post cas(Op& op, Peer peer, uint64_t* result, const uint64_t* expected, const uint64_t* desired,
           RemoteKey at, uint64_t offset) override;
  Post send(Op& op, Peer peer, const void* message, size_t len) override;
  bool inject(Peer peer, const void* message, size_t len) override;
  int poll() override { return queue_->poll(); }
  bool shares_queue() const override { return shares_queue_; }
  int wait_fd() const override { return queue_->wait_fd(); }
  bool may_sleep() override { return queue_->may_sleep(); }
  bool broken() const override { return broken_.load(std::memory_order_relaxed) || faulty(); }
  bool faulty() const override { return queue_->faulty(); }

  void end_strangers() override;

  bool can_cas() const;
  fid_ep* ep() const { return ep_.get(); }
  // A region's registration that was bound to this endpoint: closed before it.
  void bind(const std::shared_ptr<Registration>& registration) CMI_EXCLUDES(bound_mu_);

  // For the queue: what it has found. Between take_in_hand() and handed_out() it is not closed.
  void take_in_hand() { in_hand_.fetch_add(1, std::memory_order_relaxed); }
  bool is_in_hand() const { return in_hand_.load(std::memory_order_acquire) != 0; }
  void become_quiet() { quiet_ = true; }  // under the queue's lock, as is_quiet()
  bool is_quiet() const { return quiet_; }
  void over(Op& op, Cause cause);
  void arrived(Slot& slot, size_t len, Cause cause);
  void handed_out();
  void op_failed(int err);
  void post_left_over();  // one thread at a time

 private:
  static constexpr size_t kSlots = 16;

  OfiEndpoint(const OfiFabric& fabric, Receiver& receiver)
      : fabric_(fabric), receiver_(receiver), max_rma_(fabric.traits().max_rma) {}
  Status start();
  Status open_all();
  void end_accepted() CMI_REQUIRES(queue_->look_lock());
  void close_registrations() CMI_EXCLUDES(bound_mu_, locals_mu_);
  void post_receive(Slot& slot);
  template <class F>
  Post post(Op& op, F call);
  // For providers that want local buffers registered: registers one for this operation, until that
  // is over. Null for all others, and where it fails, which the provider then refuses.
  void* describe(const Op& op, const void* buffer, size_t len) CMI_EXCLUDES(locals_mu_);
  void undescribe(const Op& op) CMI_EXCLUDES(locals_mu_);

  const OfiFabric& fabric_;
  Receiver& receiver_;
  const size_t max_rma_;
  std::vector<std::byte> address_;
  bool shares_queue_ = false, quiet_ = false;
  std::atomic<bool> broken_{false};
  std::atomic<int> in_hand_{0};   // of what the queue has found for us, in the hands of threads
  std::atomic<int> unposted_{0};  // slots that are not with the provider for want of room

  Mutex book_lock_ CMI_ACQUIRED_AFTER(lock_order::after_ports)
      CMI_ACQUIRED_BEFORE(lock_order::after_queues);
  std::vector<std::pair<Peer, std::vector<std::byte>>> book_ CMI_GUARDED_BY(book_lock_);

  Mutex bound_mu_ CMI_ACQUIRED_AFTER(lock_order::after_providers)
      CMI_ACQUIRED_BEFORE(lock_order::after_bound);
  std::vector<std::weak_ptr<Registration>> bound_ CMI_GUARDED_BY(bound_mu_);

  // Closed in reverse: the endpoint first, after which no buffer is written any more; but for
  // registrations that are bound to it.
  Mapping memory_;         // the slots' data
  Fid<fid_mr> memory_mr_;  // null unless the provider wants local buffers registered
  Mutex locals_mu_;
  std::unordered_multimap<const Op*, Fid<fid_mr>> locals_ CMI_GUARDED_BY(locals_mu_);
  std::array<Slot, kSlots> slots_;
  std::array<Context, kSlots> contexts_;  // the slots'
  Strangers strangers_;                   // under the queue's look lock
  Fid<fid_av> peers_;
  std::shared_ptr<Queue> queue_;
  Fid<fid_ep> ep_;
};

}  // namespace cmi::fabric::ofi

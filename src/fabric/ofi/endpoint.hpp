// An endpoint over libfabric: one fi_endpoint, its completion queue, its address vector and its
// receive buffers. Progress is manual: nothing moves but in poll(), whoever calls it. Any thread.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>

#include <array>
#include <unordered_map>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/lock.hpp"
#include "fabric/ofi/domain.hpp"

namespace cmi::fabric::ofi {

class Registration;

class OfiEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<OfiEndpoint>> open(const OfiFabric& fabric, Receiver& receiver);
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
  int poll() override;
  int wait_fd() const override { return wait_fd_; }
  bool may_sleep() override;
  bool broken() const override { return broken_.load(std::memory_order_relaxed); }
  bool faulty() const override { return faulty_.load(std::memory_order_relaxed); }

  bool can_cas() const;
  fid_ep* ep() const { return ep_.get(); }
  // A region's registration that was bound to this endpoint: closed before it.
  void tie(const std::shared_ptr<Registration>& registration) CMI_EXCLUDES(tied_mu_);

 private:
  // A receive buffer. Owned by the provider from fi_recv until its completion, then by the thread
  // that reaped it, which gives it back.
  struct Slot {
    fi_context2 context;
    std::atomic<bool> posted{false};  // false: the provider had no room, poll() tries again
    std::byte* data = nullptr;
  };
  static constexpr size_t kSlots = 16;
  static constexpr size_t kBatch = 16;
  // What poll() found: the end of an operation, or a message, or (both null) nothing of interest.
  struct Event {
    Op* op = nullptr;
    Cause cause = Cause::kOk;
    Slot* slot = nullptr;
    size_t len = 0;
  };

  OfiEndpoint(const OfiFabric& fabric, Receiver& receiver)
      : fabric_(fabric), receiver_(receiver), max_rma_(fabric.traits().max_rma) {}
  Status start();
  Status open_all();
  Status open_queue();
  bool open_queue_with_wait_set(fi_cq_attr attr);
  void end_accepted();
  void close_registrations() CMI_EXCLUDES(tied_mu_, locals_mu_);
  void post_receive(Slot& slot);
  void post_left_over() CMI_REQUIRES(drain_lock_);
  template <class F>
  Post post(Op& op, F call);
  // For providers that want local buffers registered: registers one for this operation, until that
  // is over. Null for all others, and where it fails, which the provider then refuses.
  void* describe(const Op& op, const void* buffer, size_t len) CMI_EXCLUDES(locals_mu_);
  void undescribe(const Op& op) CMI_EXCLUDES(locals_mu_);
  Event event_of(const fi_cq_msg_entry& entry);
  Event error_event();
  size_t drain(Event* events) CMI_REQUIRES(drain_lock_);
  Slot* slot_of(void* context);

  const OfiFabric& fabric_;
  Receiver& receiver_;
  const size_t max_rma_;
  std::vector<std::byte> address_;
  int wait_fd_ = -1;  // the queue's
  std::atomic<bool> broken_{false}, faulty_{false};
  // Threads between taking completions off the queue and having handed them out. A thread about to
  // sleep must not do so then: what it waits for may be in their hands (pairs with may_sleep).
  std::atomic<int> dispatching_{0};
  std::atomic<int> unposted_{0};  // slots that are not with the provider for want of room
  Mutex drain_lock_;              // one thread at a time reads the queue

  Mutex book_lock_;
  std::vector<std::pair<Peer, std::vector<std::byte>>> book_ CMI_GUARDED_BY(book_lock_);

  Mutex tied_mu_;
  std::vector<std::weak_ptr<Registration>> tied_ CMI_GUARDED_BY(tied_mu_);

  // Closed in reverse: the endpoint first, after which no buffer is written any more; but for
  // registrations that are tied to it.
  Mapping memory_;         // the slots' data
  Fid<fid_mr> memory_mr_;  // null unless the provider wants local buffers registered
  Mutex locals_mu_;
  std::unordered_multimap<const Op*, Fid<fid_mr>> locals_ CMI_GUARDED_BY(locals_mu_);
  std::array<Slot, kSlots> slots_;
  Fid<fid_av> peers_;
  Fid<fid_wait> wait_set_;  // what queue_ signals; null: fi_trywait does
  Fid<fid_cq> queue_;
  Fid<fid_ep> ep_;
};

}  // namespace cmi::fabric::ofi

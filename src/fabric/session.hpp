// One life of a Link's connection: its initiating endpoint, one-sided operations, and what arrives.
//
// Where the home is on the same machine its requests and their answers go by a ring (ring_), once
// the home has sent something by it; all else goes by the endpoint. A ring that has been in use and
// ends is the end of the session, as a lost connection is.
//
// Users hold a Session by shared_ptr; the endpoint is closed with the last of them. So the buffer
// of an operation that was given up is free once life() has expired. Threads: any.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/fabric.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/port.hpp"
#include "fabric/ring/channel.hpp"
#include "fabric/route_picker.hpp"

namespace cmi::fabric {

class Link;

class Session : public Receiver,
                private ring::ChannelSink,
                private OtherWay,
                public std::enable_shared_from_this<Session> {
 public:
  ~Session() override;
  uint32_t generation() const { return generation_; }
  bool broken() const { return broken_.load(std::memory_order_acquire) || has_ended(); }
  Endpoint& endpoint() { return port_->endpoint(); }
  Fabric& fabric() { return *route_.fabric; }

  // One-sided, waiting. kOk: done. Everything else: the link may be broken, and what the operation
  // was given stays in use until this Session is destroyed. `meanwhile` may run when it is on
  // its way, unless others wait for the link, too.
  Cause read(void* to, size_t len, RemoteKey from, uint64_t offset, Deadline deadline,
             const std::function<void()>& meanwhile = {});
  Cause write(const void* from, size_t len, RemoteKey to, uint64_t offset, Deadline deadline);
  Cause cas(uint64_t* found, uint64_t expected, uint64_t desired, RemoteKey at, uint64_t offset,
            Deadline deadline);

  // One-sided, not waiting. `ended` runs once, with no lock held: with kOk on a thread that polls;
  // with anything else after this Session was closed, so that the memory is free and what has not
  // taken effect at the home never will once there is a new Session. Until then the fate is open.
  using Ended = std::function<void(Cause)>;
  void start_read(void* to, size_t len, RemoteKey from, uint64_t offset, Ended ended);
  void start_write(const void* from, size_t len, RemoteKey to, uint64_t offset, Ended ended);
  // Expires when the endpoint is closed: nothing touches what operations were given any more.
  std::weak_ptr<void> life() const { return life_; }

  // Waits for the answer to a request, as Endpoint::wait does.
  Cause wait(Op& op, Deadline deadline) {
    return endpoint().wait(op, deadline, by_ring() ? Endpoint::Way::kOther : Endpoint::Way::kThis);
  }
  // To sleep on. False: something has come by the ring meanwhile.
  bool descriptors(std::vector<int>* fds);

  void on_message(Endpoint& ep, Bytes message) override;

 private:
  friend class Link;
  // Whether requests go by the ring.
  bool by_ring() const { return by_ring_.load(std::memory_order_acquire); }
  // Under the link's lock, once.
  void open_ring(std::unique_ptr<ring::Channel> ring);
  void send(const Frame& frame);  // to the home
  bool idle() const { return port_->idle() && (!by_ring() || ring_->idle()); }
  // Under the link's lock. Also by a home that has sent nothing good by it.
  bool was_lied_to() const { return ring_ != nullptr && ring_->lied(); }

  void on_ring_message(ring::Channel& from, Bytes message) override;
  int look() override { return ring_->poll(*this); }
  bool may_sleep() override { return ring_->may_sleep(); }
  int wait_fd() const override { return ring_->wait_fd(); }
  bool has_ended() const override { return by_ring() && ring_->ended(); }

  struct Slot {  // an op and the words an atomic works on
    Op op;
    uint64_t found = 0, expected = 0, desired = 0;
  };
  struct Detached {  // an operation that nobody waits for
    explicit Detached(Session& s) : op(&Detached::over, this), session(s) {}
    static void over(Op& op);
    Op op;
    Session& session;
    size_t len = 0;
    std::function<Post(Op&)> post;
    Ended ended;
    std::list<Detached>::iterator self;
  };
  // Bytes of detached operations that are posted at once: enough to keep a wire busy, little enough
  // that a page somebody waits for is not far behind.
  static constexpr size_t kDetachedBytes = size_t{8} << 20;

  Session(Link& link, const Route& route, uint32_t generation)
      : link_(link), route_(route), generation_(generation) {}
  void start(size_t len, std::function<Post(Op&)> post, Ended ended);
  int pump();  // send buffers, and detached operations that could not be posted yet
  Slot* take_slot();
  void give_slot(Slot* slot);
  Cause finish(Slot* slot, Cause c);
  template <class PostFn>
  Cause run(Slot& slot, Deadline deadline, PostFn post,
            const std::function<void()>& meanwhile = {});

  Link& link_;
  const Route& route_;  // one of the link's
  const uint32_t generation_;
  const uint64_t nonce_ =
      random_u64();                  // sent in the hello; only the home's listener can welcome us
  std::atomic<bool> up_{false};      // release: home_ and secret_ are set
  std::atomic<bool> broken_{false};  // no new operation; users release it
  std::atomic<Nanos> heard_{0};      // last sign of life
  std::atomic<int> swaps_{0};        // compare-and-swaps whose result is waited for
  Peer listener_{}, home_{};
  uint64_t secret_ = 0;
  Mutex slots_mu_ CMI_ACQUIRED_AFTER(lock_order::after_providers);
  std::vector<std::unique_ptr<Slot>> slots_ CMI_GUARDED_BY(slots_mu_);
  std::vector<Slot*> free_slots_ CMI_GUARDED_BY(slots_mu_);
  std::atomic<Slot*> spare_{nullptr};  // a free one, for a single thread: no lock
  std::shared_ptr<void> life_ = std::make_shared<char>();
  Mutex detached_mu_ CMI_ACQUIRED_AFTER(lock_order::after_sessions)
      CMI_ACQUIRED_BEFORE(lock_order::after_tables);
  std::list<Detached> detached_ CMI_GUARDED_BY(detached_mu_);
  std::deque<Detached*> unposted_ CMI_GUARDED_BY(detached_mu_);
  size_t detached_bytes_ CMI_GUARDED_BY(detached_mu_) = 0;  // posted
  std::atomic<size_t> detached_count_{0};
  std::atomic<Nanos> detached_since_{0};  // when the first after none was started
  std::unique_ptr<ring::Channel> ring_;   // set once
  std::atomic<bool> by_ring_{false};      // release: ring_ is set
  std::unique_ptr<Port> port_;            // last: closed first
};

}  // namespace cmi::fabric

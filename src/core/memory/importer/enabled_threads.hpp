// The threads that have access to imported segments (cmi_enb), and which faults are being served in
// their names. Any thread; the lock is a leaf.
//
// Invariants: once remove() has returned true and await_served() has returned, nothing is mapped in
// the name of a thread until one is added. While an ExclusiveAccess is one thread's, no other
// thread has access.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

class EnabledThreads {
 public:
  // The calling thread. Waits while another one has exclusive access. Throws bad_alloc.
  void add();
  // The calling thread. True: it was the last.
  bool remove();
  // Until no fault is being served that began while a thread was enabled.
  void await_served() const;

  // Around the service of a fault of `thread`: whether that one has access.
  bool begin_serving(pid_t thread);
  // The same for what no thread asked for: whether any has.
  bool begin_serving();
  void end_serving() { serving_.fetch_sub(1, std::memory_order_release); }

 private:
  friend class ExclusiveAccess;

  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::vector<uint64_t> threads_ CMI_GUARDED_BY(mu_);  // by thread_number()
  std::atomic<bool> exclusive_{false};                 // set under mu_: another thread has to wait
  std::atomic<int> serving_{0};
};

// Keeps the calling thread the only one with access, while it lives and if it is the only one when
// it begins: others that ask for access wait. What is done meanwhile must not wait.
class ExclusiveAccess {
 public:
  explicit ExclusiveAccess(EnabledThreads& enabled);
  // Release pairs with the wait of another thread: what was done meanwhile is seen.
  ~ExclusiveAccess() {
    if (mine_) enabled_.exclusive_.store(false, std::memory_order_release);
  }
  ExclusiveAccess(const ExclusiveAccess&) = delete;
  ExclusiveAccess& operator=(const ExclusiveAccess&) = delete;
  bool mine() const { return mine_; }

 private:
  EnabledThreads& enabled_;
  bool mine_ = false;
};

}  // namespace cmi::memory

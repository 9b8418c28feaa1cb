// The threads that take faults on imported views where CMI_FAULT=thread asks for it: they read them
// from the userfaultfd, so that a system call may be given any address of a view.
//
// What can be served is, and the faulting thread goes on. What cannot is decided in the thread
// itself: its page is poisoned, so that a system call fails with EFAULT, and a load or store raises
// SIGBUS, whose handler tries once more, as it does in the other mode, and raises the exception. A
// page is poisoned for a tenth of a second at most: the cause may go away, and it is nobody else's.
//
// Several threads, because one may wait for a fetch while another page is there at once. Each
// blocks all signals and holds a view only while it serves a fault.
#pragma once

#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/memory/fault.hpp"

namespace cmi::memory {

class FaultThreads {
 public:
  // Both outlive it.
  FaultThreads(Importer& importer, FaultTarget& target);
  ~FaultThreads();
  FaultThreads(const FaultThreads&) = delete;
  FaultThreads& operator=(const FaultThreads&) = delete;

  Status start();

 private:
  struct Poisoned {
    std::weak_ptr<const View> view;
    const std::byte* addr;
    Nanos since;
  };
  void run();
  void serve(const Userfault::Fault& fault);
  void unpoison_old();

  Importer& importer_;
  FaultTarget& target_;
  Fd stop_;  // an eventfd, readable for good once they are to end
  Mutex mu_;
  std::vector<Poisoned> poisoned_ CMI_GUARDED_BY(mu_);  // the oldest first
  std::atomic<bool> any_poisoned_{false};
  std::vector<std::thread> threads_;
};

}  // namespace cmi::memory

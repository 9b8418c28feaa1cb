// The threads that take faults on imported views where CMI_FAULT=thread asks for it: they read them
// from the userfaultfd, so that a system call may be given any address of a view.
//
// What can be served is, and the faulting thread goes on. What cannot is decided in the thread
// itself: its page is poisoned, so that a system call fails with EFAULT, and a load or store raises
// SIGBUS, whose handler tries once more, as it does in the other mode, and raises the exception; at
// once where it has been waited for in vain. A page is poisoned for a tenth of a second, or until
// one of the threads has time: the cause may go away, and it is nobody else's.
//
// Several threads, because one may wait for a fetch while another page is there at once; and where
// all of them have waited for a while, as for a home that is silent, one more takes their place, so
// that accesses to one home do not hold up those to another. Each blocks all signals and holds a
// view only while it serves a fault.
#pragma once

#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/memory/vm/import_faults.hpp"
#include "core/memory/vm/sigbus.hpp"

namespace cmi::memory {

class FaultThreads {
 public:
  // Both outlive it.
  FaultThreads(ImportFaults& importer, FaultTarget& target);
  ~FaultThreads();
  FaultThreads(const FaultThreads&) = delete;
  FaultThreads& operator=(const FaultThreads&) = delete;

  Status start();

  // Whether the calling thread's access to this page has just been tried for as long as it may be.
  // Says so once. Any thread, signal handlers too.
  bool waited_in_vain(const std::byte* addr, bool write);

 private:
  struct Poisoned {
    std::weak_ptr<const View> view;
    const std::byte* addr;
    Nanos since;
    pid_t in_vain;  // the thread that it was waited for in vain for, or 0
    bool write;
  };
  // A fault that is being served. A thread that is woken while it waits, as by the late end of
  // an earlier fault, faults anew: of a thread's faults only the last one is waited for.
  struct Served {
    explicit Served(FaultThreads& threads) : by(threads) {}
    ~Served() CMI_EXCLUDES(by.mu_);
    Served(const Served&) = delete;
    Served& operator=(const Served&) = delete;
    FaultThreads& by;
    Userfault::Fault fault{};
    uint64_t cleaned = 0;    // as it was before the fault was read
    bool of_before = false;  // under by.mu_
  };
  // A thread waits for faults, or, as a spare one, for all of those that do to be held up.
  enum class Part { kFree, kSpare, kOver };
  void run(Part part);
  Part wait_for_fault();
  Part wait_for_need();
  bool add_thread(Part part) CMI_EXCLUDES(threads_mu_);
  // Reads the next one. False: there is none. Under one lock, so that of two of a thread the later
  // one is known to be that: the verdict on the last one is never left out.
  bool next_fault(Served* served) CMI_EXCLUDES(mu_);
  void serve(const Served& served) CMI_EXCLUDES(mu_);
  void unpoison_old();
  void end_first_in_time() CMI_REQUIRES(mu_);  // sets due_

  ImportFaults& importer_;
  FaultTarget& target_;
  Fd stop_;  // an eventfd, readable for good once they are to end
  Fd due_;   // a timer, readable when a page has been poisoned for long enough
  Mutex mu_ CMI_ACQUIRED_BEFORE(threads_mu_);           // before a page's lock
  std::vector<Poisoned> poisoned_ CMI_GUARDED_BY(mu_);  // the oldest first
  std::vector<Served*> served_ CMI_GUARDED_BY(mu_);
  std::atomic<bool> any_poisoned_{false};
  Fd held_up_;                // a timer, readable when there has been no free thread for a while
  std::atomic<int> free_{0};  // threads that wait for faults
  std::atomic<int> spare_{0};
  Mutex threads_mu_;  // leaf
  std::vector<std::thread> threads_ CMI_GUARDED_BY(threads_mu_);
};

}  // namespace cmi::memory

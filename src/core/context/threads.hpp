// The registered threads of a context. Each has a Thread in the client's memory.
#pragma once

#include <cmi.h>

#include "core/base/lock.hpp"
#include "core/context/lock_order.hpp"
#include "core/memory/importer/importer.hpp"

namespace cmi::context {

class Context;
struct Epoch;

struct Thread {
  Context* context = nullptr;
  memory::LossMark loss;
  memory::PendingSwaps pending_swaps;
  Epoch* epoch = nullptr;  // open flush epoch
  Thread* next = nullptr;  // of the same context; ThreadList's
};

// What cmi_fb points to.
struct Epoch {
  Thread* owner = nullptr;
  memory::LossMark loss;  // of its own: a barrier in between does not swallow what it has to report
};

extern constinit thread_local Thread* t_thread;  // of this thread, or null
extern constinit thread_local cmi_error t_error;

// Any thread. Its lock is a leaf.
class ThreadList {
 public:
  void add(Thread& thread) {
    Guard g(mu_);
    thread.next = first_;
    first_ = &thread;
    ++count_;
  }
  // One that was added. True: it was the last one.
  bool remove(Thread& thread) {
    Guard g(mu_);
    Thread** p = &first_;
    while (*p != &thread) p = &(*p)->next;
    *p = thread.next;
    return --count_ == 0;
  }
  int count() {
    Guard g(mu_);
    return count_;
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_sizes);
  Thread* first_ CMI_GUARDED_BY(mu_) = nullptr;
  int count_ CMI_GUARDED_BY(mu_) = 0;
};

}  // namespace cmi::context

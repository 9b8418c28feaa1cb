// Where a test, and not the kernel, decides which thread goes on and what time it is, so that
// interleavings are chosen and every run can be repeated (test/sim). The library asks here wherever
// a thread reads the clock, takes a lock, waits, or passes a fault point. Only in a library built
// with CMI_FAULT_INJECTION; elsewhere nothing is left of it.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstdint>

namespace cmi {

// The threads of one simulation run on one thread of the kernel, one at a time.
class Schedule {
 public:
  // Nanoseconds on the clock of the simulation.
  virtual int64_t now() = 0;
  // The caller could go on; others may go first.
  virtual void pass(const char* where) = 0;
  // The caller has nothing to do before another thread has done something, or `nanos` are over.
  // Returns early as it pleases.
  virtual void idle(int64_t nanos) = 0;
  // Whether the caller is of a node at which fault points are armed.
  virtual bool faults_here() const = 0;
  // The number of the calling thread; never that of another one.
  virtual uint64_t thread() const = 0;

 protected:
  ~Schedule() = default;
};

#ifdef CMI_FAULT_POINTS
inline constinit thread_local Schedule* t_schedule = nullptr;
[[gnu::always_inline]] inline Schedule* schedule() { return t_schedule; }
#else
consteval Schedule* schedule() { return nullptr; }
#endif

// Lets other threads run: sched_yield.
inline void yield_processor() {
  if (Schedule* s = schedule(); s != nullptr) {
    s->idle(0);
  } else {
    sched_yield();
  }
}

// The kernel's number of the calling thread, or that of the schedule.
inline uint64_t thread_number() {
  if (Schedule* s = schedule(); s != nullptr) return s->thread();
  return static_cast<uint64_t>(gettid());
}

// Locks a mutex of the standard library.
template <class M>
inline void lock_scheduled(M& mutex) {
  if (Schedule* s = schedule(); s != nullptr) {
    s->pass("lock");
    while (!mutex.try_lock()) s->idle(0);
  } else {
    mutex.lock();
  }
}

}  // namespace cmi

// The moment at which the lease of a home is over, told by the kernel: each thread with access to
// imports has a timer whose signal comes before the thread's next instruction. So a process that
// was stopped as a whole and is woken loads nothing more of what it had cached, however long its
// service thread takes to run.
//
// The signal is SIGBUS, which the library takes anyway; its handler takes the pages out of the
// views (FaultTarget::on_lease_alarm). Where a timer cannot be had (RLIMIT_SIGPENDING), and in
// threads that block SIGBUS, the service thread alone ends the lease.
#pragma once

#include <signal.h>
#include <time.h>

#include <cstdint>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/lock.hpp"

namespace cmi::memory {

class LeaseAlarm {
 public:
  LeaseAlarm() = default;
  ~LeaseAlarm() { stop(); }
  LeaseAlarm(const LeaseAlarm&) = delete;
  LeaseAlarm& operator=(const LeaseAlarm&) = delete;

  // The calling thread has access from now on, or no longer.
  void add();
  void remove();
  // When the next lease is over; 0: none. Any thread.
  void set(Nanos at);
  // No timer is there any more, nor will be. Before SIGBUS is given back.
  void stop();

  // In the handler: whether the signal is one of these.
  static bool sent(const siginfo_t& si);

 private:
  struct Timer {
    uint64_t thread;
    timer_t id;
  };

  Mutex mu_;  // a leaf
  std::vector<Timer> timers_ CMI_GUARDED_BY(mu_);
  Nanos at_ CMI_GUARDED_BY(mu_) = 0;
  bool stopped_ CMI_GUARDED_BY(mu_) = false;
};

}  // namespace cmi::memory

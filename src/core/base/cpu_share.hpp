// A bound on what background work takes of a processor: work is paid from a balance that grows with
// the time that passes. One thread.
#pragma once

#include <algorithm>

#include "core/base/clock.hpp"

namespace cmi {

// Processor time of the calling thread. A system call.
inline Nanos thread_cpu_time() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

class CpuShare {
 public:
  // One part in `part` of a processor. `most`: what can be saved up for one piece of work.
  constexpr CpuShare(Nanos part, Nanos most) : part_(part), most_(most), balance_(most) {}

  // From the last begin() on, the balance grows by this part.
  void set_part(Nanos part) { part_ = part; }
  // Work begins. `t`: the time; `cpu`: the thread's.
  void begin(Nanos t, Nanos cpu) {
    balance_ = std::min(most_, balance_ + (t - last_) / part_);
    last_ = t;
    began_ = cpu;
  }
  // Whether there is something left for more work.
  bool left(Nanos cpu) const { return cpu - began_ < balance_; }
  // Work ends. What it took above the balance is paid before the next begins.
  void end(Nanos cpu) { balance_ -= cpu - began_; }

 private:
  Nanos part_;
  const Nanos most_;
  Nanos balance_;
  Nanos last_ = 0, began_ = 0;
};

}  // namespace cmi

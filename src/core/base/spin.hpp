// Waiting by trying again. Pure but for the clock and sched_yield; any thread, signal handlers too.
#pragma once

#include <sched.h>

#include "core/base/clock.hpp"
#include "core/base/lock.hpp"

namespace cmi {

// Until when the calling thread does not spin, because somebody computes on its processor.
inline constinit thread_local Nanos t_no_spin_until = 0;

// Trying again costs less than being woken: without a break for a while, then yielding after each
// try, since on a machine with few cores the one that is waited for may be the one that is not
// running. Over when the span has passed, and for a while when yielding took so long that somebody
// must be computing here: who sleeps is scheduled before him when the time comes, who yields after.
class Spin {
 public:
  // `unbroken`: for so long it does not yield.
  explicit Spin(Nanos span, Nanos unbroken, Nanos start = now())
      : yield_from_(start + unbroken), until_(start + span) {}

  // `t` is the present time. False: sleep instead.
  bool again(Nanos t) {
    if (t >= until_ || t < t_no_spin_until) return false;
    if (t < yield_from_) {
      cpu_pause();
      return true;
    }
    sched_yield();
    if (const Nanos after = now(); after - t > kLong) t_no_spin_until = after + kNoSpin;
    return true;
  }

 private:
  static constexpr Nanos kLong = 200 * kMicro, kNoSpin = 20 * kMilli;
  Nanos yield_from_, until_;
};

}  // namespace cmi

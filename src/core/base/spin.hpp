// Waiting by trying again. Pure but for the clock and sched_yield; any thread, signal handlers too.
#pragma once

#include <sched.h>

#include "core/base/clock.hpp"
#include "core/base/lock.hpp"

namespace cmi {

// Until when the calling thread takes it that somebody computes on its processor.
inline constinit thread_local Nanos t_crowded_until = 0;

// Trying again costs less than being woken: without a break for a while, then yielding after each
// try, since on a machine with few cores the one that is waited for may be the one that is not
// running. Over when the span has passed. When yielding took so long that somebody must be
// computing here, it is over at once for a while: who sleeps is scheduled before him when the time
// comes, who yields after.
class Spin {
 public:
  // `unbroken`: for so long it does not yield. `crowded`: for so long it tries again, without
  // yielding, although somebody computes here.
  explicit Spin(Nanos span, Nanos unbroken, Nanos start = now(), Nanos crowded = 0)
      : yield_from_(start + unbroken), until_(start + span), crowded_until_(start + crowded) {}

  // `t` is the present time. False: sleep instead.
  bool again(Nanos t) {
    if (t >= until_) return false;
    const bool crowded = t < t_crowded_until;
    if (crowded && t >= crowded_until_) return false;
    if (crowded || t < yield_from_) {
      cpu_pause();
      return true;
    }
    sched_yield();
    if (const Nanos after = now(); after - t > kLong) t_crowded_until = after + kCrowdedFor;
    return true;
  }

 private:
  static constexpr Nanos kLong = 200 * kMicro, kCrowdedFor = 20 * kMilli;
  Nanos yield_from_, until_, crowded_until_;
};

}  // namespace cmi

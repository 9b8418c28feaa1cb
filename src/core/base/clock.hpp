// Monotonic time and deadlines. Any thread, signal handlers too.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>

#include "core/base/schedule.hpp"

namespace cmi {

using Nanos = int64_t;  // on CLOCK_MONOTONIC
inline constexpr Nanos kMicro = 1000, kMilli = 1000 * kMicro, kSecond = 1000 * kMilli;

inline Nanos now() {
  if (Schedule* s = schedule(); s != nullptr) return s->now();
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

// As now(), but as much as a tick of the kernel's (1 to 10 ms) ago: for an eighth of its price.
inline Nanos now_or_a_tick_ago() {
  if (Schedule* s = schedule(); s != nullptr) return s->now();
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

// A point in time after which a wait ends with an error.
struct Deadline {
  Nanos at = 0;
  static Deadline in(Nanos span) { return {now() + span}; }
  bool passed() const { return now() >= at; }
  Nanos left() const {
    Nanos l = at - now();
    return l > 0 ? l : 0;
  }
};

// One long wait in slices, between which the thread looks at what its waiting does not show. Each
// is twice as long as the one before: a crowd that waits must not take the processor from those it
// waits for.
class WaitSlices {
 public:
  explicit WaitSlices(Deadline whole, Nanos first = 10 * kMilli) : whole_(whole), next_(first) {}
  // The end of the slice that begins now.
  Deadline next() {
    const Deadline end{std::min(whole_.at, now() + next_)};
    next_ = std::min(2 * next_, kLongest);
    return end;
  }

 private:
  static constexpr Nanos kLongest = 40 * kMilli;  // the delay with which a lost session is noticed
  Deadline whole_;
  Nanos next_;
};

}  // namespace cmi

// What a Link tells of its home: when the home was last heard of, since when it cannot be reached,
// and whether this side is to blame. Those that declare a home dead go by it.
// Threads: any. Each value stands for itself; readers pair no two of them, so all but the one that
// says so are relaxed.
#pragma once

#include <atomic>

#include "core/base/clock.hpp"

namespace cmi::fabric {

class LinkHealth {
 public:
  // When the home was last heard of (0: never).
  Nanos heard() const { return heard_.load(std::memory_order_relaxed); }
  // When the home last gave a sign of life over its lifeline (0: never). It says that the home
  // lives and not that the link works.
  Nanos alive() const { return alive_.load(std::memory_order_relaxed); }
  // No session could be had since then, although this side had all it takes (0: there is one, or
  // nobody asked for one).
  Nanos unreachable_since() const { return unreachable_since_.load(std::memory_order_relaxed); }
  // Hellos that the home has refused for want of something since there was a session.
  int refusals() const { return refusals_.load(std::memory_order_relaxed); }
  // From a request's (last) sending to its answer, the last time (0: never).
  Nanos took() const { return took_.load(std::memory_order_relaxed); }
  // The last session failed, or the next could not begin, by a fault of this side. Acquire: what
  // was found out before it was said is seen.
  bool local_fault() const { return local_fault_.load(std::memory_order_acquire); }

  void alive_at(Nanos t) { alive_.store(t, std::memory_order_relaxed); }
  void heard_at(Nanos t) { heard_.store(t, std::memory_order_relaxed); }
  void answered_in(Nanos took) { took_.store(took, std::memory_order_relaxed); }
  void connecting_at(Nanos t) {
    Nanos none = 0;
    unreachable_since_.compare_exchange_strong(none, t, std::memory_order_relaxed);
  }
  void refused() { refusals_.fetch_add(1, std::memory_order_relaxed); }
  void welcomed_at(Nanos t) {
    refusals_.store(0, std::memory_order_relaxed);
    heard_at(t);
    unreachable_since_.store(0, std::memory_order_relaxed);
    local_fault_.store(false, std::memory_order_release);
  }
  // Silence of the home is not held against it while this side is at fault.
  void this_side_failed() { local_fault_.store(true, std::memory_order_release); }
  void not_held_against_home() { unreachable_since_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<Nanos> heard_{0}, alive_{0}, unreachable_since_{0}, took_{0};
  std::atomic<int> refusals_{0};
  std::atomic<bool> local_fault_{false};
};

}  // namespace cmi::fabric

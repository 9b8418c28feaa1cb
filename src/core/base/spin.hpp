// Waiting by trying again, and when to sleep instead. Pure but for the clock and sched_yield; any
// thread, signal handlers too.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/clock.hpp"

namespace cmi {

// The time to enter the kernel and come back: a tenth of a microsecond, or a whole one where each
// entry changes page tables, as under some hypervisors. Measured by the first call. An engine makes
// that call as it starts: a call from a signal handler in the middle of the first one would not
// end.
inline Nanos kernel_entry() {
  static const Nanos least = [] {
    Nanos shortest = kSecond;
    for (int i = 0; i < 64; ++i) {
      const Nanos before = now();
      syscall(SYS_getppid);
      shortest = std::min(shortest, now() - before);
    }
    return shortest;
  }();
  return least;
}

// Whether other threads run on a thread's processor, judged by how long the thread's yields take.
// SpinThenSleep uses it. Each thread has one, since all its waits learn from each other.
class ProcessorNeighbours {
 public:
  // A yield that ended at `t` took so long, without what it takes to enter the kernel. `others`:
  // threads that wait as this one does, and take turns with it.
  void yielded(Nanos t, Nanos took, int others) {
    shared_ = took >= kNobody;
    // Where others wait, the scheduler has passed them over, as it does when they are ahead.
    if (!shared_ && others == 0) alone_until_ = t + kAloneFor;
    const bool lengthy = took > kLong * (1 + others);
    // Once may be a thread that had something short to do, such as to start another.
    if (lengthy && (lengthy_ || t < crowded_until_ + kCrowdedFor)) {
      crowded_until_ = t + kCrowdedFor;
    }
    lengthy_ = lengthy;
  }
  // Lets others run, at `t`, the present time.
  void give_way(Nanos t, int others = 0) {
    yield_processor();
    const Nanos after = now();
    yielded(after, after - t - kernel_entry(), others);
  }
  bool crowded(Nanos t) const { return t < crowded_until_; }  // another thread computes here
  // Others ran when this one last yielded, and take turns with it.
  bool shared(Nanos t) const { return shared_ && !crowded(t); }
  Nanos alone_until() const { return alone_until_; }  // no other ran when it last yielded

  // Two threads that do nothing but yield take longer for a turn; a yield that changes nothing
  // takes half of it.
  static constexpr Nanos kNobody = kMicro, kAloneFor = 20 * kMicro;
  static constexpr Nanos kLong = 200 * kMicro, kCrowdedFor = 20 * kMilli;

 private:
  Nanos crowded_until_ = -kCrowdedFor, alone_until_ = 0;
  bool lengthy_ = false, shared_ = false;  // the last yield
};

// Decides, for a thread that waits, whether it tries again, lets others run, or sleeps.
//
// Trying again costs less than being woken. The thread first tries without a break for a while;
// then it yields after each try, since on a machine with few cores the thread that is waited for
// may be the one that is not running. Where the last yields found no other thread it does not yield
// for a while, since a yield takes as long as a try. When the span has passed it sleeps. Where
// another thread computes on this processor, it sleeps at once: a sleeper is scheduled before that
// thread when its time comes, a yielding one after it.
//
// A thread that serves others keeps one object for all its waits. It learns the span from its
// sleeps: being woken takes longer than most of what it is woken for. One short sleep says nothing,
// such as the one before the answer to its own message; two in a row are a peer that keeps coming.
class SpinThenSleep {
 public:
  using Neighbours = ProcessorNeighbours;
  static Neighbours& neighbours() { return t_neighbours_; }

  static constexpr Nanos kShortest = 200 * kMicro, kLongest = 8 * kShortest;  // spans
  // A look that takes so many times as long as the others has served a peer.
  static constexpr Nanos kTimes = 4, kSlowly = 8;

  explicit SpinThenSleep(Nanos span = kShortest) : span_(span) {}

  // A wait begins at `start` and lasts for span(). `unbroken`: for so long the thread does not
  // yield. `crowded`: for so long it tries again, without yielding, although another one computes
  // here.
  void begin(Nanos start, Nanos unbroken = 0, Nanos crowded = 0) {
    yield_from_ = start + unbroken;
    until_ = start + span_;
    crowded_until_ = start + crowded;
  }
  // `t` is the present time; `others` as for Neighbours::yielded. False: sleep instead.
  bool again(Nanos t, int others = 0) {
    if (t >= until_) return false;
    const bool crowded = t_neighbours_.crowded(t);
    if (crowded && t >= crowded_until_) return false;
    if (!crowded && t >= std::max(yield_from_, t_neighbours_.alone_until())) {
      t_neighbours_.give_way(t, others);
    }
    return true;
  }

  Nanos span() const { return span_; }
  // The thread has slept for so long. `woken`: something had come, not just the time.
  void slept(Nanos took, bool woken) {
    usual_look_ = 0;  // the next look finds cold caches
    if (took >= span_) {
      span_ = kShortest;
      short_sleep_ = false;
    } else if (woken) {
      if (short_sleep_) span_ = std::min(2 * span_, kLongest);
      short_sleep_ = true;
    }
  }

  // Whether a look at the endpoints, which took so long, has served a read or a write of a peer.
  // The provider does not report those, but such a look takes many times as long as the others.
  bool served(Nanos took) {
    const bool longer = usual_look_ != 0 && took > kTimes * usual_look_;
    // The usual length follows at once when looks become longer, so that only the first of them
    // counts, and slowly when they become shorter: every few looks may be at a slower endpoint.
    usual_look_ = std::max(took, usual_look_ - usual_look_ / kSlowly);
    return longer;
  }

 private:
  inline static constinit thread_local ProcessorNeighbours t_neighbours_{};

  Nanos span_;
  bool short_sleep_ = false;  // the last sleep
  Nanos usual_look_ = 0;      // 0: not known yet
  // The present wait.
  Nanos yield_from_ = 0, until_ = 0, crowded_until_ = 0;
};

}  // namespace cmi

// Waiting by trying again. Pure but for the clock and sched_yield; any thread, signal handlers too.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/clock.hpp"

namespace cmi {

// What it takes here to enter the kernel and come back: a tenth of a microsecond, or a whole one
// where page tables are changed for it, as under some hypervisors. Measured when it is first asked
// for, which an engine does as it starts: a signal handler may interrupt who measures, and ask too.
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

// Who else runs on a thread's processor, as the thread sees it by how long its yields take.
class Company {
 public:
  // A yield that ended at `t` took so long, without what it takes to enter the kernel. `others`:
  // threads that wait as this one does, and take turns with it.
  void yielded(Nanos t, Nanos took, int others) {
    shared_ = took >= kNobody;
    // Where others wait, the scheduler has passed them over, as it does when they are ahead.
    if (!shared_ && others == 0) alone_until_ = t + kAloneFor;
    const bool lengthy = took > kLong * (1 + others);
    // Once may be somebody who had something short to do, such as to start a thread.
    if (lengthy && (lengthy_ || t < crowded_until_ + kCrowdedFor)) crowded_until_ = t + kCrowdedFor;
    lengthy_ = lengthy;
  }
  // Lets others run, at `t`, the present time.
  void give_way(Nanos t, int others = 0) {
    sched_yield();
    const Nanos after = now();
    yielded(after, after - t - kernel_entry(), others);
  }
  bool crowded(Nanos t) const { return t < crowded_until_; }  // somebody computes here
  // Others ran when it last yielded, and take turns with it.
  bool shared(Nanos t) const { return shared_ && !crowded(t); }
  Nanos alone_until() const { return alone_until_; }  // nobody ran when it last yielded

  // Two threads that do nothing but yield take longer for a turn; a yield that changes nothing
  // takes half of it.
  static constexpr Nanos kNobody = kMicro, kAloneFor = 20 * kMicro;
  static constexpr Nanos kLong = 200 * kMicro, kCrowdedFor = 20 * kMilli;

 private:
  Nanos crowded_until_ = -kCrowdedFor, alone_until_ = 0;
  bool lengthy_ = false, shared_ = false;  // the last one
};
inline constinit thread_local Company t_company;

// How long a thread that serves others looks for work before it sleeps, as its sleeps teach: being
// woken takes longer than most of what it is woken for. One short sleep is nothing, such as that
// before the answer to something it has sent itself; two in a row are somebody who keeps coming.
class Vigil {
 public:
  static constexpr Nanos kShortest = 200 * kMicro, kLongest = 8 * kShortest;

  Nanos span() const { return span_; }
  // It has slept for so long; `woken`: and then there was something, not just the time.
  void slept(Nanos took, bool woken) {
    if (took >= span_) {
      span_ = kShortest;
      short_ = false;
    } else if (woken) {
      if (short_) span_ = std::min(2 * span_, kLongest);
      short_ = true;
    }
  }

 private:
  Nanos span_ = kShortest;
  bool short_ = false;  // the last sleep
};

// Whether a look at the endpoints has served a read or a write of a peer. The provider says nothing
// of those; but such a look takes many times as long as the others.
class Looks {
 public:
  bool served(Nanos took) {
    const bool longer = usual_ != 0 && took > kTimes * usual_;
    // Follows at once when looks become longer, which is so said once, and slowly when they become
    // shorter: where every few of them are at a slower endpoint, those are no surprise.
    usual_ = std::max(took, usual_ - usual_ / kSlowly);
    return longer;
  }
  void slept() { usual_ = 0; }  // the next one finds cold caches

  static constexpr Nanos kTimes = 4, kSlowly = 8;

 private:
  Nanos usual_ = 0;  // 0: not known yet
};

// Trying again costs less than being woken: without a break for a while, then yielding after each
// try, since on a machine with few cores the one that is waited for may be the one that is not
// running; or, where nobody else runs or waits beside it, after some, since to yield takes as long
// as to try. Over when the span has passed. Where somebody computes it is over at once for a while:
// who sleeps is scheduled before him when the time comes, who yields after.
class Spin {
 public:
  // `unbroken`: for so long it does not yield. `crowded`: for so long it tries again, without
  // yielding, although somebody computes here.
  explicit Spin(Nanos span, Nanos unbroken, Nanos start = now(), Nanos crowded = 0)
      : yield_from_(start + unbroken), until_(start + span), crowded_until_(start + crowded) {}

  // `t` is the present time; `others` as for Company::yielded. False: sleep instead.
  bool again(Nanos t, int others = 0) {
    if (t >= until_) return false;
    const bool crowded = t_company.crowded(t);
    if (crowded && t >= crowded_until_) return false;
    if (!crowded && t >= std::max(yield_from_, t_company.alone_until())) {
      t_company.give_way(t, others);
    }
    return true;
  }

 private:
  Nanos yield_from_, until_, crowded_until_;
};

}  // namespace cmi

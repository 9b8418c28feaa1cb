// What all endpoints share: completing an operation and waiting for one.
// A waiter polls for itself, because a completion handed over by another thread arrives later than
// the wire takes; after a short spin one waiter sleeps on the descriptor and the others nap on
// theirs.
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/lock.hpp"
#include "core/base/spin.hpp"
#include "fabric/fabric.hpp"

namespace cmi::fabric {

namespace {
// A round trip to a peer that has to be woken.
constexpr Nanos kSpin = SpinThenSleep::kShortest;
// The same where that takes longer. A waiter that sleeps then is itself woken so late that the peer
// has gone to sleep again, each time. So a wait that slept and was over sooner than this makes the
// next spin longer.
constexpr Nanos kLongestSpin = SpinThenSleep::kLongest;
// A round trip to one that polls, but for entering the kernel, and how often it does.
constexpr Nanos kPolledTrip = 6 * kMicro;
constexpr int kEntriesOfTrip = 8;
// Where the other way is waited for: this one is looked at once in so many rounds.
constexpr unsigned kSeldom = 16;
constexpr int kTurns = 2;  // shorter waits after which a longer one is forgotten
// Bounds of one sleep, should a provider's descriptor fail us; on it, and beside a thread that
// sleeps on it and may leave. In between a sleep is as long as the wait has been so far, and an
// eighth of that.
constexpr Nanos kShortestNap = kMilli, kLongestNap = 20 * kMilli;
constexpr Nanos kShortestNapBeside = 50 * kMicro, kLongestNapBeside = kMilli;

// Counts a thread while it waits. One that is alone need not let others run; where several wait,
// another may have its answer already, and start its next operation while this one's travels.
class Waiting {
 public:
  explicit Waiting(std::atomic<int>& threads)
      : threads_(threads), before_(threads.fetch_add(1, std::memory_order_relaxed)) {}
  ~Waiting() { threads_.fetch_sub(1, std::memory_order_relaxed); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  bool alone() const { return before_ == 0; }
  int others() const { return threads_.load(std::memory_order_relaxed) - 1; }
  // Meanwhile nobody need let this one run.
  template <class Sleep>
  void asleep(Sleep sleep) {
    threads_.fetch_sub(1, std::memory_order_relaxed);
    sleep();
    threads_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<int>& threads_;
  const int before_;
};

void futex_wait(std::atomic<uint32_t>& word, uint32_t while_value, Nanos span) {
  if (Schedule* s = schedule(); s != nullptr) return s->idle(span);
  timespec t{span / kSecond, span % kSecond};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, while_value, &t, nullptr, 0);
}
}  // namespace

const char* cause_name(Cause c) {
  switch (c) {
    case Cause::kOk:
      return "ok";
    case Cause::kRefused:
      return "refused by the target";
    case Cause::kPeerLost:
      return "peer lost";
    case Cause::kCancelled:
      return "cancelled";
    case Cause::kTimeout:
      return "timed out";
    case Cause::kLocal:
      return "local failure";
  }
  return "unknown";
}

[[gnu::hot]] void Op::complete(Cause c) {
  cause_ = c;
  Callback cb = callback_;
  const uint32_t before = state_.exchange(kDone, std::memory_order_seq_cst);
  // From here on a plain waiter may have destroyed the op; the wake-up only uses its address, and a
  // stray one is harmless. An op with a callback belongs to that callback.
  if (before == kAwaited) syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  if (cb != nullptr) cb(*this);
}

Endpoint::Endpoint() : span_(kSpin), waker_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

// kDone and sleeping_ are stored and loaded in one total order: either this sees sleeping_, or the
// sleeper sees its op done. The same with other_: it sees the other way.
[[gnu::hot]] void Endpoint::wake_sleeper() {
  if (sleeping_.load(std::memory_order_seq_cst)) eventfd_write(waker_.get(), 1);
}

void Endpoint::sleep_on_descriptor(const Op& op, Nanos span) {
  OtherWay* const other = other_.load(std::memory_order_seq_cst);
  if (!may_sleep() || (other != nullptr && !other->may_sleep()) ||
      op.state_.load(std::memory_order_seq_cst) == Op::kDone) {
    return;
  }
  pollfd p[] = {{wait_fd(), POLLIN, 0},
                {waker_.get(), POLLIN, 0},
                {other != nullptr ? other->wait_fd() : -1, POLLIN, 0}};
  timespec ts{span / kSecond, span % kSecond};
  if (ppoll(p, 3, &ts, nullptr) > 0 && p[1].revents != 0) {
    eventfd_t ignored;
    eventfd_read(waker_.get(), &ignored);
  }
}

void Op::nap(Nanos at_most) {
  uint32_t posted = kPosted;
  state_.compare_exchange_strong(posted, kAwaited, std::memory_order_relaxed);
  futex_wait(state_, kAwaited, at_most);
}

int Endpoint::look_other() {
  OtherWay* const other = other_way();
  if (other == nullptr) return 0;
  const int events = other->look();
  if (events > 0) wake_sleeper();
  return events;
}

int Endpoint::poll_both() { return look_other() + poll(); }

[[gnu::hot]] int Endpoint::poll_by(Way way, unsigned round) {
  const int events = look_other();
  if (events > 0 || (way == Way::kOther && round % kSeldom != kSeldom - 1)) return events;
  return poll();
}

[[gnu::hot]] Cause Endpoint::wait(Op& op, Deadline deadline, Way way) {
  Waiting self(waiting_);
  const Nanos span = span_.load(std::memory_order_relaxed);
  const Nanos start = now(), polled_trip = kPolledTrip + kEntriesOfTrip * kernel_entry();
  bool slept = false;
  SpinThenSleep::Neighbours& here = SpinThenSleep::neighbours();
  // A thread that has waited long enough to yield lately, and then found another one that takes
  // turns with it, may be waiting for that one again.
  const int turns = turns_.load(std::memory_order_relaxed);
  const bool unbroken = self.alone() && !(turns > 0 && here.shared(start));
  SpinThenSleep spin(span);
  spin.begin(start, unbroken ? polled_trip : 0);
  Nanos t = start;
  // Another one may go on while this one's answer cannot be here yet.
  if (self.others() > 0 && !op.done() && start >= here.alone_until()) {
    here.give_way(start, self.others());
  }
  for (unsigned round = 0; !op.done();) {
    if (poll_by(way, round++) > 0) continue;
    if (op.done()) break;
    t = now();
    OtherWay* const other = other_way();
    if (t >= deadline.at || (other != nullptr && other->has_ended())) {
      turns_.store(kTurns, std::memory_order_relaxed);
      return Cause::kTimeout;
    }
    if (spin.again(t, self.others())) continue;
    const Nanos waited = t - start, left = deadline.at - t;
    slept = true;
    self.asleep([&] {
      if (wait_fd() >= 0 && !sleeping_.exchange(true, std::memory_order_seq_cst)) {
        sleep_on_descriptor(op, std::min(left, std::clamp(waited, kShortestNap, kLongestNap)));
        sleeping_.store(false, std::memory_order_release);
      } else if (wait_fd() >= 0 || other == nullptr || other->may_sleep()) {
        op.nap(std::min(left, std::clamp(waited / 8, kShortestNapBeside, kLongestNapBeside)));
      }
    });
  }
  // The last yield may have been most of it.
  learn_from(t == start ? 0 : now() - start, polled_trip, slept);
  return op.cause();
}

// How long a wait took, for the next one.
void Endpoint::learn_from(Nanos took, Nanos polled_trip, bool slept) {
  const int turns = turns_.load(std::memory_order_relaxed);
  if (const int next = took < polled_trip ? std::max(turns - 1, 0) : kTurns; next != turns) {
    turns_.store(next, std::memory_order_relaxed);
  }
  if (!slept) return;
  const Nanos span = span_.load(std::memory_order_relaxed);
  span_.store(took < kLongestSpin ? std::min(2 * span, kLongestSpin) : kSpin,
              std::memory_order_relaxed);
}

}  // namespace cmi::fabric

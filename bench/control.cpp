// Commands over shared memory.
#include "control.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace bench {

namespace {
constexpr double kSpin = 5 * kMilli;
}  // namespace

const char* role_name(int role) {
  static constexpr const char* kNames[kRoles] = {"home",   "peer",   "other1",
                                                 "other2", "other3", "crew"};
  return kNames[role];
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t while_value, double nanos) {
  const timespec t{static_cast<time_t>(nanos / kSecond),
                   static_cast<long>(nanos) % static_cast<long>(kSecond)};
  syscall(SYS_futex, &word, FUTEX_WAIT, while_value, &t, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ask(Control& control, int role, Command command, uint64_t a, uint64_t b, uint64_t c,
         uint64_t d) {
  Mailbox& m = control.mail[role];
  m.command = command;
  m.args[0] = a;
  m.args[1] = b;
  m.args[2] = c;
  m.args[3] = d;
  m.asked.fetch_add(1, std::memory_order_release);  // pairs with the worker's load
  futex_wake(m.asked);
}

Answer await(Control& control, int role, double within) {
  Mailbox& m = control.mail[role];
  const uint32_t number = m.asked.load(std::memory_order_relaxed);
  const double began = now();
  for (;;) {
    const uint32_t answered = m.answered.load(std::memory_order_acquire);
    if (answered == number) break;
    const double waited = now() - began;
    must(waited < within, std::string(role_name(role)) + " does not answer");
    // At first without sleeping: what comes next is measured, and a woken CPU is slow at first.
    if (waited < kSpin) {
      sched_yield();
    } else {
      futex_wait(m.answered, answered, 50 * kMilli);
    }
  }
  if (m.error[0] != 0) fail(std::string(role_name(role)) + ": " + m.error);
  return {m.results[0], m.results[1]};
}

Answer call(Control& control, int role, Command command, uint64_t a, uint64_t b, uint64_t c,
            uint64_t d) {
  ask(control, role, command, a, b, c, d);
  return await(control, role);
}

void RawServing::change(RawMode mode) {
  const auto wanted = static_cast<uint32_t>(mode);
  control_.raw_wanted.store(wanted);
  futex_wake(control_.raw_wanted);
  const double began = now();
  while (control_.raw_now.load() != wanted) {
    must(control_.raw_failed.load() == 0, "the raw target failed");
    must(now() - began < kAnswerWithin, "the raw target does not answer");
    sched_yield();
  }
}

RawServing::~RawServing() {
  try {
    change(RawMode::kOff);
  } catch (const Failure&) {  // the next one to be made reports it
  }
}

}  // namespace bench

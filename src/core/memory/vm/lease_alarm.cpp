// Timers of threads: made, set, deleted.
#include "core/memory/vm/lease_alarm.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/log.hpp"
#include "core/base/schedule.hpp"

namespace cmi::memory {

namespace {
char g_mark;  // its address tells our signals from others

void set_timer(timer_t id, Nanos at) {
  itimerspec when;
  std::memset(&when, 0, sizeof when);
  when.it_value.tv_sec = at / kSecond;
  when.it_value.tv_nsec = at % kSecond;
  timer_settime(id, TIMER_ABSTIME, &when, nullptr);  // one that has passed comes at once
}

// Where the calling thread blocks SIGBUS, the last alarm waits for it, and before Linux 6.13
// outlives its timer, and the library's handler: a thread that opens SIGBUS then would die of it.
// One of another sender waits on.
void take_blocked() {
  sigset_t mask, bus;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  if (sigismember(&mask, SIGBUS) != 1) return;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  siginfo_t si;
  const timespec at_once{};
  // Without the C library, which does not tell a signal to the thread from one to the process.
  if (syscall(SYS_rt_sigtimedwait, &bus, &si, &at_once, _NSIG / 8) != SIGBUS) return;
  if (LeaseAlarm::sent(si)) return;
  if (si.si_code > 0 || si.si_code == SI_TKILL) {
    syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &si);
  } else if (syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &si) != 0) {
    kill(getpid(), SIGBUS);  // what it said only the main thread may say again
  }
}
}  // namespace

void LeaseAlarm::add() {
  if (schedule() != nullptr) return;  // simulated time is not the kernel's
  Guard g(mu_);
  if (stopped_) return;
  sigevent event;
  std::memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGBUS;
  event.sigev_value.sival_ptr = &g_mark;
  event._sigev_un._tid = static_cast<pid_t>(thread_number());
  timer_t id;
  if (timer_create(CLOCK_MONOTONIC, &event, &id) != 0) {
    trace(kFacMem, kWarn, "this thread has no timer for the end of a lease");
    return;
  }
  try {
    timers_.push_back({thread_number(), id});
  } catch (const std::bad_alloc&) {
    timer_delete(id);
    return;
  }
  set_timer(id, at_);
}

void LeaseAlarm::remove() {
  Guard g(mu_);
  const auto mine = std::find_if(timers_.begin(), timers_.end(),
                                 [](const Timer& t) { return t.thread == thread_number(); });
  if (mine == timers_.end()) return;
  timer_delete(mine->id);  // what it has sent is taken before this returns
  timers_.erase(mine);
  take_blocked();
}

void LeaseAlarm::set(Nanos at) {
  Guard g(mu_);
  at_ = at;
  for (const Timer& t : timers_) set_timer(t.id, at);
}

void LeaseAlarm::stop() {
  Guard g(mu_);
  stopped_ = true;
  for (const Timer& t : timers_) timer_delete(t.id);
  if (!timers_.empty()) take_blocked();
  timers_.clear();
}

bool LeaseAlarm::sent(const siginfo_t& si) {
  return si.si_code == SI_TIMER && si.si_value.sival_ptr == &g_mark;
}

}  // namespace cmi::memory

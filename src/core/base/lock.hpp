// Locks with the compiler's thread-safety annotations (clang checks them), and the guard that keeps
// signals away from a thread that holds a page lock.
// Every lock here is safe in a SIGBUS handler: that handler only ever interrupts client code, which
// holds none of ours (the no-fault rule).
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <mutex>

#include "core/base/arch/arch.hpp"
#include "core/base/mutation.hpp"
#include "core/base/schedule.hpp"

#if defined(__clang__)
#define CMI_TSA(x) __attribute__((x))
#else
#define CMI_TSA(x)
#endif
#define CMI_GUARDED_BY(m) CMI_TSA(guarded_by(m))
#define CMI_REQUIRES(...) CMI_TSA(requires_capability(__VA_ARGS__))
#define CMI_EXCLUDES(...) CMI_TSA(locks_excluded(__VA_ARGS__))
// The order of locks, on the member that is declared. clang checks it with -Wthread-safety-beta.
#define CMI_ACQUIRED_BEFORE(...) CMI_TSA(acquired_before(__VA_ARGS__))
#define CMI_ACQUIRED_AFTER(...) CMI_TSA(acquired_after(__VA_ARGS__))

namespace cmi {

class CMI_TSA(capability("mutex")) Mutex {
 public:
  void lock() CMI_TSA(acquire_capability()) { lock_scheduled(m_); }
  void unlock() CMI_TSA(release_capability()) { m_.unlock(); }
  bool try_lock() CMI_TSA(try_acquire_capability(true)) { return m_.try_lock(); }

 private:
  std::mutex m_;
};

class CMI_TSA(scoped_lockable) Guard {
 public:
  explicit Guard(Mutex& m) CMI_TSA(acquire_capability(m)) : m_(m) { m_.lock(); }
  ~Guard() CMI_TSA(release_capability()) { m_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Mutex& m_;
};

// Spins a little, then yields the processor: on a machine with few cores the sharer may be the one
// that is not running.
class Backoff {
 public:
  void pause() {
    if (++n_ < 32 && schedule() == nullptr) {
      arch::spin_hint();
    } else {
      yield_processor();
    }
  }

 private:
  int n_ = 0;
};

// How often the calling thread has blocked its signals. Changed while they are blocked only, so
// that a handler that comes before finds and leaves it as it was.
inline constinit thread_local int t_signals_blocked = 0;

// Blocks every signal of the calling thread while it lives, and its cancellation, which would
// unwind it out of the middle of the library. But not SIGBUS: that tells of broken memory
// (core/memory/vm/guarded_copy.hpp), and one that was sent by somebody is put off by its handler.
// Cheap enough for a path with a system call in it anyway; not for the empty barrier. Inside
// another one it costs nothing. The threads of a simulation share one mask, which stays open:
// others fault meanwhile.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    if (t_signals_blocked == 0 && schedule() == nullptr) {
      sigset_t all;
      sigfillset(&all);
      sigdelset(&all, SIGBUS);
      pthread_sigmask(SIG_BLOCK, mutated("mutate_signals_let_in") ? nullptr : &all, &old_);
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
    }
    ++t_signals_blocked;
  }
  ~SignalsBlocked() {
    if (--t_signals_blocked != 0 || schedule() != nullptr) return;
    pthread_setcancelstate(cancel_, nullptr);
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t old_;
  int cancel_ = 0;
};

// For a signal handler that the kernel has entered with every signal blocked.
class SignalsBlockedAlready {
 public:
  SignalsBlockedAlready() {
    if (t_signals_blocked++ == 0) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
  }
  ~SignalsBlockedAlready() {
    if (--t_signals_blocked == 0) pthread_setcancelstate(cancel_, nullptr);
  }
  SignalsBlockedAlready(const SignalsBlockedAlready&) = delete;
  SignalsBlockedAlready& operator=(const SignalsBlockedAlready&) = delete;

 private:
  int cancel_ = 0;
};

}  // namespace cmi

// Taking SIGBUS, passing on what is not ours, queueing SIGSEGV.
#include "core/memory/vm/sigbus.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/base/arch/arch.hpp"
#include "core/base/careful_copy.hpp"
#include "core/base/library_thread.hpp"
#include "core/base/log.hpp"
#include "core/memory/vm/fatal_line.hpp"
#include "core/memory/vm/fault_stacks.hpp"
#include "core/memory/vm/guarded_copy.hpp"
#include "core/memory/vm/lease_alarm.hpp"

namespace cmi::memory {

constinit thread_local bool t_access_enabled = false;
std::atomic<FaultTarget*> g_fault_target{nullptr};

namespace {
std::atomic<pid_t> g_ending{0};              // the thread that ends the process
constexpr Nanos kLongestEnd = 20 * kSecond;  // all that process_exits() may wait for, and more

struct sigaction g_previous;  // written before on_sigbus is first installed
std::atomic<bool> g_installed{false};

constexpr int kSegvCmi = 0x434d;

// Queues to the calling thread; only a thread itself may send si_code >= 0 to itself.
void queue(siginfo_t& si) { syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), si.si_signo, &si); }

void queue_segv(Exception e, const void* addr, int32_t segment, const void* pc) {
  siginfo_t si;
  std::memset(&si, 0, sizeof si);
  si.si_signo = SIGSEGV;
  si.si_errno = static_cast<int>(e);
  si.si_code = kSegvCmi;
  si.si_addr = const_cast<void*>(addr);
  si._sifields._rt.si_sigval.sival_int = segment;
  si._sifields._sigfault._bounds._addr_bnd._upper = const_cast<void*>(pc);
  queue(si);
}

// One that the CPU would have raised.
void queue_fault(const emulate::Stop& stop) {
  siginfo_t si;
  std::memset(&si, 0, sizeof si);
  si.si_signo = stop.signo;
  si.si_code = stop.code;
  si.si_addr = reinterpret_cast<void*>(stop.addr);
  queue(si);
}

// A real fault cannot be blocked or ignored: the process dies by it then, and so it does here.
bool must_die(const sigset_t& mask, int signo) {
  struct sigaction now_set;
  sigaction(signo, nullptr, &now_set);
  return sigismember(&mask, signo) == 1 ||
         ((now_set.sa_flags & SA_SIGINFO) == 0 && now_set.sa_handler == SIG_IGN);
}

bool has_handler(int signo) {
  struct sigaction now_set;
  sigaction(signo, nullptr, &now_set);
  return (now_set.sa_flags & SA_SIGINFO) != 0 ||
         (now_set.sa_handler != SIG_DFL && now_set.sa_handler != SIG_IGN);
}

void set_default(int signo) {
  struct sigaction dfl;
  std::memset(&dfl, 0, sizeof dfl);
  dfl.sa_handler = SIG_DFL;
  sigaction(signo, &dfl, nullptr);
}

// In the handler: what is queued next must not be held up or dropped, nor come before the end of
// the handler, which has its signals open in a simulation.
void die_if_blocked(ucontext_t& uc, int signo) {
  if (schedule() != nullptr) {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, signo);
    pthread_sigmask(SIG_BLOCK, &held, nullptr);
  }
  if (!must_die(uc.uc_sigmask, signo)) return;
  set_default(signo);
  sigdelset(&uc.uc_sigmask, signo);
}

void pass_on(int sig, siginfo_t* si, void* context) {
  auto* uc = static_cast<ucontext_t*>(context);
  const struct sigaction& old = g_previous;
  const bool plain = (old.sa_flags & SA_SIGINFO) == 0;
  if (plain && (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN)) {
    if (old.sa_handler == SIG_IGN && si->si_code <= 0) return;
    // A fault dies by the default action when it happens again; one sent by a process is sent
    // again.
    struct sigaction dfl;
    std::memset(&dfl, 0, sizeof dfl);
    dfl.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &dfl, nullptr);
    const bool notified_only = si->si_code <= 0 || si->si_code == BUS_MCEERR_AO;
    if (notified_only) syscall(SYS_tgkill, getpid(), gettid(), SIGBUS);
    return;
  }
  // With the mask it would have had.
  sigset_t mask = uc->uc_sigmask, ours;
  for (int s = 1; s < NSIG; ++s) {
    if (sigismember(&old.sa_mask, s) == 1) sigaddset(&mask, s);
  }
  if ((old.sa_flags & SA_NODEFER) == 0) sigaddset(&mask, sig);
  pthread_sigmask(SIG_SETMASK, &mask, &ours);
  if (plain) {
    old.sa_handler(sig);
  } else {
    old.sa_sigaction(sig, si, context);
  }
  pthread_sigmask(SIG_SETMASK, &ours, nullptr);
}

// Sent by somebody while the library is at work: for later, or for a thread that is not. Our own
// threads never have time for it and must not block it: the main thread takes it, when it will.
// (To the whole process it might come back here for ever.)
void put_off(siginfo_t* si, ucontext_t* uc) {
  if (t_library_thread) {
    syscall(SYS_tgkill, getpid(), getpid(), SIGBUS);  // what it said may only be said to oneself
    return;
  }
  sigaddset(&uc->uc_sigmask, SIGBUS);
  const bool for_any = si->si_code != SI_TKILL;
  if (for_any && syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, si) == 0) return;
  // Sent to this thread, or by kill(): the kernel lets the first thread alone repeat that to the
  // process, but each thread to itself.
  queue(*si);
}

// One fault on a view, and what became of it.
struct Fault {
  FaultTarget* target;
  const siginfo_t* si;
  ucontext_t* uc;
  std::shared_ptr<const View> view;
  const std::byte* addr;  // of the access; afterwards of the operand that the exception is about
  Exception e;
  emulate::Stop stop;
};

[[gnu::hot, gnu::noinline]] void serve(void* fault) {
  Fault& f = *static_cast<Fault*>(fault);
  SignalsBlockedAlready quiet;
  if (!f.view->write_through) {
    const bool write = arch::was_store(*f.uc);
    f.e = f.target->on_fault(*f.view, f.addr, write,
                             f.si->si_code == BUS_MCEERR_AR || f.si->si_code == BUS_MCEERR_AO);
    return;
  }
  f.stop = f.target->on_write_through(*f.view, f.addr, *f.uc);
  f.e = f.stop.why == emulate::Stop::Why::kException ? static_cast<Exception>(f.stop.code)
                                                     : Exception::kNone;
  f.addr = reinterpret_cast<const std::byte*>(f.stop.addr);
  // The instruction may have another operand, in another segment.
  if (auto other = f.e != Exception::kNone ? f.target->view_at(f.addr) : nullptr) f.view = other;
}

constinit FaultStacks g_stacks;

// The sanitizers know the stacks of threads and of their own fibers alone.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnStack = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kOwnStack = false;
#else
constexpr bool kOwnStack = true;
#endif
#else
constexpr bool kOwnStack = true;
#endif

bool has_alternate_stack(const ucontext_t& uc) {
  return uc.uc_stack.ss_size != 0 && (uc.uc_stack.ss_flags & SS_DISABLE) == 0;
}

// The client's alternate stack is in use while its handler, this one, runs; from a stack of ours a
// nested signal would begin at its top and overwrite it. So it is given up meanwhile.
void give_up_alternate_stack(const ucontext_t& uc) {
  if (!has_alternate_stack(uc)) return;
  stack_t none;
  std::memset(&none, 0, sizeof none);
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}

[[gnu::hot]] void serve_on_own_stack(Fault& f) {
  std::byte* const stack = kOwnStack ? g_stacks.take() : nullptr;
  if (stack == nullptr) return serve(&f);
  arch::call_on_stack(
      stack + FaultStacks::kSize,
      [](void* fault) {
        give_up_alternate_stack(*static_cast<Fault*>(fault)->uc);
        serve(fault);
      },
      &f);
  g_stacks.give(stack);
  // Before a handler of the client's may leave by a jump.
  if (has_alternate_stack(*f.uc)) sigaltstack(&f.uc->uc_stack, nullptr);
}

void take_lease_alarm() {
  const pid_t ending = g_ending.load(std::memory_order_acquire);
  FaultTarget* const target = g_fault_target.load(std::memory_order_acquire);
  if (ending == 0 && target != nullptr) target->on_lease_alarm();
}

// The faulting thread may have little stack: this takes less than 4 KiB of it, and the rest of the
// work is done on a stack of the library's own.
[[gnu::hot]] void on_sigbus(int sig, siginfo_t* si, void* context) {
  const int saved_errno = errno;
  auto* uc = static_cast<ucontext_t*>(context);
  if (LeaseAlarm::sent(*si)) {
    take_lease_alarm();
    errno = saved_errno;
    return;
  }
  // These copy for the library, also for the thread that ends the process.
  if (si->si_code > 0 && end_careful_copy(uc)) return;
  if (si->si_code > 0) leave_guarded_copy(si->si_addr, uc->uc_sigmask);
  if (si->si_code > 0) wait_if_process_ends();
  if (si->si_code <= 0 && (t_library_thread || t_signals_blocked > 0)) return put_off(si, uc);
  Fault f{g_fault_target.load(std::memory_order_acquire),
          si,
          uc,
          nullptr,
          static_cast<const std::byte*>(si->si_addr),
          Exception::kNotOurs,
          {}};
  if (f.target != nullptr && si->si_code > 0) f.view = f.target->view_at(si->si_addr);
  if (f.view != nullptr) {
    t_in_fault_handler = true;
    serve_on_own_stack(f);
  }
  if (f.e == Exception::kNotOurs) {
    t_in_fault_handler = false;
    f.view.reset();
    pass_on(sig, si, context);
    errno = saved_errno;
    return;
  }
  if (f.e != Exception::kNone) {
    wait_if_process_ends();  // it may have left its imports meanwhile
    die_if_blocked(*uc, SIGSEGV);
    if (!has_handler(SIGSEGV)) write_fatal_line(f.e, f.addr, f.view->segment);
    queue_segv(f.e, f.addr, f.view->segment,
               reinterpret_cast<const void*>(arch::program_counter(*uc)));
  } else if (f.stop.why == emulate::Stop::Why::kSignal) {
    die_if_blocked(*uc, f.stop.signo);
    queue_fault(f.stop);
  }
  t_in_fault_handler = false;
  errno = saved_errno;
}

}  // namespace

void process_ends() { g_ending.store(::gettid(), std::memory_order_release); }

[[gnu::hot]] void wait_if_process_ends() {
  const pid_t ending = g_ending.load(std::memory_order_acquire);
  if (ending == 0 || ending == ::gettid()) [[likely]]
    return;
  constexpr timespec kStep{0, 50 * kMilli};
  for (const Deadline end = Deadline::in(kLongestEnd); !end.passed();) {
    ::nanosleep(&kStep, nullptr);
  }
}

void set_fault_target(FaultTarget* target) {
  if (target == nullptr) {
    g_fault_target.store(nullptr, std::memory_order_release);
    g_stacks.release();
    if (schedule() != nullptr) return;
    struct sigaction now_set;
    sigaction(SIGBUS, nullptr, &now_set);
    if (g_installed.load() && (now_set.sa_flags & SA_SIGINFO) != 0 &&
        now_set.sa_sigaction == on_sigbus) {
      sigaction(SIGBUS, &g_previous, nullptr);
      g_installed.store(false);
    }
    return;
  }
  const bool first = !g_installed.exchange(true);
  if (first || schedule() != nullptr) {
    struct sigaction ours;
    std::memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    // Other threads of a simulation fault while this one is in the handler.
    if (schedule() != nullptr) {
      ours.sa_flags |= SA_NODEFER;
    } else {
      sigfillset(&ours.sa_mask);
    }
    // Read first: a SIGBUS of another thread may come before the call that installs ours returns.
    if (first) sigaction(SIGBUS, nullptr, &g_previous);
    sigaction(SIGBUS, &ours, nullptr);
  }
  g_fault_target.store(target, std::memory_order_release);
}

void raise_in_call(Exception e, const void* addr, int32_t segment, const void* pc) {
  wait_if_process_ends();
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  if (must_die(mask, SIGSEGV)) {
    set_default(SIGSEGV);
    sigset_t segv;
    sigemptyset(&segv);
    sigaddset(&segv, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &segv, nullptr);
  }
  if (!has_handler(SIGSEGV)) write_fatal_line(e, addr, segment);
  queue_segv(e, addr, segment, pc);  // delivered before this system call returns
}

}  // namespace cmi::memory

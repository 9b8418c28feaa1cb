/*
 * cmi/cpp/guard.hpp: code that outlives the loss of the memory it works on. Part of <cmi/cmi.hpp>.
 */
#ifndef CMI_CPP_GUARD_HPP
#define CMI_CPP_GUARD_HPP

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <setjmp.h>
#include <signal.h>

#include <optional>
#include <utility>

namespace cmi {

/* ---- Losses --------------------------------------------------------------------------------- */

/** Why an access could not be made: what a SIGSEGV of CMI says. */
struct loss {
  int exception = 0;       /**< one of CMI_ERROR_ */
  void* address = nullptr; /**< of the access */
  cmi_seg segment = CMI_SEG_INVALID;
  const char* name() const noexcept { return cmi_ofi_exception_name(exception); }
};

namespace detail {

struct guard_frame {
  sigjmp_buf jump;
  loss what;
  guard_frame* outer = nullptr;
};
inline thread_local guard_frame* innermost_guard = nullptr;
inline struct sigaction previous_segv;

inline void on_segv(int signo, siginfo_t* info, void* context) {
  if (info->si_code == SEGV_CMI && innermost_guard != nullptr) {
    innermost_guard->what = {info->si_errno, info->si_addr, info->si_id};
    siglongjmp(innermost_guard->jump, 1);
  }
  if ((previous_segv.sa_flags & SA_SIGINFO) != 0) {
    previous_segv.sa_sigaction(signo, info, context);
  } else if (previous_segv.sa_handler == SIG_DFL || previous_segv.sa_handler == SIG_IGN) {
    signal(signo, SIG_DFL); /* the access is made again, and the process dies of it */
  } else {
    previous_segv.sa_handler(signo);
  }
}

inline void install_guard() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSEGV, &action, &previous_segv) == 0;
  }();
  static_cast<void>(installed);
}

struct guard_scope {
  explicit guard_scope(guard_frame& frame) noexcept : frame_(frame) {
    frame_.outer = innermost_guard;
    innermost_guard = &frame_;
  }
  guard_scope(const guard_scope&) = delete;
  guard_scope& operator=(const guard_scope&) = delete;
  ~guard_scope() { innermost_guard = frame_.outer; }

 private:
  guard_frame& frame_;
};

}  // namespace detail

/**
 * Runs f, which works on imported memory. An access of f that raises an exception of CMI ends f
 * instead of the process, and the exception is returned; nothing is returned if f came to its end.
 *
 * f is left where the access was. Destructors of objects made inside f do not run, and a lock that
 * f took stays taken. So f makes no objects that own something, and leaves what it has done in
 * variables outside. Those that are read after a loss are volatile or atomic: the compiler may have
 * moved stores to others. Guards nest, and a C++ exception passes through.
 *
 * The first call installs a handler of SIGSEGV. It passes on to the handler before it what is not
 * CMI's, and what is raised in a thread without a guard.
 */
template <class F>
[[nodiscard]] std::optional<loss> guarded(F&& f) {
  detail::install_guard();
  detail::guard_frame frame;
  const detail::guard_scope scope(frame);
  if (sigsetjmp(frame.jump, 1) != 0) return frame.what;
  std::forward<F>(f)();
  return std::nullopt;
}

}  // namespace cmi

#endif

// The exception handler and the alarm: an ordinary client's handlers, installed with plain
// sigaction.
#include "failure.hpp"

#include <cmi.h>
#include <signal.h>

#include <iterator>

namespace wordcount {
namespace {

const char* exception_name(int number) {
  switch (number) {
    case CMI_ERROR_ENABLE:
      return "access is not enabled";
    case CMI_ERROR_TOKEN:
      return "no valid token";
    case CMI_ERROR_ACCESS:
      return "no right to this access";
    case CMI_ERROR_SINVAL:
      return "the segment is gone";
    case CMI_ERROR_UE:
      return "the memory is lost";
    case CMI_ERROR_TRANSIENT:
      return "transient error";
    case CMI_ERROR_SEG_BRK:
      return "beyond the break";
    case CMI_ERROR_CONSIST:
      return "inconsistent memory";
    default:
      return "unknown exception";
  }
}

// Formats into the stack and writes at once; allocates nothing.
template <typename... Args>
void write_line(fmt::format_string<Args...> format, Args&&... args) {
  char line[256];
  const auto end = fmt::format_to_n(line, std::size(line), format, std::forward<Args>(args)...).out;
  (void)!::write(STDERR_FILENO, line, static_cast<size_t>(end - line));
}

void on_exception(int, siginfo_t* info, void*) {
  if (info->si_code == SEGV_CMI) {
    write_line("{}: exception {} ({}) at {} in segment {}\n", self, info->si_errno,
               exception_name(info->si_errno), info->si_addr, info->si_id);
  } else {
    write_line("{}: invalid access to {}\n", self, info->si_addr);
  }
  ::_exit(1);
}

void on_alarm(int) {
  write_line("{}: not finished in time (see --timeout)\n", self);
  ::_exit(1);
}

}  // namespace

void limit_run_to(std::chrono::seconds time) {
  deadline = Clock::now() + time;
  struct sigaction action = {};
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
  ::alarm(static_cast<unsigned>(time.count()) + 2);
}

void install_exception_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_exception;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace wordcount

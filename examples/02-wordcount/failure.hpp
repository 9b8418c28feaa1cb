// How this program ends when something goes wrong: one line that says what, also to the home node,
// and status 1. Everything that waits is bounded by one deadline for the whole run. Each process is
// single-threaded.
#pragma once

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

namespace wordcount {

using Clock = std::chrono::steady_clock;

// Name of this process in messages; "node 3" once the home has given it a number.
inline std::string self = "wordcount";

// Socket to the home node, told when this process fails; -1 while there is none.
inline int failure_socket = -1;

inline Clock::time_point deadline = Clock::time_point::max();

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  const std::string what = fmt::format(format, std::forward<Args>(args)...);
  fmt::print(stderr, "{}: {}\n", self, what);
  std::fflush(nullptr);
  if (failure_socket >= 0) {
    const std::string line = "failed " + what + "\n";
    // The home notices a closed connection as well, so a message that does not fit is no loss.
    (void)!::send(failure_socket, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  ::_exit(1);
}

// Sets the deadline and an alarm behind it, for a load or call that does not come back.
void limit_run_to(std::chrono::seconds time);

// Exceptions of CMI arrive as SIGSEGV: says which one, where and in which segment, and ends with
// status 1.
void install_exception_handler();

}  // namespace wordcount

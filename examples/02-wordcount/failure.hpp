// How this program ends when something goes wrong: lines that say what and, where another process
// has ended, which; the same to its partners; and status 1. Nothing that was counted is counted
// again by others: a run that loses a process has no result, and says so. Everything that waits is
// bounded by one deadline for the whole run. Each process is single-threaded.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wordcount {

using Clock = std::chrono::steady_clock;

// Name of this process in messages; "node 3" once the home has given it a number.
inline std::string self = "wordcount";

// A process that this one has a connection to.
struct Partner {
  int fd;
  std::string name;
};
// At the home, all nodes; at a node, the home.
inline std::vector<Partner> partners;

// Before what a process tells its partners when it fails.
constexpr std::string_view kFailed = "failed ";

inline Clock::time_point deadline = Clock::time_point::max();

// Says it here and to the partners, and ends with status 1.
[[noreturn]] void give_up(std::string_view what);
// The same for what a lost partner may have caused: gives those that have ended a moment to be
// noticed, and names them, or what the home says of them.
[[noreturn]] void give_up_for_loss(std::string_view what);

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  give_up(fmt::format(format, std::forward<Args>(args)...));
}

// Sets the deadline and an alarm behind it, for a load or call that does not come back.
void limit_run_to(std::chrono::seconds time);

// Exceptions of CMI arrive as SIGSEGV: says which one, where and in which segment, who has ended,
// and ends with status 1. One that is transient tries the access again, until the deadline.
void install_exception_handler();

}  // namespace wordcount

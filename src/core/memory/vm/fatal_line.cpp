#include "core/memory/vm/fatal_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <string_view>

namespace cmi::memory {

namespace {

std::atomic<bool> g_enabled{true};
std::atomic<bool> g_written{false};

// Neither allocates nor takes a lock, as fmt and stdio may. What does not fit is left out.
class Line {
 public:
  explicit Line(char* out) : begin_(out), at_(out), end_(out + kFatalLineSize - 1) {}

  Line& add(std::string_view words) {
    const size_t n = std::min(words.size(), static_cast<size_t>(end_ - at_));
    at_ = std::copy_n(words.data(), n, at_);
    return *this;
  }
  template <class Integer>
  Line& add(Integer number, int base) {
    const auto [end, error] = std::to_chars(at_, end_, number, base);
    if (error == std::errc{}) at_ = end;
    return *this;
  }
  size_t finish() {
    *at_++ = '\n';
    return static_cast<size_t>(at_ - begin_);
  }

 private:
  char* const begin_;
  char* at_;
  char* const end_;
};

}  // namespace

size_t format_fatal_line(Exception e, const void* addr, int32_t segment, char* out) {
  const int number = static_cast<int>(e);
  return Line(out)
      .add("libcmi: ")
      .add(exception_name(number))
      .add(" at 0x")
      .add(reinterpret_cast<uintptr_t>(addr), 16)
      .add(" in segment ")
      .add(segment, 10)
      .add(": ")
      .add(exception_meaning(number))
      .add(". No handler of SIGSEGV takes it (cmi(7), EXCEPTIONS), so the process ends.")
      .finish();
}

void enable_fatal_line(bool on) { g_enabled.store(on, std::memory_order_relaxed); }

void write_fatal_line(Exception e, const void* addr, int32_t segment) {
  if (!g_enabled.load(std::memory_order_relaxed) || g_written.exchange(true)) return;
  char line[kFatalLineSize];
  const size_t length = format_fatal_line(e, addr, segment, line);
  const int saved_errno = errno;
  const ssize_t written = ::write(STDERR_FILENO, line, length);
  static_cast<void>(written);  // a process that dies has nobody else to say it to
  errno = saved_errno;
}

}  // namespace cmi::memory

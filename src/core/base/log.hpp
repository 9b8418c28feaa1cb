// Traces: facilities and levels of the specification, to the client's callbacks or to a file.
// Cheap when off: one relaxed load and a branch. Lines are formatted into a fixed buffer, so
// tracing never allocates and may run in the fault handler; there only the file sink is used,
// because client callbacks must not run in a signal handler.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace cmi {

enum Facility : uint32_t {  // bit values are those of CMI_TRACE_FAC_*, checked in core/api
  kFacIni = 1,
  kFacCtrl = 2,
  kFacSeg = 4,
  kFacTok = 8,
  kFacEvt = 16,
  kFacMem = 32,
  kFacAll = 63,
};
enum Level : uint32_t { kNone = 0, kError = 1, kWarn = 2, kInfo = 3, kDebug = 4, kHighest = 5 };

struct TraceSink {
  void (*alert)(void* arg, const char* msg) = nullptr;  // lines of level kError
  void (*log)(void* arg, const char* msg) = nullptr;    // the rest
  void* arg = nullptr;
  int fd = 2;  // used where there is no callback
};

class Trace {
 public:
  // One per process: the trace outlives contexts, so that a failing cmi_ini can still speak.
  static Trace& get() { return trace_; }
  void configure(uint32_t facilities, uint32_t level, TraceSink sink);
  bool on(Facility f, Level l) const {
    uint64_t m = mask_.load(std::memory_order_relaxed);
    return l <= static_cast<uint32_t>(m >> 32) && (static_cast<uint32_t>(m) & f) != 0;
  }
  void line(Facility f, Level l, const char* text);
  // Parses "facility[,facility]:level" (names lower or upper case, "all" too). False when
  // malformed.
  static bool parse(const std::string& spec, uint32_t* facilities, uint32_t* level);

 private:
  static Trace trace_;
  std::atomic<uint64_t> mask_{0};  // level << 32 | facilities; published after sink_
  TraceSink sink_;
};

// True in a thread that is inside the library's signal handler.
extern constinit thread_local bool t_in_fault_handler;

// Cold: calls of it lie apart from the code that runs without.
template <class... Args>
[[gnu::cold]] void trace_line(Facility f, Level l, fmt::format_string<Args...> format,
                              Args&&... args) {
  char buf[512];
  auto r = fmt::format_to_n(buf, sizeof buf - 1, format, std::forward<Args>(args)...);
  *r.out = '\0';
  Trace::get().line(f, l, buf);
}

template <class... Args>
void trace(Facility f, Level l, fmt::format_string<Args...> format, Args&&... args) {
  if (Trace::get().on(f, l)) [[unlikely]] {
    trace_line(f, l, format, std::forward<Args>(args)...);
  }
}

// Errors are written whatever the levels say when `always` trace lines are asked for by api.md: a
// value of the environment that cannot be parsed, a machine that cannot run us.
template <class... Args>
void alert(Facility f, fmt::format_string<Args...> format, Args&&... args) {
  char buf[512];
  auto r = fmt::format_to_n(buf, sizeof buf - 1, format, std::forward<Args>(args)...);
  *r.out = '\0';
  Trace::get().line(f, kError, buf);
}

}  // namespace cmi

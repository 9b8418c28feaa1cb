// How the module calls the library: without Python's lock, so that other threads of the interpreter
// run during a miss or a wait, and under a guard, so that an access that cannot be made is an
// exception of Python instead of the end of the process.
#ifndef CMI_PYTHON_CALL_HPP
#define CMI_PYTHON_CALL_HPP

#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <cmi/cmi.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cmi_python {

namespace py = pybind11;

/** Sets Python's error: a class of cmi._errors, its code and its sentence. */
void set_error(const char* name, int code, const std::string& sentence);
/** Raises what the thread's last call failed with. */
[[noreturn]] void raise_last_error();
[[noreturn]] void raise_lost(const cmi::loss& lost);
[[noreturn]] void raise_owner_dead(const char* sentence);

/** Runs f, which accesses no memory of a segment, without Python's lock. What it throws passes. */
template <class F>
void plain_call(F&& f) {
  const py::gil_scoped_release others_run;
  f();
}

/**
 * Runs f without Python's lock and under a guard. f makes no objects that own something, since it
 * is left where an access could not be made; what it throws passes.
 */
template <class F>
void guarded_call(F&& f) {
  std::optional<cmi::loss> lost;
  {
    const py::gil_scoped_release others_run;
    lost = cmi::guarded(f);
  }
  if (lost) raise_lost(*lost);
}

/** Runs f, a call of C that returns -1 where it fails, without Python's lock: its result. */
template <class F>
int checked_call(F&& f) {
  volatile int result = 0;
  guarded_call([&] { result = f(); });
  if (result < 0) raise_last_error();
  return result;
}

/** Seconds until a time: none is without end. */
class Deadline {
 public:
  explicit Deadline(std::optional<double> seconds);
  /** Milliseconds until then, at most so many. */
  uint32_t left(uint32_t at_most) const;
  bool passed() const { return end_ && Clock::now() >= *end_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> end_;
};

/** How long a wait goes on without a look at Python's signals, in milliseconds. */
inline constexpr uint32_t kPiece = 200;

/**
 * Runs f(milliseconds), a wait of C that may be called again after CMI_OFI_TIMED_OUT, until the
 * deadline. A handler of Python that raises, say for Ctrl-C, ends it.
 */
template <class F>
int waited_call(std::optional<double> seconds, F&& f) {
  const Deadline deadline(seconds);
  for (;;) {
    const uint32_t piece = deadline.left(kPiece);
    const int result = checked_call([&] { return f(piece); });
    if (result != CMI_OFI_TIMED_OUT || deadline.passed()) return result;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

}  // namespace cmi_python

#endif

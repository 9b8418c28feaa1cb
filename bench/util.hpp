// What every file of the benchmark uses: time, failure, pinning. Any process, any thread.
#pragma once

#include <time.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

inline constexpr size_t kPage = 4096;
inline constexpr double kMicro = 1e3, kMilli = 1e6, kSecond = 1e9;  // in nanoseconds

inline double reading_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * kSecond + static_cast<double>(t.tv_nsec);
}
// CLOCK_MONOTONIC, which is one clock for all processes: the wake-up case compares readings.
inline double now() { return reading_of(CLOCK_MONOTONIC); }
// What all threads of this process have computed, in the kernel and outside.
inline double cpu_time() { return reading_of(CLOCK_PROCESS_CPUTIME_ID); }

// A case that cannot be measured, or did not measure what it says, ends by this.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] inline void fail(const std::string& what) { throw Failure(what); }
inline void must(bool good, const std::string& what) {
  if (!good) fail(what);
}

inline void sleep_for(double nanos) {
  const timespec t{static_cast<time_t>(nanos / kSecond),
                   static_cast<long>(nanos) % static_cast<long>(kSecond)};
  nanosleep(&t, nullptr);
}

// The same, awake.
inline void compute_for(double nanos) {
  for (const double until = now() + nanos; now() < until;) {
  }
}

// The CPUs that this process may use when it starts.
std::vector<int> allowed_cpus();
// Pins the calling thread, and the threads that it starts afterwards. -1: leaves it alone.
void pin_to(int cpu);

}  // namespace bench

// How long things take, as counts by length: any thread adds without a lock, signal handlers too. A
// length is known to a quarter of its power of two, so a quantile is too high by a quarter at most.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/base/clock.hpp"

namespace cmi {

// Bucket 0 holds lengths below 256 ns, the last one those from 16 s on. Between them each power of
// two has four of equal width.
inline constexpr int kShortestLog = 8, kLongestLog = 34, kStepsLog = 2;
inline constexpr size_t kHistogramBuckets =
    2 + (static_cast<size_t>(kLongestLog - kShortestLog) << kStepsLog);

inline size_t bucket_of(uint64_t nanos) {
  if (nanos < uint64_t{1} << kShortestLog) return 0;
  if (nanos >= uint64_t{1} << kLongestLog) return kHistogramBuckets - 1;
  const int log = static_cast<int>(std::bit_width(nanos)) - 1;
  const uint64_t step = nanos >> (log - kStepsLog) & ((1 << kStepsLog) - 1);
  return 1 + (static_cast<size_t>(log - kShortestLog) << kStepsLog) + step;
}

// The first length, in nanoseconds, that is beyond this bucket. The last one has no end:
// UINT64_MAX.
inline uint64_t end_of_bucket(size_t bucket) {
  if (bucket + 1 >= kHistogramBuckets) return UINT64_MAX;
  const uint64_t step = bucket & ((1 << kStepsLog) - 1);
  const int log = kShortestLog + static_cast<int>(bucket >> kStepsLog);
  return ((uint64_t{1} << kStepsLog) + step) << (log - kStepsLog);
}

using HistogramCounts = std::array<uint64_t, kHistogramBuckets>;

// The length, in nanoseconds, that `share` (0 to 1) of the counted ones do not exceed; 0 where none
// are counted. From what is counted in the last bucket on: UINT64_MAX.
inline uint64_t quantile(const HistogramCounts& counts, double share) {
  uint64_t all = 0;
  for (uint64_t n : counts) all += n;
  if (all == 0) return 0;
  const double wanted = share * static_cast<double>(all);
  uint64_t below = 0;
  for (size_t i = 0; i < kHistogramBuckets; ++i) {
    below += counts[i];
    if (below > 0 && static_cast<double>(below) >= wanted) return end_of_bucket(i);
  }
  return UINT64_MAX;
}

class Histogram {
 public:
  void add(uint64_t nanos) {
    counts_[bucket_of(nanos)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(nanos, std::memory_order_relaxed);
  }
  HistogramCounts counts() const {
    HistogramCounts now;
    for (size_t i = 0; i < now.size(); ++i) now[i] = counts_[i].load(std::memory_order_relaxed);
    return now;
  }
  uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kHistogramBuckets> counts_{};
  std::atomic<uint64_t> sum_{0};
};

// Adds its own life to a histogram; to none where that is null. Its clock is the machine's own on
// simulated nodes, too, where a look at theirs would let another thread go on.
class Timed {
 public:
  explicit Timed(Histogram* to) : to_(to), begin_(to != nullptr ? machine_time() : 0) {}
  ~Timed() {
    if (to_ != nullptr) to_->add(static_cast<uint64_t>(machine_time() - begin_));
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  static Nanos machine_time() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * kSecond + t.tv_nsec;
  }
  Histogram* const to_;
  const Nanos begin_;
};

}  // namespace cmi

// Counters of a context and of its imports, relaxed: they are read for reporting only.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/histogram.hpp"

namespace cmi::memory {

// Size: one counter for each that cmi_ofi_stats() reports.
struct Stats {
  using Counter = std::atomic<uint64_t>;
  Counter load_misses{0}, store_misses{0}, store_faults{0}, pages_fetched{0}, bytes_fetched{0},
      bytes_written_back{0}, pages_written_back{0}, publications{0}, invalidations_received{0},
      cas_calls{0}, cas_lost{0}, exceptions{0}, pages_evicted{0}, most_unanswered{0}, ticks{0},
      pages_updated{0}, publications_received{0}, invalidations_useless{0}, intents_asked{0},
      swaps_with_page{0}, requests_held_back{0}, twins_short{0};
  Histogram miss_times, barrier_times, swap_times;
};

// The same of one imported segment.
struct SegmentStats {
  using Counter = Stats::Counter;
  Counter load_misses{0}, store_misses{0}, bytes_fetched{0}, bytes_written_back{0}, publications{0},
      invalidations_received{0}, exceptions{0}, invalidations_useless{0};
};

// Returns what was counted before.
inline uint64_t count(Stats::Counter& c, uint64_t n = 1) {
  return c.fetch_add(n, std::memory_order_relaxed);
}

// For the greatest of something.
inline void note_greatest(Stats::Counter& c, uint64_t to) {
  uint64_t was = c.load(std::memory_order_relaxed);
  while (was < to && !c.compare_exchange_weak(was, to, std::memory_order_relaxed)) {
  }
}

}  // namespace cmi::memory

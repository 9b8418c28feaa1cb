// How many pages of all imports are dirty. Any thread; no lock.
//
// Invariant: a page counts before the store that made it dirty is let go on, so that the thread
// that stored, and every thread that has seen the store, finds the count above zero (the empty
// barrier's fast path).
#pragma once

#include <atomic>
#include <cstdint>

namespace cmi::memory {

class DirtyCount {
 public:
  // `for_threads`: threads read the faults of others, and need cleaned().
  explicit DirtyCount(bool for_threads) : for_threads_(for_threads) {}
  void dirtied() { dirty_.fetch_add(1, std::memory_order_seq_cst); }
  void cleaned_one() {
    dirty_.fetch_sub(1, std::memory_order_seq_cst);
    if (for_threads_) cleaned_.fetch_add(1, std::memory_order_release);
  }
  bool any() const { return count() != 0; }
  uint64_t count() const { return dirty_.load(std::memory_order_seq_cst); }
  // How many times a page has been dirty no more.
  uint64_t cleaned() const { return cleaned_.load(std::memory_order_acquire); }

 private:
  const bool for_threads_;
  std::atomic<uint64_t> dirty_{0}, cleaned_{0};
};

}  // namespace cmi::memory

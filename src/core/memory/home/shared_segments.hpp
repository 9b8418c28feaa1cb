// How many segments of a process others may have cached, or own: while there are none, a barrier
// has nothing to do and takes no lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace cmi::memory {

class SharedSegments {
 public:
  // Fence: either a barrier that comes meanwhile sees the segment, or what was stored before that
  // barrier is seen by whoever reads the segment from here on. It pairs with the barrier's own.
  void add() {
    count_.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void remove() { count_.fetch_sub(1); }
  // Of a segment that this process owns: whether it was shared before a change, and is after it.
  void changed(bool was, bool is) {
    if (!was && is) add();
    if (was && !is) remove();
  }
  bool any() const { return count_.load(std::memory_order_seq_cst) != 0; }

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace cmi::memory

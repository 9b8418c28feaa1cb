// Pages whose dirty intent a swap has brought and perhaps no store has used yet (rule 21), each
// once, in the order of their turns. The timer gives intents back that were not used from one turn
// to the next: a page with an intent at its home is in flux if this process dies. Any thread; the
// lock is a leaf inside the page locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

class UnusedIntents {
 public:
  static constexpr size_t kMost = 1024;
  // A lock in memory that is shared by several nodes is taken again within this time, or no more
  // for long.
  static constexpr Nanos kKept = 100 * kMilli;

  bool empty() const { return size_.load(std::memory_order_relaxed) == 0; }
  bool has_room() const { return size_.load(std::memory_order_relaxed) < kMost; }
  void add(uint32_t page, Nanos t) {
    Guard g(mu_);
    pages_.emplace_back(page, t);
    size_.store(pages_.size(), std::memory_order_relaxed);
  }
  // Those that have waited for long.
  std::vector<uint32_t> take(Nanos t) {
    Guard g(mu_);
    std::vector<uint32_t> due;
    for (; !pages_.empty() && t - pages_.front().second >= kKept; pages_.pop_front()) {
      due.push_back(pages_.front().first);
    }
    size_.store(pages_.size(), std::memory_order_relaxed);
    return due;
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::deque<std::pair<uint32_t, Nanos>> pages_ CMI_GUARDED_BY(mu_);
  std::atomic<size_t> size_{0};
};

}  // namespace cmi::memory

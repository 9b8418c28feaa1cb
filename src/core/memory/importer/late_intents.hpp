// Dirty intents that swaps have asked for and whose callers have given up the answer (rule 21): the
// home may set one for as long as it takes to make the swap. It is given back by its epoch when the
// answer comes. Until that message has gone, no other intent of the page has this epoch: the
// message would clear it. One for each page at most. Any thread; the lock is a leaf inside the page
// locks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

class LateIntents {
 public:
  // Under the page's lock.
  void add(uint32_t page, uint8_t epoch) {
    Guard g(mu_);
    epochs_[page] = epoch;
    size_.store(epochs_.size(), std::memory_order_relaxed);
  }
  void remove(uint32_t page) {
    Guard g(mu_);
    epochs_.erase(page);
    size_.store(epochs_.size(), std::memory_order_relaxed);
  }
  // Under the page's lock, under which it was added. 0: none.
  uint8_t epoch(uint32_t page) {
    if (size_.load(std::memory_order_relaxed) == 0) return 0;
    Guard g(mu_);
    const auto it = epochs_.find(page);
    return it == epochs_.end() ? uint8_t{0} : it->second;
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::map<uint32_t, uint8_t> epochs_ CMI_GUARDED_BY(mu_);
  std::atomic<size_t> size_{0};
};

}  // namespace cmi::memory

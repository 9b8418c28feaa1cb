// Naps until pages that another thread is fetching or writing have changed. Any thread; the fault
// handler too.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/clock.hpp"

namespace cmi::memory {

class ChangeWait {
 public:
  // To be read before the page is looked at; given to wait() after.
  uint32_t seen() const { return changes_.load(std::memory_order_seq_cst); }
  // Something has changed: waiters look again.
  void notify();
  // Until notify() is called, if it was not since seen(), or `span` is over.
  void wait(uint32_t seen, Nanos span);

 private:
  std::atomic<uint32_t> changes_{0};
  std::atomic<int> waiters_{0};
};

}  // namespace cmi::memory

// A mutex for long work in parts: between two of them its owner lets those in that wait. A plain
// one would go to the thread that is awake, which is the owner. Uncontended it costs what a plain
// one does.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/base/lock.hpp"

namespace cmi {

class CMI_TSA(capability("mutex")) HandoverMutex {
 public:
  void lock() CMI_TSA(acquire_capability()) {
    if (m_.try_lock()) return;
    waiting_.fetch_add(1, std::memory_order_seq_cst);
    lock_scheduled(m_);
    waiting_.fetch_sub(1, std::memory_order_seq_cst);
    entered_.fetch_add(1, std::memory_order_seq_cst);
  }
  void unlock() CMI_TSA(release_capability()) { m_.unlock(); }
  bool try_lock() CMI_TSA(try_acquire_capability(true)) { return m_.try_lock(); }
  // Whether a thread waits for it; it may be otherwise at once.
  bool awaited() const { return waiting_.load(std::memory_order_seq_cst) != 0; }
  // For the analysis, which does not follow a lock that an object of the caller's holds.
  void assume_held() CMI_TSA(assert_capability(this)) {}
  // By the owner. Runs meanwhile() while the mutex is free, and takes it again after one of those
  // that wait, if any do.
  template <class Meanwhile>
  void give_way(const Meanwhile& meanwhile) CMI_TSA(requires_capability(this)) {
    const uint32_t before = entered_.load(std::memory_order_seq_cst);
    m_.unlock();
    meanwhile();
    for (Backoff backoff; awaited() && entered_.load(std::memory_order_seq_cst) == before;) {
      backoff.pause();
    }
    lock_scheduled(m_);
  }

 private:
  std::mutex m_;
  std::atomic<uint32_t> waiting_{0};
  std::atomic<uint32_t> entered_{0};  // those that had to wait, so far
};

}  // namespace cmi

// Allocation callbacks that remember every block, and fail when told to. Any thread.
#pragma once

#include <cmi.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace cmi::one_process {

class CountingHeap {
 public:
  cmi_cbs callbacks() {
    cmi_cbs cbs{};
    cbs.alloc = alloc;
    cbs.free = free;
    cbs.arg = this;
    return cbs;
  }

  // The n-th allocation from now on gives NULL, n >= 1; 0: none does.
  void fail_at(unsigned n) {
    const std::lock_guard lock(mutex_);
    countdown_ = n;
    failed_here_ = {};
  }
  // From now on every allocation gives NULL, or none does.
  void fail_all(bool on) {
    const std::lock_guard lock(mutex_);
    fail_all_ = on;
  }

  // Whether the failure that fail_at() asked for has come.
  bool has_failed() const {
    const std::lock_guard lock(mutex_);
    return failed_here_ != std::thread::id{};
  }
  bool has_failed_here() const {
    const std::lock_guard lock(mutex_);
    return failed_here_ == std::this_thread::get_id();
  }
  // Whether `p` points into a block that is out.
  bool holds(const void* p) const {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<uintptr_t>(p);
    auto block = blocks_.upper_bound(at);
    if (block == blocks_.begin()) return false;
    --block;
    return at < block->first + block->second;
  }
  size_t blocks() const {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }
  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    size_t sum = 0;
    for (const auto& block : blocks_) sum += block.second;
    return sum;
  }
  unsigned allocations() const {
    const std::lock_guard lock(mutex_);
    return allocations_;
  }
  // Blocks freed that had never been given, or twice.
  unsigned strays() const {
    const std::lock_guard lock(mutex_);
    return strays_;
  }

 private:
  static void* alloc(size_t size, void* arg) {
    auto* self = static_cast<CountingHeap*>(arg);
    const std::lock_guard lock(self->mutex_);
    const bool hit = self->countdown_ == 1;
    if (self->countdown_ > 0) --self->countdown_;
    if (hit) self->failed_here_ = std::this_thread::get_id();
    if (hit || self->fail_all_) return nullptr;
    void* p = std::malloc(size);
    if (p != nullptr) {
      self->blocks_[reinterpret_cast<uintptr_t>(p)] = size;
      ++self->allocations_;
    }
    return p;
  }

  static void free(void* p, void* arg) {
    auto* self = static_cast<CountingHeap*>(arg);
    const std::lock_guard lock(self->mutex_);
    if (self->blocks_.erase(reinterpret_cast<uintptr_t>(p)) == 0) {
      ++self->strays_;
    } else {
      std::free(p);
    }
  }

  mutable std::mutex mutex_;
  std::map<uintptr_t, size_t> blocks_;
  unsigned allocations_ = 0;
  unsigned strays_ = 0;
  unsigned countdown_ = 0;
  bool fail_all_ = false;
  std::thread::id failed_here_;  // the thread whose allocation failed
};

}  // namespace cmi::one_process

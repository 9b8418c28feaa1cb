// Dirty pages of one import that are protected when they are written back, in the order of their
// first stores. Any thread; the lock is a leaf inside the page locks.
//
// Invariant: the first `aged` pages were in the list a tick ago. A write-back is begun before pages
// are taken from here, and what does not go with it is put back before the write-back ends (rule
// 8).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

class DirtyList {
 public:
  // The caller has the page's lock.
  void add(uint32_t page) {
    Guard g(mu_);
    pages_.push_back(page);
    ++added_;
  }
  void put_back(std::span<const uint32_t> pages) {
    Guard g(mu_);
    pages_.insert(pages_.end(), pages.begin(), pages.end());
  }
  size_t size() {
    Guard g(mu_);
    return pages_.size();
  }
  bool empty() { return size() == 0; }
  uint64_t added() {  // calls of add()
    Guard g(mu_);
    return added_;
  }

  // All pages, behind what *to holds.
  void take_all(std::vector<uint32_t>* to) {
    Guard g(mu_);
    take_all_locked(to);
  }
  // The same where there are fewer than `limit`; else false, and all stay.
  bool take_fewer_than(size_t limit, std::vector<uint32_t>* to) {
    Guard g(mu_);
    if (pages_.size() >= limit) return false;
    take_all_locked(to);
    return true;
  }
  // The `n` oldest, where there are `most` pages or more; else false. n <= most.
  bool take_oldest(size_t n, size_t most, std::vector<uint32_t>* to) {
    Guard g(mu_);
    if (pages_.size() < most) return false;
    take_front(n, to);
    aged_ -= std::min(aged_, n);
    return true;
  }

  // At most `n` of the oldest.
  void take_some(size_t n, std::vector<uint32_t>* to) {
    Guard g(mu_);
    n = std::min(n, pages_.size());
    take_front(n, to);
    aged_ -= std::min(aged_, n);
  }

  // Called by the timer once each tick. Returns how many pages were in the list at the last tick
  // already; if none were, the pages that are in it now count at the next.
  size_t tick() {
    Guard g(mu_);
    const size_t aged = aged_;
    if (aged == 0) aged_ = pages_.size();
    return aged;
  }
  // At most `n` of the oldest. What is left will have been here a tick ago at the next.
  void take_aged(size_t n, std::vector<uint32_t>* to) {
    Guard g(mu_);
    take_front(std::min(n, pages_.size()), to);
    aged_ = pages_.size();
  }

 private:
  void take_front(size_t n, std::vector<uint32_t>* to) CMI_REQUIRES(mu_) {
    const auto end = pages_.begin() + static_cast<ptrdiff_t>(n);
    to->insert(to->end(), pages_.begin(), end);
    pages_.erase(pages_.begin(), end);
  }
  void take_all_locked(std::vector<uint32_t>* to) CMI_REQUIRES(mu_) {
    to->insert(to->end(), pages_.begin(), pages_.end());
    pages_.clear();
    aged_ = 0;
  }

  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::deque<uint32_t> pages_ CMI_GUARDED_BY(mu_);
  size_t aged_ CMI_GUARDED_BY(mu_) = 0;
  uint64_t added_ CMI_GUARDED_BY(mu_) = 0;
};

}  // namespace cmi::memory

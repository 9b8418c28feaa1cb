// The pages of one import that stay writable over their write-backs (rule 27), by their numbers.
// Every page whose Heat is hot stands here, from before the store that made it hot goes on; a page
// that has cooled stands here until forget() finds it.
//
// Locks: order_mu_ is outside the page locks, so that no barrier takes a copy of the list while
// pages are being sorted out of it; mu_ is a leaf inside them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

class HotPages {
 public:
  // Pages, 128 MiB: a barrier that finds no change in them takes some 10 ms.
  static constexpr uint32_t kMost = 32768;

  bool empty() const { return size() == 0; }
  size_t size() const { return size_.load(std::memory_order_seq_cst); }
  bool has_room() const { return size() < kMost; }
  // The caller has the page's lock, and has made it hot. Throws bad_alloc.
  void add(uint32_t page) {
    Guard g(mu_);
    pages_.push_back(page);
    size_.store(pages_.size(), std::memory_order_seq_cst);
  }
  std::vector<uint32_t> all() {
    Guard order(order_mu_);
    Guard g(mu_);
    return pages_;
  }
  // At most n pages from the cursor on, which goes round.
  std::vector<uint32_t> some(size_t n) {
    Guard order(order_mu_);
    Guard g(mu_);
    n = std::min(n, pages_.size());
    std::vector<uint32_t> taken;
    taken.reserve(n);
    for (; taken.size() < n; ++cursor_) {
      if (cursor_ >= pages_.size()) cursor_ = 0;
      taken.push_back(pages_[cursor_]);
    }
    return taken;
  }
  // Takes out the pages for which `cooled` is true; it is called without mu_, and takes the page's
  // lock. Pages that are added meanwhile stay.
  template <class Predicate>
  void forget(Predicate cooled) {
    Guard order(order_mu_);
    std::vector<uint32_t> before;
    {
      Guard g(mu_);
      before.swap(pages_);
    }
    // A page that cooled and became hot again stands here twice.
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    std::erase_if(before, cooled);
    Guard g(mu_);
    pages_.insert(pages_.end(), before.begin(), before.end());
    size_.store(pages_.size(), std::memory_order_seq_cst);
  }

 private:
  Mutex order_mu_ CMI_ACQUIRED_AFTER(lock_order::after_tables)
      CMI_ACQUIRED_BEFORE(lock_order::after_import_views);
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::vector<uint32_t> pages_ CMI_GUARDED_BY(mu_);
  size_t cursor_ CMI_GUARDED_BY(mu_) = 0;
  std::atomic<size_t> size_{0};  // of pages_, but while forget() runs
};

}  // namespace cmi::memory

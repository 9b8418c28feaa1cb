// Pages of one import that the home has said to be in flux, or that may be. Before one of them is
// accessed the home is asked whether it still is, so the home need not say that it has recovered
// them. Any thread; the lock is a leaf inside the page locks.
//
// Invariant: pages are listed first and taken out of use after, under their locks. What looks here
// under a page's lock either finds the page, or what it maps is taken again.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/page/page_set.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

class FluxPages {
 public:
  [[gnu::hot]] bool contains(uint32_t page) {
    if (!any_.load(std::memory_order_seq_cst)) return false;
    Guard g(mu_);
    return pages_.contains(page);
  }
  // What of the ranges is not listed.
  std::vector<PageRange> missing(const std::vector<PageRange>& ranges) {
    if (!any_.load(std::memory_order_seq_cst)) return ranges;
    Guard g(mu_);
    return pages_.missing(ranges);
  }
  // A list of the home.
  void add(std::span<const PageRange> ranges) {
    Guard g(mu_);
    for (const PageRange& r : ranges) pages_.add(r);
    noted();
  }
  // Pages whose memory may be broken: the home is asked about them before they are accessed again.
  void doubt(std::span<const uint32_t> pages) {
    Guard g(mu_);
    for (uint32_t page : pages) pages_.add({page, 1});
    noted();
  }
  std::vector<PageRange> all() {
    Guard g(mu_);
    return pages_.all();
  }
  // How many times pages have been listed.
  uint64_t lists() {
    Guard g(mu_);
    return lists_;
  }
  // The home has answered that the page is in flux no more, and was asked when there were `lists`:
  // a list that has come meanwhile may be newer than the answer.
  void recovered(uint32_t page, uint64_t lists) {
    Guard g(mu_);
    if (lists_ == lists) pages_.remove({page, 1});
    any_.store(!pages_.empty(), std::memory_order_seq_cst);
  }

 private:
  void noted() CMI_REQUIRES(mu_) {
    ++lists_;
    any_.store(!pages_.empty(), std::memory_order_seq_cst);
  }

  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  PageSet pages_ CMI_GUARDED_BY(mu_);
  uint64_t lists_ CMI_GUARDED_BY(mu_) = 0;
  std::atomic<bool> any_{false};  // stored under mu_
};

}  // namespace cmi::memory

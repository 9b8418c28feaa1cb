// Which pages of a writable view at home were stored to, where the kernel does not note that by
// itself (before Linux 6.7): pages are write-protected, the first store to one faults, the fault
// handler notes the page here and lets the store go.
//
// Owner: the View. Threads: any, the fault handler too. mu_ is innermost; a page is noted and
// unprotected, or taken and protected, in one step under it, so that a store is either in what
// take() returns or faults again.
#pragma once

#include <algorithm>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

class StoreLog {
 public:
  // `page`: of the memory, what is protected and noted as one.
  StoreLog(Userfault& tracker, std::byte* view, size_t len, size_t page)
      : tracker_(tracker),
        view_(view),
        pages_of_view_(static_cast<uint32_t>(len / kPageSize)),
        per_(static_cast<uint32_t>(page / kPageSize)) {}

  // A store to `addr` has faulted and may go on. False: letting it go on does not help, what keeps
  // it from the page is not its protection.
  bool note(const std::byte* addr) {
    const auto page = static_cast<uint32_t>(static_cast<size_t>(addr - view_) / size());
    Guard g(mu_);
    repeats_ = !pages_.empty() && pages_.back() == page ? repeats_ + 1 : 0;
    if (repeats_ > kMaxRepeats) return false;
    pages_.push_back(page);
    tracker_.unprotect(view_ + page * size(), size(), size());
    return true;
  }

  // The pages stored to since the last call, ascending; later stores to them fault again.
  std::vector<PageRange> take() {
    std::vector<PageRange> runs;
    Guard g(mu_);
    std::sort(pages_.begin(), pages_.end());
    pages_.erase(std::unique(pages_.begin(), pages_.end()), pages_.end());  // threads raced
    for (uint32_t page : pages_) {
      const uint32_t first = page * per_, count = std::min(per_, pages_of_view_ - first);
      if (!runs.empty() && runs.back().first + runs.back().count == first) {
        runs.back().count += count;
      } else {
        runs.push_back({first, count});
      }
    }
    pages_.clear();
    for (const PageRange& r : runs) {
      const size_t len = (size_t{r.count} + per_ - 1) / per_ * size();
      tracker_.protect(view_ + size_t{r.first} * kPageSize, len, size());
    }
    return runs;
  }

  // The pages cannot be stored to any more: they are covered.
  void forget(PageRange pages) {
    Guard g(mu_);
    std::erase_if(pages_, [&](uint32_t page) {
      return page * per_ >= pages.first && page * per_ - pages.first < pages.count;
    });
  }

  // What take() returned could not be published.
  void put_back(const std::vector<PageRange>& runs) {
    Guard g(mu_);
    for (const PageRange& r : runs) {
      for (uint32_t i = 0; i < r.count; i += per_) pages_.push_back((r.first + i) / per_);
    }
  }

 private:
  size_t size() const { return per_ * kPageSize; }  // of one page of the memory

  Userfault& tracker_;
  std::byte* const view_;
  const uint32_t pages_of_view_, per_;  // of kPageSize
  Mutex mu_;
  std::vector<uint32_t> pages_ CMI_GUARDED_BY(mu_);  // of the memory
  static constexpr int kMaxRepeats = 1000;  // threads that race for a page note it once each
  int repeats_ CMI_GUARDED_BY(mu_) = 0;
};

}  // namespace cmi::memory

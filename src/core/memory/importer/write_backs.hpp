// The write-backs that have not ended, as they began. Any thread; the lock is a leaf, but that of
// LossReporter is taken inside with_next().
//
// Invariant: a write-back is in the list from before any of its pages leaves kDirty until all its
// messages are answered, so that a barrier that no longer finds a page dirty finds the write-back
// (rule 8).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/import.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "fabric/link.hpp"

namespace cmi::memory {

// Messages that one collector started together; barriers wait for it.
struct WriteBack {
  uint64_t seq = 0;
  std::shared_ptr<Import> import;
  uint64_t token = 0;         // that had been presented when it began
  std::atomic<int> parts{1};  // the collector, and one for each message
  std::atomic<bool> failed{false};
  fabric::Op done;  // complete when all parts have ended
};

using WriteBackPtr = std::shared_ptr<WriteBack>;

class WriteBacks {
 public:
  WriteBackPtr begin(const std::shared_ptr<Import>& imp);
  // True: it was the last part, and the write-back is not in the list any more. Its `done` is left
  // to the caller.
  bool end_part(const WriteBackPtr& write_back);
  std::vector<WriteBackPtr> open();
  size_t count() const { return count_.load(std::memory_order_seq_cst); }
  // With the number that the next write-back will have, which is not given meanwhile.
  template <class Use>
  void with_next(Use use) {
    Guard g(mu_);
    use(next_);
  }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_answers)
      CMI_ACQUIRED_BEFORE(lock_order::after_write_backs);
  uint64_t next_ CMI_GUARDED_BY(mu_) = 1;
  std::deque<WriteBackPtr> open_ CMI_GUARDED_BY(mu_);
  std::atomic<size_t> count_{0};
};

}  // namespace cmi::memory

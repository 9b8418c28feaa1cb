// Whether the home of one import asks for peace on the segment. Notifications may come twice, and
// late: only the newest round counts. Service thread, but for any().
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace cmi::memory {

class QuiesceRounds {
 public:
  // A notification of this round: quiesce, or resume. True: it changes something. A resume alone
  // does nothing: its quiesce was overtaken, or the home never asked for one.
  bool take(uint32_t round, bool quiesce) {
    if (round <= newest_.load(std::memory_order_relaxed)) return false;
    newest_.store(round, std::memory_order_relaxed);
    return std::exchange(quiesced_, quiesce) || quiesce;
  }
  // Whether there has been any.
  bool any() const { return newest_.load() != 0; }

 private:
  std::atomic<uint32_t> newest_{0};
  bool quiesced_ = false;  // since the newest
};

}  // namespace cmi::memory

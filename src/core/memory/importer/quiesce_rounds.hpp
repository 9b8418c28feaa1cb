// Whether the home of one import asks for peace on the segment. Notifications may come twice, and
// late, and the answer to the first question says the same: only the newest round counts. Any
// thread; its lock is a leaf.
#pragma once

#include <cstdint>
#include <utility>

#include "core/base/lock.hpp"

namespace cmi::memory {

class QuiesceRounds {
 public:
  // A notification of this round: quiesce, or resume. True: it changes something. A resume alone
  // does nothing: its quiesce was overtaken, or the home never asked for one.
  bool take(uint32_t round, bool quiesce) {
    Guard g(mu_);
    if (round <= newest_) return false;
    newest_ = round;
    return std::exchange(quiesced_, quiesce) || quiesce;
  }
  // The import has ended, and the quiesce with it. Whether there has been any.
  bool end() {
    Guard g(mu_);
    quiesced_ = false;
    return newest_ != 0;
  }
  bool on() const {
    Guard g(mu_);
    return quiesced_;
  }

 private:
  mutable Mutex mu_;
  uint32_t newest_ CMI_GUARDED_BY(mu_) = 0;
  bool quiesced_ CMI_GUARDED_BY(mu_) = false;  // since the newest
};

}  // namespace cmi::memory

// Which regions the home notes as cached by an import, and how it is asked to note more (rule 10).
#pragma once

#include <cstdint>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/page/directory.hpp"

namespace cmi::memory {

struct RegionClaims {
  ImportRegions known;
  // Held from begin() to end(), so over a request; application threads only.
  Mutex mu CMI_ACQUIRED_AFTER(lock_order::after_adoption)
      CMI_ACQUIRED_BEFORE(lock_order::after_requests);

  // Of the regions `from` to `to`, both included. Without a lock: one may be released at once,
  // unless a page of it is entered.
  bool all_shared(uint32_t from, uint32_t to) const {
    for (uint32_t r = from; r <= to; ++r) {
      if (!known.shared(r)) return false;
    }
    return true;
  }
  // The home is about to be asked to note them under the epoch that is returned, never 0 and
  // another one each time. None of them is released before the answer is here.
  uint32_t begin(uint32_t from, uint32_t to) CMI_REQUIRES(mu) {
    epoch_ = epoch_ % kMaxEpoch + 1;
    for (uint32_t r = from; r <= to; ++r) {
      known.enter(r);
      known.claim(r, epoch_);
    }
    return epoch_;
  }
  // The same regions: the home has noted them, or there is no such answer.
  void end(uint32_t from, uint32_t to, bool granted) CMI_REQUIRES(mu) {
    for (uint32_t r = from; r <= to; ++r) {
      if (granted) known.granted(r);
      known.leave(r);
    }
  }

 private:
  uint32_t epoch_ CMI_GUARDED_BY(mu) = 0;
};

}  // namespace cmi::memory

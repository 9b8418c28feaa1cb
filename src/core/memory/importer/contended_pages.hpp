// Dirty pages that other nodes store to as well: the timer leaves them alone while they are being
// stored to, since each write-back in mid-work makes every other writer send and fetch the page
// again. Service thread alone.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/base/clock.hpp"

namespace cmi::memory {

class ContendedPages {
 public:
  static constexpr Nanos kBound = kSecond;  // from when the timer met the page
  static constexpr size_t kMost = 4096;     // pages; others are due at once

  // `generation`: of the page, another one if it has been written back or fetched since. `content`:
  // a hash of what it holds at time `t`. True: the page was quiet since the last tick, or has
  // waited for long enough; it is forgotten.
  bool due(uint32_t page, uint32_t generation, uint64_t content, Nanos t) {
    auto it = pages_.find(page);
    if (it == pages_.end() && pages_.size() >= kMost) return true;
    if (it == pages_.end() || it->second.generation != generation) {
      pages_.insert_or_assign(page, Seen{generation, content, t});
      return false;
    }
    if (it->second.content != content && t - it->second.since < kBound) {
      it->second.content = content;
      return false;
    }
    pages_.erase(it);
    return true;
  }
  void forget_all() { pages_.clear(); }

 private:
  struct Seen {
    uint32_t generation;
    uint64_t content;
    Nanos since;
  };
  std::unordered_map<uint32_t, Seen> pages_;
};

}  // namespace cmi::memory

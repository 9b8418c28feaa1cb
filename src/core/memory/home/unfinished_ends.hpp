// Ends of tokens, of segments and of what lies behind a lower break that some importer has neither
// acknowledged nor been declared dead for, though their calls may have given up waiting. The same
// call once more waits for the rest.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "core/base/lock.hpp"
#include "core/memory/home/invalidation_round.hpp"

namespace cmi::memory {

// How long a call that ends something waits for importers, from when they are notified.
struct EndWait {
  Nanos fence = 0;   // one that has not answered by then is fenced
  Nanos answer = 0;  // for the answer, or the verdict: longer than a home takes to declare one dead
};

// Any thread; its lock is a leaf.
class UnfinishedEnds {
 public:
  // `what`: a token's id, a segment's uid or a segment's number, of which no two are the same here.
  void add(uint64_t what, RoundPtr round) {
    Guard g(mu_);
    std::erase_if(rounds_, [](const auto& e) { return e.second->done.done(); });
    rounds_[what] = std::move(round);
  }
  // Null: there is nothing to wait for.
  RoundPtr find(uint64_t what) {
    Guard g(mu_);
    const auto it = rounds_.find(what);
    return it == rounds_.end() ? nullptr : it->second;
  }

 private:
  Mutex mu_;
  std::map<uint64_t, RoundPtr> rounds_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory

// One invalidation round: a barrier, a request or another event waits until all importers that the
// round has notified have answered. Then `finished` runs, with no lock held.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/ids.hpp"
#include "core/memory/wire/requests.hpp"
#include "fabric/fabric.hpp"

namespace cmi::memory {

struct InvalidationRound {
  ContextId by;    // the importer whose stores it publishes, if it is one
  Nanos born = 0;  // 0: while no list of pages in flux waited for an answer
  int waiting = 0;
  // Number of the request for which the notified importers give direct acks; 0: none do.
  // kEarlierSession: the publisher has a new session, and what it says of older numbers is not
  // believed.
  uint64_t direct_acks = 0;
  static constexpr uint64_t kEarlierSession = UINT64_MAX;
  uint64_t first_notification = 0, last_notification = 0;  // those that ask for direct acks
  uint64_t uid = 0;  // what it has published came from this import of that segment,
  uint32_t instance = 0;
  std::vector<DirtyIntent> intents;  // and these are to be cleared when it is over
  std::vector<uint64_t> gone;        // users (holder_of) that are gone for others when it is over
  std::function<void()> finished;    // run once, with no lock held
  // Rounds that wait for this one as well. Not in `finished`, one around the other: there may be
  // thousands. A round that carries what has waited at the home (Outbox) has those that have
  // waited; the others have none that have some of their own.
  std::vector<std::shared_ptr<InvalidationRound>> then;
  fabric::Op done;  // for local waiters
};

using RoundPtr = std::shared_ptr<InvalidationRound>;

// A round that is not over before its maker has settled it as well.
inline RoundPtr begin_round() {
  auto round = std::make_shared<InvalidationRound>();
  round->waiting = 1;
  round->done.begin();
  return round;
}

// What finished while a lock was held: the holder runs it once the lock is free.
using Finished = std::vector<std::function<void()>>;

inline void run(Finished& done) {
  for (auto& f : done) f();
  done.clear();
}

}  // namespace cmi::memory

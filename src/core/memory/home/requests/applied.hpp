// What a publish or an announcement has changed at home, before other importers are notified.
#pragma once

#include <vector>

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

struct Applied {
  // Given back when the publisher, which waits, has its answer.
  std::vector<PageRange> ranges;
  std::vector<DirtyIntent> intents;
  std::vector<StoredPage> of_subscribed;
  InvalidationRounds::Asked asked{};
  WireStatus status = WireStatus::kOk;

  void add(const PageRange& r);
};

// Publishes it. True: the answer comes when all importers have dropped the pages.
bool publish_applied(HomeCore& home, Segment& s, Sharer& h, const fabric::ClientInfo& client,
                     uint64_t number, Applied& applied) CMI_REQUIRES(home.mu);

}  // namespace cmi::memory

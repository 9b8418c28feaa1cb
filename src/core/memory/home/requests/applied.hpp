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

// Applies the diffs of `count` pages. The first page that is refused ends it; what was applied
// before stays. `secret`: of the direct acks, behind the last page; null: there is none. Under the
// segment's lock `mu` alone, from before the sender is checked until what was applied has been
// published: so nobody's right ends in between, and no break sinks.
void apply_pages(HomeCore& home, Segment& s, const Sharer& h, uint32_t count, PublishedPages pages,
                 uint64_t* secret, Applied* applied) CMI_EXCLUDES(home.mu);
// Publishes it. The answer comes when all importers have dropped the pages, at the end of the round
// that is returned; null: it is due now.
RoundPtr publish_applied(HomeCore& home, Segment& s, Sharer& h, const fabric::ClientInfo& client,
                         uint64_t number, Applied& applied) CMI_REQUIRES(home.mu);

}  // namespace cmi::memory

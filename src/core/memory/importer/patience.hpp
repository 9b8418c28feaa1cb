// How long the importing side waits for homes.
#pragma once

#include <algorithm>

#include "core/base/clock.hpp"

namespace cmi::memory {

// How long a wait for homes goes on: until the deadline, and for `span` after whatever shows that
// what is waited for moves on. What is given up then is lost, and reported.
struct Patience {
  Deadline deadline;
  Nanos span = 0;  // 0: the deadline is final, and nothing is given up
  // A home that answers other requests, or says that it is at work, is given more spans, no more
  // than these.
  static constexpr int kMostSpans = 3;
  static Patience of(Nanos span) { return {Deadline::in(span), span}; }
  Deadline next() const {
    return span == 0 ? deadline : Deadline{std::max(deadline.at, now() + span)};
  }
};

// For an import: until when a home that cannot be reached is tried, and how long one that can be is
// given to answer. An import waits its turn at a home that has much to do.
struct JoinTime {
  Deadline reach;
  Deadline answer;
};

}  // namespace cmi::memory

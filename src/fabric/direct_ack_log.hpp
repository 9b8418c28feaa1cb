// What a Link knows of its requests that direct acknowledgements have answered (protocol rule 26):
// which of them the home has no report of, and whether it is worth asking for more.
//
// Invariants:
//  1. A request that direct acknowledgements have answered is listed until it is reported to the
//  home,
//     or the session ends: then the home asks the receivers itself.
//  2. Nothing from the first request that was given up without all its tokens on is reported as
//     acknowledged on that session, since that would say that it had them.
// Pure. Link::mu_ guards it: it changes with the session.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/ids.hpp"
#include "fabric/frame.hpp"

namespace cmi::fabric {

class DirectAckLog {
 public:
  // Tokens come as fast as an answer or not at all. An answer of the home that is later than this
  // comes because it has asked the receivers itself.
  static constexpr Nanos kLate = 10 * kMilli;
  // For how long none are asked for after that: longer with each time in a row.
  static constexpr Nanos kPause = kSecond, kLongestPause = 64 * kSecond;

  // A new session: all tokens that were under way have gone.
  void restart() { *this = {}; }
  bool may_ask(Nanos t) const { return t >= ask_from_; }
  void complete(uint64_t number) {
    unreported_.push_back(number);
    pause_ = 0;
  }
  // The home has answered a request that asked for tokens at `begun_at`. Of those that had asked by
  // the time the pause began, the first counts.
  void answered_by_home(Nanos begun_at, Nanos t) {
    if (t - begun_at <= kLate || begun_at < ask_from_) return;
    pause_ = std::clamp(2 * pause_, kPause, kLongestPause);
    ask_from_ = t + pause_;
  }
  void given_up(uint64_t number) { limit_ = std::min(limit_, number); }

  // Below which number a frame acknowledges, where all below `answered_below` have an answer. What
  // such a frame says needs no report of its own.
  uint64_t acked_below(uint64_t answered_below) {
    const uint64_t below = std::min(answered_below, limit_);
    if (!unreported_.empty()) std::erase_if(unreported_, [&](uint64_t n) { return n < below; });
    return below;
  }
  bool has_unreported() const { return !unreported_.empty(); }
  std::span<const uint64_t> unreported() const {
    return std::span(unreported_).first(std::min(unreported_.size(), kMostAckedBelow));
  }
  void reported() {
    unreported_.erase(unreported_.begin(),
                      unreported_.begin() + static_cast<ptrdiff_t>(unreported().size()));
  }

 private:
  std::vector<uint64_t> unreported_;
  uint64_t limit_ = UINT64_MAX;
  Nanos ask_from_ = 0, pause_ = 0;
};

}  // namespace cmi::fabric

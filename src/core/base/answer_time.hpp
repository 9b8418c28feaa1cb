// How long a peer takes to answer, and after which time without an answer something is sent to it
// again: smoothed time and variation, as TCP's retransmission timer has them (RFC 6298). A peer
// that is merely busy is not sent copies of what lies unread before it.
//
// Pure: the time is given by the caller. The lock of the owner guards it.
#pragma once

#include <algorithm>

#include "core/base/clock.hpp"

namespace cmi {

class AnswerTime {
 public:
  static constexpr Nanos kLeast = 20 * kMilli, kMost = 2 * kSecond;

  // `least`: the bound of wait() from below.
  AnswerTime() = default;
  explicit AnswerTime(Nanos least) : least_(least) {}

  // An answer came so long after what it answers was sent, once: which copy of a repeated
  // message an answer is to is not known (Karn's rule). Ends the doubling.
  void sample(Nanos took) {
    if (smoothed_ == 0) {
      smoothed_ = std::max<Nanos>(took, 1);
      variation_ = took / 2;
    } else {
      const Nanos off = took > smoothed_ ? took - smoothed_ : smoothed_ - took;
      variation_ += (off - variation_) / 4;
      smoothed_ += (took - smoothed_) / 8;
    }
    doublings_ = 0;
  }
  // Something was sent again at `t`: the time to wait is doubled, once for all that was sent again
  // within one such time.
  void repeated(Nanos t) {
    if (t - doubled_at_ < wait()) return;
    doubled_at_ = t;
    if (wait() < kMost) ++doublings_;
  }
  // By the answers alone; the least before the first.
  Nanos measured() const { return std::clamp(smoothed_ + 4 * variation_, least_, kMost); }
  // How long an answer is awaited before something is sent again.
  Nanos wait() const { return std::min(measured() << doublings_, kMost); }

 private:
  Nanos least_ = kLeast;
  Nanos smoothed_ = 0, variation_ = 0;  // 0: there was no answer yet
  Nanos doubled_at_ = 0;
  int doublings_ = 0;  // since the last sample; kMost bounds it
};

}  // namespace cmi

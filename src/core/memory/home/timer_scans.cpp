#include "core/memory/home/timer_scans.hpp"

#include <utility>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/store_publishing.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kMaxRounds = 32;
}  // namespace

void TimerScans::tick(Nanos t) {
  if (mutated("mutate_timer_takes_nothing")) return;
  pace_.begin(t);
  const int32_t begin = turn_;
  bool round = false;  // from the first segment on again
  SegmentPtr s = begin == INT32_MIN ? home_.segments.first() : home_.segments.after(begin - 1);
  for (;; s = home_.segments.after(s->id)) {
    if (s == nullptr && !std::exchange(round, true)) s = home_.segments.first();
    if (s == nullptr || (round && s->id >= begin)) return;
    turn_ = s->id;
    if (!go_through(s)) return;
  }
}

// While many rounds are under way somebody is slow; what is written meanwhile goes with the next
// ones.
bool TimerScans::is_due(const Segment& s) {
  Guard g(home_.mu);
  return s.shared() && home_.rounds.of_stores().size() < kMaxRounds;
}

// All of the segment once, from where it was left. False: the share is used up.
bool TimerScans::go_through(const SegmentPtr& segment) {
  if (!segment->owned || !is_due(*segment)) return true;
  const SegmentLock s(home_, segment, SegmentLock::kTriedViews);
  if (!s) return true;
  s->views_mu.assume_held();
  uint32_t& at = s->timer_at;
  if (mutated("mutate_scan_starts_over")) at = 0;
  const uint32_t begin = at;
  bool round = begin == 0;
  while (pace_.left()) {
    look(*s);
    if (at == kNoPage) {
      at = 0;
      if (std::exchange(round, true)) return true;
    } else if (round && begin != 0 && at >= begin) {
      return true;
    }
    s->views_mu.give_way([this] { (void)home_.parts.server.poll(); });
    if (s->erased.load(std::memory_order_relaxed) || !is_due(*s)) return true;
  }
  return false;
}

// One part.
void TimerScans::look(Segment& s) {
  const Nanos begun = thread_cpu_time();
  const ScannedPart part = scan_part(home_, s, s.timer_at, pace_.part());
  const Nanos took =
      fault_point_fails("scan_takes_a_millisecond") ? kMilli : thread_cpu_time() - begun;
  pace_.looked(part.pages, part.found, took);
  s.timer_at = part.next;
}

}  // namespace cmi::memory

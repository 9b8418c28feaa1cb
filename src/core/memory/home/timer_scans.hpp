// The timer's scans at home: what no barrier publishes of this node's stores is found in the end,
// with a bounded share of a processor (ScanPace).
//
// A tick looks at as much as the share allows, and the next one goes on there: through a segment
// from where it was left, then through the next segment. Each part is published by itself. A
// segment whose views another thread has is left for the next time round, from the same page on.
// Service thread, which serves requests between two parts.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/home/scan_pace.hpp"

namespace cmi::memory {

class TimerScans {
 public:
  explicit TimerScans(HomeCore& home) : home_(home) {}

  void tick(Nanos t) CMI_EXCLUDES(home_.mu);

 private:
  bool is_due(const Segment& s) CMI_EXCLUDES(home_.mu);
  bool go_through(const SegmentPtr& segment) CMI_EXCLUDES(home_.mu);
  void look(Segment& s) CMI_EXCLUDES(home_.mu);

  HomeCore& home_;
  ScanPace pace_;
  int32_t turn_ = INT32_MIN;  // the segment that is looked at next, or the first one behind it
};

}  // namespace cmi::memory

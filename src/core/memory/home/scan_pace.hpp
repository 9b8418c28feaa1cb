// How much the timer's scans at home take of a processor, and how many pages one part of them has.
// Pure: its caller reads the clocks. One thread.
#pragma once

#include <cstdint>

#include "core/base/clock.hpp"
#include "core/base/cpu_share.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

// A scan looks at pages and finds some of them stored to. Looking is paid from a share of a
// processor: 5 %, or 1 % where nothing was found for a second. What was found is protected again
// and published beyond that, so this work goes with what is stored. Between two parts requests are
// served; a part has as many pages as are looked at in half of kLongest.
class ScanPace {
 public:
  static constexpr Nanos kLongest = 100 * kMicro;  // that a part may take
  static constexpr Nanos kPart = 20, kQuietPart = 100;
  static constexpr Nanos kQuietAfter = kSecond;
  static constexpr Nanos kMostSaved = 2 * kMilli;
  // Pages of a part. The least is one region, which is asked for as a whole.
  static constexpr uint32_t kLeast = kRegionPages, kMost = 128 * kRegionPages;

  // A tick begins at time t.
  void begin(Nanos t);
  // Whether another part may be looked at.
  bool left() const { return share_.left(0); }
  // Pages of the next part.
  uint32_t part() const;
  // A part of so many pages was looked at, some of which were stored to (`found`). `took`:
  // processor time of all of it, publishing included.
  void looked(uint32_t pages, bool found, Nanos took);

 private:
  // Costs of a page, in 1/1024 ns.
  static constexpr Nanos kScale = 1024;
  static constexpr Nanos kAtFirst = 5 * kScale;  // of any machine, before there is a measurement
  static Nanos blend(Nanos known, Nanos seen);

  CpuShare share_{kQuietPart, kMostSaved};
  Nanos t_ = 0, found_at_ = -kQuietAfter;
  Nanos cost_ = kAtFirst;       // of parts lately
  Nanos look_cost_ = kAtFirst;  // of parts in which nothing was found
};

}  // namespace cmi::memory

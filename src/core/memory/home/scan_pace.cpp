#include "core/memory/home/scan_pace.hpp"

#include <algorithm>

#include "core/base/mutation.hpp"

namespace cmi::memory {

void ScanPace::begin(Nanos t) {
  t_ = t;
  share_.set_part(t - found_at_ < kQuietAfter ? kPart : kQuietPart);
  share_.begin(t, 0);
}

uint32_t ScanPace::part() const {
  const Nanos pages = kLongest / 2 * kScale / std::max<Nanos>(cost_, 1);
  const auto part = static_cast<uint32_t>(std::clamp<Nanos>(pages, kLeast, kMost));
  return part / kRegionPages * kRegionPages;
}

void ScanPace::looked(uint32_t pages, bool found, Nanos took) {
  if (pages == 0) return;
  const Nanos each = took * kScale / pages;
  cost_ = blend(cost_, each);
  if (found) {
    found_at_ = t_;
  } else {
    look_cost_ = blend(look_cost_, each);
  }
  // The share goes on at the same time for the next part.
  const Nanos looking = found ? std::min(took, look_cost_ * pages / kScale) : took;
  share_.end(mutated("mutate_scan_unpaced") ? 0 : looking);
}

// What costs more than is known is believed at once, so that one part is too long, not several.
Nanos ScanPace::blend(Nanos known, Nanos seen) {
  return seen > known ? seen : known - (known - seen) / 8;
}

}  // namespace cmi::memory

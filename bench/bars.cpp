// One line for each row that has a bar, and the verdict on it.
#include "bars.hpp"

#include <fmt/format.h>

namespace bench {

namespace {
constexpr Bar kBars[] = {
    {"load_hit", Bar::kRatioAtMost, 1.05},
    {"store_hit", Bar::kRatioAtMost, 1.05},
    {"load_miss_4k", Bar::kRatioAtMost, 1.25},
    {"load_miss_idle", Bar::kRatioAtMost, 1.25},
    {"load_miss_busy", Bar::kRatioAtMost, 1.5},
    {"store_first", Bar::kValueAtMost, 5},
    {"store_first_inconsist", Bar::kRatioAtMost, 1.5},
    {"store_miss_4k", Bar::kRatioAtMost, 1.4},
    {"read_seq", Bar::kRatioAtLeast, 0.65},
    {"flush_sparse", Bar::kRatioAtMost, 1.2},
    {"flush_dense", Bar::kRatioAtLeast, 0.7},
    {"flush_striped", Bar::kRatioAtMost, 1},
    {"wmb_empty", Bar::kValueAtMost, 100},
    {"rmb", Bar::kValueAtMost, 100},
    {"publish_1", Bar::kRatioAtMost, 1.4},
    {"publish_shared_1", Bar::kRatioAtMost, 1.6},
    {"publish_shared_2", Bar::kRatioAtMost, 1.6},
    {"publish_shared_3", Bar::kRatioAtMost, 1.6},
    {"wakeup", Bar::kRatioAtMost, 1.6},
    {"cas", Bar::kRatioAtMost, 1.2},
    {"home_store", Bar::kValueAtMost, 1000},
    {"home_store_none", Bar::kRatioAtMost, 1.05},
};
}  // namespace

const Bar* bar_of(const std::string& row) {
  for (const Bar& b : kBars) {
    if (row == b.row) return &b;
  }
  return nullptr;
}

static bool meets(const Bar& bar, double value, double ratio) {
  switch (bar.kind) {
    case Bar::kRatioAtMost:
      return ratio <= bar.bound;
    case Bar::kRatioAtLeast:
      return ratio >= bar.bound;
    case Bar::kValueAtMost:
      return value <= bar.bound;
  }
  return false;
}

Figures::Figures(double median, double raw, double floor_median)
    : value(median),
      ratio(raw > 0 ? median / raw : 0),
      floor(floor_median),
      floor_ratio(raw > 0 ? floor_median / raw : 0),
      of_floor(floor_median > 0 ? median / floor_median : 0) {}

Verdict judge(const Bar& bar, const Figures& f) {
  if (meets(bar, f.value, f.ratio)) return Verdict::kMet;
  // So that a regression is seen where the bar itself says nothing.
  constexpr double kNearFloor = 1.25;
  if (f.floor > 0 && !meets(bar, f.floor, f.floor_ratio) && f.of_floor <= kNearFloor) {
    return Verdict::kImpossible;
  }
  return Verdict::kMissed;
}

std::string marked(const Bar& bar, Verdict verdict) {
  switch (verdict) {
    case Verdict::kMet:
      return "";
    case Verdict::kImpossible:
      return fmt::format("{:.4g} IMPOSSIBLE HERE; ", bar.bound);
    case Verdict::kMissed:
      return fmt::format("MISSES {:.4g}; ", bar.bound);
  }
  return "";
}

}  // namespace bench

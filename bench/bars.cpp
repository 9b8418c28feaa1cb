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
    {"load_miss_16G", Bar::kRatioAtMost, 1.1, "load_miss_4k"},
    {"store_first_sparse", Bar::kRatioAtMost, 2, "store_miss_4k"},
    {"hot_store_1M", Bar::kRatioAtMost, 1.15},
    {"hot_store_16M", Bar::kRatioAtMost, 1.15},
    {"hot_store_64M", Bar::kRatioAtMost, 1.15},
    {"hot_store_1M_consist", Bar::kRatioAtMost, 1.15},
    {"hot_store_16M_consist", Bar::kRatioAtMost, 1.15},
    {"hot_store_64M_consist", Bar::kRatioAtMost, 1.15},
    {"hot_store_16M_read", Bar::kRatioAtMost, 3},
    {"publish_hot_1", Bar::kRatioAtMost, 1.15},
    {"read_seq", Bar::kRatioAtLeast, 0.65},
    {"write_seq", Bar::kRatioAtLeast, 0.3},
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
    // Independent of the size: what differs is noise.
    {"home_wmb_0_1G", Bar::kValueAtMost, 1.5, "home_wmb_0_1M"},
    {"home_wmb_10_1G", Bar::kValueAtMost, 1.5, "home_wmb_10_1M"},
    // Grows as raw does.
    {"threads_2", Bar::kRatioAtLeast, 0.9, "threads_1"},
    {"threads_4", Bar::kRatioAtLeast, 0.9, "threads_1"},
    {"threads_8", Bar::kRatioAtLeast, 0.9, "threads_1"},
    {"home_idle_8G", Bar::kValueAtMost, 2, "idle_cpu_home"},
    // Counted, without a clock.
    {"kv_1", Bar::kValueAtMost, 3},
    {"kv_2", Bar::kValueAtMost, 3},
    {"kv_3", Bar::kValueAtMost, 3},
    {"kv_3_growth", Bar::kValueAtMost, 1.5},
    {"useless_notifications", Bar::kValueAtMost, 1},
    {"scatter_2", Bar::kRatioAtMost, 1.2},
    {"scatter_2_misses", Bar::kRatioAtMost, 1.2},
    {"scatter_4", Bar::kRatioAtMost, 1.2},
    {"scatter_4_misses", Bar::kRatioAtMost, 1.2},
    {"crowd_4_messages", Bar::kValueAtMost, 8},
    {"crowd_16_messages", Bar::kValueAtMost, 8},
    {"crowd_32_messages", Bar::kValueAtMost, 8},
    {"crowd_64_messages", Bar::kValueAtMost, 8},
    {"crowd_64", Bar::kValueAtMost, 5, "crowd_16"},
    {"crowd_4_slowest_at_once", Bar::kValueAtMost, 3},
    {"crowd_16_slowest_at_once", Bar::kValueAtMost, 3},
    {"crowd_32_slowest_at_once", Bar::kValueAtMost, 3},
    {"crowd_64_slowest_at_once", Bar::kValueAtMost, 3},
    // Mapped pages.
    {"local_load_first", Bar::kRatioAtMost, 1.2},
    {"local_store_first", Bar::kRatioAtMost, 1.2},
    {"local_hit", Bar::kRatioAtMost, 1.05},
    {"local_cas", Bar::kValueAtMost, 1},
    {"local_wmb_empty", Bar::kValueAtMost, 100},
    {"local_publish", Bar::kValueAtMost, 1},
    {"local_wakeup", Bar::kRatioAtMost, 1.5},
    {"local_copy", Bar::kRatioAtLeast, 0.9},
    {"local_import", Bar::kValueAtMost, 2},
    {"local_kv_3", Bar::kValueAtMost, 5},
    {"local_wordcount", Bar::kRatioAtMost, 1.2},
};
}  // namespace

const Bar* bar_of(const std::string& row) {
  for (const Bar& b : kBars) {
    if (row == b.row) return &b;
  }
  return nullptr;
}

std::string bound_of(const Bar& bar) {
  return fmt::format("{:.4g}{}{}", bar.bound, bar.of != nullptr ? " of " : "",
                     bar.of != nullptr ? bar.of : "");
}

static bool meets(const Bar& bar, double value, double ratio, const Figures* of) {
  if (bar.of != nullptr && of == nullptr) return false;
  switch (bar.kind) {
    case Bar::kRatioAtMost:
      return ratio <= bar.bound * (of != nullptr ? of->ratio : 1);
    case Bar::kRatioAtLeast:
      return ratio >= bar.bound * (of != nullptr ? of->ratio : 1);
    case Bar::kValueAtMost:
      return value <= bar.bound * (of != nullptr ? of->value : 1);
  }
  return false;
}

Figures::Figures(double median, double raw_median, double floor_median)
    : value(median),
      raw(raw_median),
      ratio(raw > 0 ? median / raw : 0),
      floor(floor_median),
      floor_ratio(raw > 0 ? floor_median / raw : 0),
      of_floor(floor_median > 0 ? median / floor_median : 0) {}

Verdict judge(const Bar& bar, const Figures& f, const Figures* of) {
  if (meets(bar, f.value, f.ratio, of)) return Verdict::kMet;
  // So that a regression is seen where the bar itself says nothing.
  constexpr double kNearFloor = 1.25;
  const double beyond = bar.kind == Bar::kRatioAtLeast ? 1 / f.of_floor : f.of_floor;
  if (f.floor > 0 && !meets(bar, f.floor, f.floor_ratio, of) && beyond <= kNearFloor) {
    return Verdict::kImpossible;
  }
  return Verdict::kMissed;
}

std::string marked(const Bar& bar, Verdict verdict) {
  switch (verdict) {
    case Verdict::kMet:
      return "";
    case Verdict::kImpossible:
      return bound_of(bar) + " IMPOSSIBLE HERE; ";
    case Verdict::kMissed:
      return "MISSES " + bound_of(bar) + "; ";
  }
  return "";
}

}  // namespace bench

// The bars that the rows are held to, and whether figures meet them.
#pragma once

#include <string>

namespace bench {

struct Bar {
  enum Kind { kRatioAtMost, kRatioAtLeast, kValueAtMost };
  const char* row;
  Kind kind;
  double bound;
  const char* of = nullptr;  // the bound is so many times this other row's figure
};
// "1.25", or "0.9 of threads_1".
std::string bound_of(const Bar& bar);
// Null for a row without one.
const Bar* bar_of(const std::string& row);

// What a row is judged by; 0 where there is no raw, or no floor.
struct Figures {
  double value, raw, ratio;
  double floor, floor_ratio;  // the floor's own, and its ratio to raw
  double of_floor;            // value to floor
  Figures(double median, double raw_median, double floor_median);
};

enum class Verdict {  // the better first
  kMet,
  kImpossible,  // the floor misses the bar as well, and the row is not far above it
  kMissed,
};
// `of`: the figures of the row that the bar names, if it does; null: they are missing.
Verdict judge(const Bar& bar, const Figures& figures, const Figures* of);
// "MISSES 1.2; " and the like, empty for kMet.
std::string marked(const Bar& bar, Verdict verdict);

}  // namespace bench

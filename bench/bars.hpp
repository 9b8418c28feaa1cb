// The bars that the rows are held to, and whether figures meet them.
#pragma once

#include <string>

namespace bench {

struct Bar {
  enum Kind { kRatioAtMost, kRatioAtLeast, kValueAtMost };
  const char* row;
  Kind kind;
  double bound;
};
// Null for a row without one.
const Bar* bar_of(const std::string& row);

// What a row is judged by; 0 where there is no raw, or no floor.
struct Figures {
  double value, ratio;
  double floor, floor_ratio;  // the floor's own, and its ratio to raw
  double of_floor;            // value to floor
  Figures(double median, double raw, double floor_median);
};

enum class Verdict {
  kMet,
  kImpossible,  // the floor misses the bar as well, and the row is not far above it
  kMissed,
};
Verdict judge(const Bar& bar, const Figures& figures);
// "MISSES 1.2; " and the like, empty for kMet.
std::string marked(const Bar& bar, Verdict verdict);

}  // namespace bench

// The bars that the rows are held to: what `--check` compares medians with.
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
// Whether a row with this median, and this ratio to raw (0 for none), meets its bar.
bool meets(const Bar& bar, double value, double ratio);

}  // namespace bench

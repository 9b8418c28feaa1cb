// The verdict of `--check`: rows by the medians of several runs. In the supervisor.
//
// A run is made of several sittings, each with processes and connections of its own, and its
// figures are the medians of theirs: for as long as a connection lives it may be a third faster or
// slower than another one, raw libfabric's as well as the library's.
#pragma once

#include <string>
#include <vector>

#include "bars.hpp"
#include "control.hpp"

namespace bench {

// Takes what a run left in Control.
std::vector<Outcome> outcomes_of(const Control& control);

inline constexpr size_t kRuns = 3, kSittings = 3;  // of each run

// The medians of all runs, one line for each name. Fails when it cannot be written.
void write_json(const std::string& path, const std::vector<std::vector<Outcome>>& sittings);

// Prints one line for each row with a bar. The worst verdict; kMissed as well where a row was not
// measured in each run.
Verdict check(const std::vector<std::vector<Outcome>>& sittings);

}  // namespace bench

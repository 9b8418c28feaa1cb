// The verdict of `--check`: rows by the medians of several runs. In the supervisor.
#pragma once

#include <string>
#include <vector>

#include "control.hpp"

namespace bench {

// Takes what a run left in Control.
std::vector<Outcome> outcomes_of(const Control& control);

// The medians of all runs, one line for each name. Fails when it cannot be written.
void write_json(const std::string& path, const std::vector<std::vector<Outcome>>& runs);

// Prints one line for each row with a bar. False: one misses its bar, or was not measured in each
// run.
bool check(const std::vector<std::vector<Outcome>>& runs);

}  // namespace bench

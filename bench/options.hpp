// The command line of the benchmark. In the supervisor, before it starts the processes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cases.hpp"

namespace bench {

struct Options {
  bool quick = false, check = false;
  std::string json;               // file; empty: none
  std::vector<std::string> only;  // of cases or rows; empty: all
  int seconds = 0;                // for the whole run
  bool longest = false;           // as Bench has it; of the first sitting
  bool mapped = false;            // a sitting of the cases that are
};

// The status to end with where there is nothing to measure: after --help and --list, and 2 where
// the command line is wrong.
std::optional<int> parse(int argc, char** argv, Options* options);

// Whether a run with these options includes the case.
bool wanted(const Options& options, const Case& c);

}  // namespace bench

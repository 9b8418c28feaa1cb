// The command line of random_check.
#pragma once

#include <cstdint>
#include <string>

#include "checker/program.hpp"

namespace cmi::checker {

// What the library works with, in all nodes of a seed.
enum class Kernel : uint8_t {
  kBySeed,     // the next four in turn, the first most often
  kThis,       // faults in signals, all that this kernel has
  kOld,        // without what came after Linux 6.1
  kThread,     // faults in a thread of the library, where the process may
  kOldThread,  // the same without what came after Linux 6.6, the oldest that it can be had on
};

struct Options {
  Shape shape;            // seed: the only one, or the first
  bool one_seed = false;  // play this seed over and over
  int64_t seconds = 20;
  int delays = -1;  // 1: in every program, 0: in none, -1: in every other one
  Kernel kernel = Kernel::kBySeed;
  bool large_pages = false;  // segments of large pages
  std::string mutation;      // what is broken in the library, by name
  bool expect_violation = false;
  std::string dump;  // file for the history that was illegal
  bool verbose = false;
  bool list_mutations = false;
};

// False when it is not understood; then it has said so.
bool parse(int argc, char** argv, Options* options);
// The command that plays this program again.
std::string replay(const Options& options, uint64_t seed);

}  // namespace cmi::checker

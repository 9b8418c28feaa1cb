// Whole runs of programs in processes of their own, bounded in time.
#pragma once

#include <string>

namespace bench {

struct Script {
  int status = 0;      // -1: it was ended by a signal
  std::string output;  // of both kinds
};

// A command of the shell. What it starts may run on every processor.
Script run_script(const std::string& command);

}  // namespace bench

// The processes that do what the measuring one says: the home, with the thread that serves raw
// libfabric beside it, and the other importers.
#pragma once

#include <functional>
#include <string>

#include "control.hpp"

namespace bench {

// Memory of either side for raw libfabric: private, touched, word 0 of each page stamped.
struct PlainMemory {
  explicit PlainMemory(size_t size);
  ~PlainMemory();
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;
  std::byte* const at;
  const size_t size;
};

// Executes commands until Command::kQuit; what one fails with is its answer.
void command_loop(Control& control, int role, const std::function<void(Mailbox&)>& execute);

// Runs until Command::kQuit; what a command fails with is its answer.
void run_home(Control& control, const std::string& provider, size_t raw_size);
// shares_cpu: then its spinning yields, or it would keep off those that it waits for.
void run_other(Control& control, int role, const std::string& provider, bool shares_cpu);

}  // namespace bench

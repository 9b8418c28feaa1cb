// What the home shows: progress while all nodes work, and a table of what each has done.
#pragma once

#include <functional>
#include <vector>

#include "failure.hpp"
#include "table.hpp"

namespace wordcount {

// One line a second on standard error, rewritten in place on a terminal.
class Progress {
 public:
  explicit Progress(uint64_t input_bytes);
  // Calls `statistics` only when a line is due.
  void show(const std::function<std::vector<NodeStatistics>()>& statistics);
  void end();

 private:
  uint64_t input_bytes_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_ + std::chrono::seconds(1);
};

void print_statistics(const std::vector<NodeStatistics>& nodes);

}  // namespace wordcount

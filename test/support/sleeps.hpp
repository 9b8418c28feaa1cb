// Whether a thread of this process sleeps: what a test waits for that wants to wake it.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace cmi::test {

inline bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_ends = stat.rfind(')');  // then a blank and the state
  return name_ends != std::string::npos && stat.compare(name_ends, 3, ") S") == 0;
}

}  // namespace cmi::test

// Plays a random program's part of one process, in a process of nodes.hpp.
#pragma once

#include <array>
#include <cstdint>

#include "checker/program.hpp"
#include "system/nodes.hpp"

namespace cmi::checker {

// Told to each process; copied as bytes.
struct Part {
  Shape shape;
  uint32_t process = 0;
  uint32_t mortal = 0;  // 1: somebody may die, and threads go on without what that takes away
  uint32_t gone = 0;    // a bit for each segment that is not read at the end
  std::array<uint64_t, kMaxSegments> views{};  // where the segments lie in the process
  std::array<char, 200> record{};              // path
};

// Runs the process's threads, all processes' at once, until their ends or for at most a few
// seconds.
test::Pending<void> start_playing(test::Process& process, const Part& part);
// What a process does when all threads of all nodes have ended: a barrier, which must succeed.
bool settle(test::Process& process, const Part& part);
// Loads every cell into the record of the process's last thread. All must have settled.
void read_all(test::Process& process, const Part& part);

}  // namespace cmi::checker

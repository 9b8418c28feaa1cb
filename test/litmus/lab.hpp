// Litmus tests on processes: each node of a program is one, with the shared library as it is used.
//
//   Lab lab({3, {2}});                            // three nodes, one segment whose home is node 2
//   const Program mp = program(...);
//   CHECK(lab.run(mp, 500).count([](const Outcome& o) { return o[0] == 1 && o[1] == 0; }) == 0);
//
// Rounds and threads are kept together through a page of shared memory, not by the library under
// test. Compiled with CMI_TEST_SIMULATED, Lab is the one of sim/lab.hpp: the same tests over nodes
// of one process, whose interleavings a seed chooses.
#pragma once

#ifdef CMI_TEST_SIMULATED
#include "sim/lab.hpp"
#else

#include <cstdint>
#include <string>
#include <vector>

#include "litmus/play.hpp"
#include "litmus/program.hpp"
#include "system/calls.hpp"

namespace cmi::test {

// In the child: returns when so many threads are here; false when one of them never came. For tests
// whose work is not a program of steps.
bool meet_all(uint32_t threads);

class Lab {
 public:
  // faults: CMI_FAULT_POINT for process `at`, or for all of them.
  explicit Lab(const Placement& where, const std::string& faults = "", int at = -1);
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  // Runs the program so often, or until an outcome matches `enough`.
  Histogram run(const Program& program, uint32_t rounds, const Predicate& enough = nullptr);

  Process& process(int i) { return *processes_[static_cast<size_t>(i)]; }
  // Where segment `s` lies in process i.
  uint64_t base(int i, int s = 0) const {
    return bases_[static_cast<size_t>(i)].at[static_cast<size_t>(s)];
  }

 private:
  Cluster cluster_;
  std::vector<Process*> processes_;
  std::vector<Bases> bases_;
  Control* control_ = nullptr;
  uint32_t next_round_ = 0;
};

}  // namespace cmi::test

#endif

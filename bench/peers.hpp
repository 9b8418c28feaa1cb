// The same paths by one-sided MPI over tcp, where an MPI is installed: bench/peers/rma.c, compiled
// and run for each. In a process of its own, before the others are started, so that nothing else
// runs meanwhile and MPI meets neither the library nor libfabric in its process.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

struct Control;

// Plain data: it lies in Control.
struct PeerFigure {
  char row[24], unit[8];  // as the rows of ours
  double low, median, high;
  uint32_t count;
};
struct PeerStack {
  char id[16];         // in names of JSON lines
  char name[64];       // with its version
  char transport[40];  // what it went over
  char skipped[200];   // why there are no figures; empty: there are
  PeerFigure figures[6];
  uint32_t figure_count;
};
inline constexpr int kPeerStacks = 3;

// Fills Control::peers. Each MPI ends within a deadline, with all that it started. cpus: where rank
// 0, which has the memory, and rank 1 run; -1 for any.
void run_peers(Control& control, const std::string& folder, bool quick, int home_cpu, int peer_cpu);

}  // namespace bench

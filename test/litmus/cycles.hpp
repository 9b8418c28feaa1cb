// Generated litmus tests: every critical cycle of up to four threads and six edges over the fences
// that there are, and whether the memory model forbids it, computed from its axioms
// (doc/cmi.cat, doc/design/memory-model.md). Pure; knows nothing of the library.
//
// A cycle goes from access to access: through a thread, from one variable to another (po, with a
// fence or without), and from thread to thread at one variable: a load reads a store (Rfe), a load
// misses a store (Fre), a store is older than another (Coe). The program of a cycle has an outcome
// that says that all of this was so. It is forbidden if no order of the accesses explains it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "litmus/program.hpp"

namespace cmi::test {

// What stands between the two accesses of a thread.
enum class Fence : uint8_t { kNone, kRmb, kWmb, kMb, kFlush };
inline constexpr std::array<Fence, 5> kFences{Fence::kNone, Fence::kRmb, Fence::kWmb, Fence::kMb,
                                              Fence::kFlush};
const char* name_of(Fence fence);

// How a variable is met, from the thread that comes to it to the one that leaves it: a store or a
// load in each.
enum class Meeting : uint8_t { kRfe, kFre, kCoe, kCoeRfe, kFreRfe };
inline constexpr std::array<Meeting, 5> kMeetings{Meeting::kRfe, Meeting::kFre, Meeting::kCoe,
                                                  Meeting::kCoeRfe, Meeting::kFreRfe};
const char* name_of(Meeting meeting);

struct Cycle {
  std::vector<Meeting> meetings;  // of X, Y, ...
  std::vector<Fence> fences;      // behind each of them, in the thread that leaves it
  bool swaps = false;             // the stores are swaps

  std::string name() const;
  Program program() const;
  // Of this program: all of the cycle was so.
  bool seen(const Outcome& outcome) const;
  // By the axioms.
  bool forbidden() const;
};

// Each once: no two are turns of each other.
std::vector<Cycle> all_cycles();

}  // namespace cmi::test

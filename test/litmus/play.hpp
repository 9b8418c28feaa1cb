// Playing a litmus program: where its variables lie, how its threads are kept together, and what
// each step does. Whoever has nodes and threads (lab.hpp, sim/lab.hpp) plays a thread of the
// program in each of them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/clock.hpp"
#include "litmus/program.hpp"

namespace cmi::test {

inline constexpr uint32_t kMaxRounds = 8192;   // of a Lab
inline constexpr uint32_t kRoundsAtOnce = 64;  // between two looks at the outcomes
// Bytes of each segment.
extern const size_t kLabBytes;

// What the threads of a program share. Lies in memory that all of them map.
struct Control {
  std::atomic<uint32_t> arrived, phase;
  std::atomic<bool> over;  // somebody waited in vain: all go home
  std::atomic<uint8_t> posts[kMaxRounds];
  std::atomic<uint8_t> outcomes[kMaxRounds][kRegisters + kVariables];

  void clear(const Program& program, uint32_t round);
  Outcome outcome(uint32_t round) const;
};

// The calls of the library for one thread. Each returns 1 where the call failed, else 0.
class Calls {
 public:
  virtual ~Calls() = default;
  virtual uint64_t open() = 0;   // an epoch
  virtual uint64_t close() = 0;  // the epoch
  virtual uint64_t flush() = 0;  // the epoch
  virtual uint64_t wmb() = 0;
  virtual uint64_t mb() = 0;
  virtual uint64_t rmb() = 0;
  virtual uint64_t cflush(volatile uint64_t* line) = 0;
  virtual uint64_t cas(volatile uint64_t* word, uint64_t expected, uint64_t desired,
                       uint64_t* old) = 0;
};

// Returns when so many threads are here; false when one of them never came.
bool meet_all(Control& control, uint32_t threads);

inline constexpr uint32_t kMostSegments = 3;
// Where the segments of a lab lie at a node. The variables take turns: X is in the first of them.
struct Bases {
  std::array<uint64_t, kMostSegments> at{};
  uint32_t segments = 1;
  uint64_t of(uint32_t variable) const { return at[variable % segments]; }
};

// Plays thread `me` of the program for `count` rounds. The number of calls that failed, and one
// more where somebody waited in vain.
uint64_t play(const Program& program, uint32_t me, const Bases& bases, uint32_t first,
              uint32_t count, Control& control, Calls& calls);

}  // namespace cmi::test

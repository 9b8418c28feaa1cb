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

// Whether a round of a program that has to go as told (Program::as_told) still can. It cannot any
// more when a thread has seen something else, or when each thread has ended or awaits a store that
// has not begun. Lies in memory that all threads map; all zero is a round that has not begun.
class Prospect {
 public:
  void see_other() { lost_.store(true); }
  bool lost() const { return lost_.load(); }
  // Before the store, or the swap.
  void begin_store(uint32_t variable, uint32_t value) { begun_.fetch_or(bit(variable, value)); }
  void await(uint32_t me, uint32_t variable, uint32_t value) {
    awaited_[me].store(bit(variable, value));
  }
  void go_on(uint32_t me) { awaited_[me].store(kRuns); }
  void end(uint32_t me) { awaited_[me].store(kEnded); }
  // A thread asks that awaits something. Threads are looked at before stores: one that is seen to
  // await a store that has not begun by the end awaited it all the time.
  bool stuck(uint32_t threads) const;

 private:
  static constexpr uint32_t kRuns = 0, kEnded = 1;
  static uint32_t bit(uint32_t variable, uint32_t value);

  std::atomic<bool> lost_;
  std::atomic<uint32_t> begun_;
  std::atomic<uint32_t> awaited_[kMaxThreads];  // the bit of a store, kRuns or kEnded
};

// What the threads of a program share. Lies in memory that all of them map.
struct Control {
  std::atomic<uint32_t> arrived, phase;
  std::atomic<bool> over;  // somebody waited in vain: all go home
  std::atomic<uint8_t> posts[kMaxRounds];
  Prospect prospects[kMaxRounds];
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

// What several threads of several processes did to a shared memory, and when: what the checker
// judges. Plain data.
//
// The memory is a line of bytes, all 0 at first, in which cells lie that do not overlap. A store or
// a swap is to one whole cell; a load may take a part of one or several. Every byte of a stored
// value differs from the same byte of each other value of its cell, 0 included, so that any single
// byte that is loaded names its store: a cell takes at most 255 values.
#pragma once

#include <cstdint>
#include <vector>

namespace cmi::checker {

using Time = int64_t;  // one clock for all processes

enum class Kind : uint8_t {
  kLoad,
  kStore,
  kSwap,      // atomic compare and swap of an 8-byte cell
  kBarrier,   // of its process: full, write, flush or close
  kLineFlush  // the same for the line that `at` lies in
};

struct Event {
  Kind kind = Kind::kLoad;
  uint8_t width = 0;     // bytes: 1, 2, 4 or 8; 0 for barriers
  uint32_t at = 0;       // first byte
  uint64_t value = 0;    // loaded or stored; what a swap found
  uint64_t compare = 0;  // a swap stores `desired` if it found this
  uint64_t desired = 0;
  Time begin = 0;  // taken before it began,
  // and after it was over. 0, for a store or a swap: it never was, its thread died in it or does
  // not know what came of it, so that it may have happened or not. A swap's `value` is then
  // unknown, and its thread accesses the cell no more.
  Time end = 0;
};

inline constexpr uint32_t kNoProcess = ~0u;

struct Cell {
  uint32_t at = 0;
  uint8_t width = 0;
  uint32_t home = kNoProcess;  // whose memory it is, where that matters: when it dies
};

struct Thread {
  uint32_t process = 0;
  std::vector<Event> events;   // in program order
  uint32_t node = kNoProcess;  // the process's, where several are on one
};

// A process that was killed: its threads end where they had come to.
struct Death {
  uint32_t process = 0;
  Time lived = 0;  // it lived at this time still
  // From here on those that live have heard of it and taken the pages in flux back; 0: never.
  Time settled = 0;
};

struct History {
  uint32_t line = 4096;     // bytes that a kLineFlush is about
  std::vector<Cell> cells;  // ascending
  std::vector<Thread> threads;
  std::vector<Death> deaths;
};

}  // namespace cmi::checker

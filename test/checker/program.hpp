// A random program for several threads on several nodes, made from a seed and the number of a
// round: the same two give the same program, whoever asks. Pure.
//
// Threads store to cells of 1 to 8 bytes that lie close together on a few pages, most with one
// writer, some with many, some swapped; each value names its store (see history.hpp). They load
// cells, parts of cells and several at once, and use every barrier. Phases of reading, writing and
// swapping take turns, so that the nodes meet in many ways.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checker/history.hpp"

namespace cmi::checker {

inline constexpr uint32_t kPageBytes = 4096;
inline constexpr uint32_t kMaxSegments = 2;
inline constexpr uint32_t kSegmentSpan =
    1 << 20;  // a segment's first byte in a history, times its number

struct Shape {  // 0: the seed decides
  uint64_t seed = 1;
  uint32_t nodes = 0;     // 2 to 4, the same in all rounds of a seed
  uint32_t threads = 0;   // of each node
  uint32_t segments = 0;  // 1 or 2
  uint32_t ops = 0;       // of each thread
  uint32_t round = 0;     // not drawn: 0 is the first
  uint32_t sharing = 0;   // 1: a process on each node; 2: two on some, the same in all rounds
};

enum class OpKind : uint8_t {
  kLoad,
  kSpin,  // loads until the value changes, at most `value` times
  kStore,
  kSwap,  // of what the thread saw last there, to `value`
  kWmb,
  kMb,
  kRmb,
  kOpen,  // a flush epoch; flushed and closed while it is open only
  kFlush,
  kClose,
  kLineFlush,
  kPause  // for `value` rounds of doing nothing
};
const char* op_name(OpKind kind);

struct Op {
  OpKind kind = OpKind::kLoad;
  uint8_t width = 0;
  uint32_t at = 0;
  uint64_t value = 0;
};

struct Program {
  Shape shape;                  // nothing in it is 0 any more
  uint32_t pages = 0;           // of each segment
  std::vector<uint32_t> homes;  // the node of each segment
  // The node of each process: first one of each node, which makes its segments and imports the
  // others, then the second ones, which attach what the first has.
  std::vector<uint32_t> processes;
  std::vector<Cell> cells;
  std::vector<std::vector<Op>> threads;  // thread t runs on node t / shape.threads

  // Every other thread of a node runs in its second process, if it has one.
  uint32_t process_of(uint32_t thread) const;
  size_t segment_bytes() const { return size_t{pages} * kPageBytes; }
};

Program make_program(const Shape& shape);

}  // namespace cmi::checker

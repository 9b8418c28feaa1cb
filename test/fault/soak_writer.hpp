// What a node does in the soak, and its record of that: it stores to anybody's memory, flushes,
// takes its events, and notes on a board, which no process takes along when it dies, what became of
// each store. In the main thread of a process of the test; the layout of the board also in the
// test.
#pragma once

#include "fault/board.hpp"
#include "system/calls.hpp"

namespace cmi::test::soak {

inline constexpr uint32_t kMost = 8;   // nodes
inline constexpr uint32_t kSlots = 4;  // words of one writer in one segment, one on each page

// Where the word of a slot lies. A slot has one writer, which counts up. The words of all writers
// for one slot share a page.
inline uint64_t offset_of(uint32_t writer, uint32_t slot) { return slot * kPage + writer * 8; }

// What the board knows of a word: it is never above what was begun, and never below what was
// flushed or what a flush failed for without an event that names it: of each store that is lost the
// writer was told.
enum Note : uint32_t { kBegun, kFlushed, kUntold, kNotes };
inline size_t note(Note what, uint32_t segment, uint32_t writer, uint32_t slot) {
  return ((segment * kMost + writer) * kSlots + slot) * kNotes + what;
}

// What a writer was told that cannot be right; 0: nothing.
enum Wrong : uint32_t {
  kCause,    // of an exception: another one than those of a cluster whose members die
  kError,    // of a barrier
  kNamed,    // by an event, as lost: a line where it has not stored, or nothing that it has lost
  kUseless,  // an event without a line, though the segment is attached
  kWrongs
};
inline size_t wrong(Wrong what, uint32_t writer) {
  return kMost * kMost * kSlots * kNotes + writer * kWrongs + what;
}
static_assert(kMost * kMost * kSlots * kNotes + kMost * kWrongs <= Board::kWords);

struct Views {
  uint32_t nodes;
  cmi_seg seg[kMost];
  uint64_t at[kMost];  // 0: not attached
  bool mapped;         // the homes' pages, not cached ones
};
struct Work {
  uint64_t rounds = 0, flushes = 0, exceptions = 0, losses = 0, told = 0;
};

// Until called back.
Work write(const Board::Name& name, uint32_t self, uint64_t seed, const Views& views);

}  // namespace cmi::test::soak

// A home that answers wrongly on purpose: it exports a segment that importers can import, over the
// fabric alone, and speaks the control protocol of doc/design/wire.md by hand. It runs in a process
// of the test that has no context; everything it says follows from its seed.
#pragma once

#include <cstdint>

#include "fault/board.hpp"
#include "system/calls.hpp"

namespace cmi::test {

enum class HomeLie : uint32_t {
  kReplies,        // answers of any status, cut short, too long, with keys and sizes of nothing
  kNotifications,  // notifications of any type, about pages outside, segments of others, tokens of
                   // nobody
  kUnasked,  // replies to questions that nobody asked, welcomes again, garbage on the connection
  kSilent,   // now and then no answer at all
  kNoPages,  // grants marks for store misses, and leaves out the pages
  kResumes,  // resumes what it has not quiesced, then quiesces and resumes it
};

struct FalseSegment {
  Flat handle, token;
};

// In the process that lies. Its segments have `size` bytes; each call makes another one.
FalseSegment open_false_home(const Flat& honest, size_t size);

struct FalseReport {
  uint64_t welcomed = 0, requests = 0, lies = 0;
};
// Serves until called back: honestly while board[0] is 0, and lies while it is 1. `honest`: a
// handle of another home's segment, for lies about what is not its own.
FalseReport serve_falsely(HomeLie lie, uint64_t seed, const Board::Name& board, const Flat& honest);

}  // namespace cmi::test

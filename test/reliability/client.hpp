// What a client of a faulty cluster does and notifications: it stores, flushes and loads a word
// over and over, or only waits for events, and notes on a board when it got what. In a process of
// the test.
#pragma once

#include <unistd.h>

#include <string>

#include "fault/board.hpp"
#include "system/calls.hpp"

namespace cmi::reliability {

// Words of the board; times are of the monotonic clock, in nanoseconds, 0: not yet.
enum Note : size_t {
  kRounds,      // that ended without an exception
  kCause,       // of the first exception
  kCauseAt,     // when
  kStoreError,  // of the first flush that failed
  kStoreAt,     // when a flush first said that stores are lost
  kWellAt,      // when a round first succeeded after one that had not
  kEvents,      // how many
  kEventFirst,  // type and time of each
  kEventLast = kEventFirst + 2 * 8,
  kSpans,  // of the rounds that come after, in nanoseconds, as long as there is room
  kWords = 512
};

// A round is a store, a flush and a load, or a swap, which asks the home each time.
enum class Round : int { kStore, kSwap };
// Rounds at `at` until called back, `rest` microseconds apart, and events meanwhile.
void use(const test::Board::Name& board, uint64_t at, Round round, useconds_t rest = 0);
// Events alone.
void wait_for_events(const test::Board::Name& board);

// What was noticed, for the table: "SINVAL, HCTXT_DOWN".
std::string noticed(test::Board& board);
// When an event of that type came; 0: none.
uint64_t event_at(test::Board& board, int type);

}  // namespace cmi::reliability

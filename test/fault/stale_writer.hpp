// An importer whose connection outlives its welcome: it writes one-sided to a home's memory over
// the fabric alone, stops in the middle of the payload, and goes on when it is told to, whatever
// the home has decided meanwhile. In a process of the test that has no context.
#pragma once

#include "fault/board.hpp"
#include "system/calls.hpp"

namespace cmi::test {

inline constexpr size_t kLateBytes = size_t{64} << 20;
inline constexpr uint64_t kLateWord = 0xaaaaaaaaaaaaaaaa;

// Words of the board.
enum LateWord : size_t {
  kEntered,     // it has presented its token and holds the first region
  kMaySend,     // the test: begin to write
  kHasArrived,  // the test: the first of it has arrived; stop
  kPaused,      // it has stopped; nothing moves on its connection
  kCameBack,    // it has a newer session, if that is what it was to get
  kMayGoOn,     // the test: send the rest
};

struct LateOrder {
  Flat handle, token;  // of kLateBytes
  Board::Name board{};
  bool comes_back = false;  // opens a newer session while it is paused
  bool answers = false;     // whatever its home tells it while it is paused, at once
};
struct LateReport {
  bool entered = false, came_back = false;
  bool arrived = false;  // the write ended as if all of it had arrived
  bool cut = false;      // the old connection has been closed by the other side
};

// In the process that writes.
LateReport write_late(const LateOrder& order);

// Words of the board.
enum HoldWord : size_t {
  kKey,      // what its session was given
  kKeyBase,  //
  kHeld,     // both are there
  kMayLetGo,
};
struct HoldOrder {
  Flat handle, token;
  Board::Name board{};
};
// An importer by hand that presents its token, tells the key of its session, and answers whatever
// its home tells it until it may go; it uses the key for nothing. Whether its connection was whole
// all the time.
bool hold_key(const HoldOrder& order);

// An importer by hand that writes the first pages of a segment one-sided, all at once, and
// announces them. The status of the answer, or -1.
int write_and_announce(const Flat& handle, const Flat& token, uint32_t pages);

}  // namespace cmi::test

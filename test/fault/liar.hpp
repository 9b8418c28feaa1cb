// A peer that speaks the control protocol of doc/design/wire.md by hand, over the fabric alone, and
// wrongly on purpose. It runs in a process of the test that has no context; everything it says
// follows from its order, so that a seed can be played again.
#pragma once

#include <cstdint>

#include "fault/board.hpp"
#include "system/calls.hpp"

namespace cmi::test {

enum class Lie : uint32_t {
  kGarbage,    // random bytes, to the listener and to the endpoint that serves it
  kFrames,     // requests in order, with bits flipped, cut short, or made longer
  kRequests,   // frames in order whose fields lie: offsets, counts, lengths, ids, diffs
  kReplays,    // numbers again and again, from the past, from far ahead; what is settled
  kOldLife,    // messages of a session that has been replaced, and hellos of old generations
  kAcks,       // acknowledgements of notifications that others were sent
  kStrangers,  // requests, notifications and acknowledgements with no secret, or another's
  kHellos,     // first contacts of contexts that nobody has heard of
  kImpostor,   // says to be `other`, and on its lifeline that it has ended
  kDeaf,     // imports a page 256 times, announces it again and again, and answers no notification
  kExcuses,  // answers no notification, and announces a page again and again: two are under way
};

struct Order {
  Lie lie{};
  uint32_t count = 0;  // messages
  uint64_t seed = 0;
  Flat readable, readable_token;  // a token to read: nothing may be stored
  Flat writable, writable_token;  // a token with all rights
  Flat closed;                    // a handle without a token: nothing is allowed
  Flat other;                     // a handle of another node, an importer of the same home
  Board::Name board{};            // kExcuses: word 0 counts the answers
};

struct Report {
  uint64_t sent = 0;     // messages that the home's provider took
  uint64_t answers = 0;  // replies of any kind
  uint64_t good = 0;     // those that say that something was done
  uint64_t welcomes = 0;
  bool entered = false;   // had a session, and a token in force
  bool believed = false;  // as an impostor: its lifeline was up
};

// In the process that lies.
Report tell_lies(const Order& order);

}  // namespace cmi::test

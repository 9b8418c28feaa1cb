// Judges a history by the memory model. Knows nothing of the library: neither its code nor its
// protocol, only what is promised.
//
// For each cell, what was seen tells pairs of values of which one must be older:
//   thread     a thread that has stored, loaded or swapped a value later meets it or a newer one;
//   process    so do the other threads of its process, once it has loaded it from elsewhere, and
//              those of the processes on its node, if that is the cell's home: they share the
//              memory itself, while processes that share an import are as processes of different
//              nodes;
//   home       so does everyone who swaps, and who is at home, once another process than the one
//              that stored it has met it, or a swap has: it is at home then;
//   published  so does everyone, once a barrier has returned that the process of the store began
//              after the store, or the swap that stored it has;
//   settled    likewise, once a death is settled, what anyone else met of the dead process's
//   stores; swap       nothing comes between the value that a swap took away and the one it put
//   there.
// A history is legal if in each cell these pairs have no cycle, so that one order of its values
// explains all that was seen, and each byte that was loaded had been stored in its place.
//
// When a process dies
// - what it had published is as published as ever: its barriers that returned count;
// - a barrier that it died in counts for nothing, so what it covered may be missed for ever, or
// seen;
// - a store that it died in may be seen or not; a swap that it died in may have happened or not,
// but
//   if its value was met it took away what it compared with, like any swap;
// - what somebody had met of its unpublished stores has come home and stays there: once the death
// is
//   settled everyone meets it or a newer one, and what nobody can meet by then nobody ever meets.
// In cells whose home has died those that live load what they had cached, for a while: nothing
// there goes back, and what was published while the home lived stays so. A barrier that returned
// later promises nothing there, since what it covered may be lost with the home, and nothing
// settles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checker/history.hpp"

namespace cmi::checker {

enum class Fault : uint8_t {
  kNone,
  kMalformed,    // the history itself breaks the rules of history.hpp: nothing is known
  kNeverStored,  // a byte that nobody stored there
  kMixed,        // bytes of different stores in one cell
  kTooEarly,     // loaded before its store began
  kOrder,        // the pairs of a cell have a cycle
};
const char* fault_name(Fault fault);

struct Verdict {
  Fault fault = Fault::kNone;
  std::string explanation;  // of the fault: the accesses that cannot all be true

  // What the history was made of, so that one can tell whether much was asked.
  uint64_t accesses = 0;    // loads, stores and swaps
  uint64_t crossings = 0;   // a thread met a value of another node that it had not met before
  uint64_t bound = 0;       // loads and swaps that a published store of another process bound
  uint64_t swapped = 0;     // swaps that found what they compared with
  uint64_t unfinished = 0;  // stores and swaps that were never over
  uint64_t outlived = 0;    // values of the dead, not published by them, that others met

  bool legal() const { return fault == Fault::kNone; }
};

Verdict check(const History& history);

}  // namespace cmi::checker

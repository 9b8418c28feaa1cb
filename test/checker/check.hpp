// Judges a history by the memory model. Knows nothing of the library: neither its code nor its
// protocol, only what is promised.
//
// For each cell, what was seen tells pairs of values of which one must be older:
//   thread     a thread that has stored, loaded or swapped a value later meets it or a newer one;
//   process    so do the other threads of its process, once it has loaded it from elsewhere;
//   published  so does everyone, once a barrier has returned that the process of the store began
//              after the store, or the swap that stored it has;
//   swap       nothing comes between the value that a swap took away and the one it put there.
// A history is legal if in each cell these pairs have no cycle, so that one order of its values
// explains all that was seen, and each byte that was loaded had been stored in its place.
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
  uint64_t accesses = 0;   // loads, stores and swaps
  uint64_t crossings = 0;  // a thread met a value of another process that it had not met before
  uint64_t bound = 0;      // loads and swaps that a published store of another process bound
  uint64_t swapped = 0;    // swaps that found what they compared with

  bool legal() const { return fault == Fault::kNone; }
};

Verdict check(const History& history);

}  // namespace cmi::checker

// What a home remembers of one client's requests, so that each number is executed once: which are
// being worked on, and the answers that the client may ask for again.
//
// Invariants:
//  1. No number is both open and answered.
//  2. No number below acked_below() is open or answered.
//  3. A number at or below the highest forgotten one is never executed again, although its answer
//     is gone.
// Pure. The lock of the table that owns it guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "core/base/codec.hpp"

namespace cmi::fabric {

class ReplyCache {
 public:
  enum class Verdict : uint8_t {
    kExecute,    // new: it is open now
    kUnderWay,   // asked again while it is open
    kAnswered,   // asked again: answer() has the answer
    kOver,       // the client has said that it needs no answer
    kForgotten,  // its answer is gone
    kTooMany,    // the client has more requests open than a Link ever sends
  };
  Verdict admit(uint64_t number);
  Bytes answer(uint64_t number) const;  // after kAnswered; valid until the next change

  // Ends an open request. False: it is not open, and its answer must not be kept.
  bool finish(uint64_t number);
  // Keeps the answer of a finished request until the client acknowledges it, or too many came
  // after.
  void keep(uint64_t number, Bytes answer);
  // The client needs no answer to requests below `number`. True: some of them were still open.
  bool acknowledge(uint64_t number);
  uint64_t acked_below() const { return acked_below_; }

  bool none_open() const { return open_.empty(); }
  size_t open() const { return open_.size(); }
  void clear();  // forgets all but acked_below()

 private:
  void drop_oldest();

  uint64_t acked_below_ = 0;
  uint64_t forgotten_to_ = 0;
  std::vector<uint64_t> open_;                          // few: a linear search is the fastest
  std::map<uint64_t, std::vector<std::byte>> answers_;  // by number
  std::deque<uint64_t> answered_;  // numbers in the order of their answers; some may be gone
  std::deque<uint64_t> large_;     // the numbers of the latest large answers
};

}  // namespace cmi::fabric

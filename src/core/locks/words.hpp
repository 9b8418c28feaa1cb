// What lies in a lock's words, and what a lock needs of the memory that the words lie in. A lock is
// nothing but words of 8 bytes that are changed by swaps alone, so that a process which dies leaves
// each of them old or new, and the page they lie in is never in flux for a lock's sake.
//
// A word, from its highest bit on: 8 bits version and kind, 40 bits holder (core/base/holder.hpp)
// or a number, 14 bits count, 1 bit `flag`, 1 bit `held`. A word of all zeros is a fresh one of any
// kind. What a word holds comes from shared memory: it is checked before it is used, and every loop
// has a deadline.
//
// Threads: any. Exceptions of the memory leave by the client's handler, which may jump, so that no
// object with a destructor lives across an access.
#pragma once

#include <cstdint>

#include "core/base/clock.hpp"

namespace cmi::locks {

enum class Outcome : uint8_t {
  kDone,
  kOwnerDead,  // done, and an owner was gone; where it says so, not done
  kTimedOut,
  kFailed,    // a swap or a question has failed; the thread's error says why
  kBad,       // the words hold what no lock has left there
  kNotOwner,  // the caller does not hold it, or was declared dead meanwhile
};

enum class Kind : uint8_t {
  kMutex = 1,
  kExclusive,
  kReaders,
  kTail,
  kTurn,
  kPlace,
  kPermits,
  kPermit,
  kParties,
  kParty,
  kLatch,
  kQueue,
  kCell,
  kRegions,
  kRegion,
  kBlock,
  kClient,
};

struct Word {
  static constexpr uint64_t kVersion = 1;
  static constexpr uint32_t kCounts = 1U << 14;  // a count is below this, and wraps
  static constexpr uint64_t kNumbers = uint64_t{1} << 40;

  uint64_t holder = 0;  // or a number
  uint32_t count = 0;
  bool flag = false, held = false;

  uint64_t raw(Kind kind) const {
    return tag(kind) << 56 | (holder % kNumbers) << 16 | uint64_t{count % kCounts} << 2 |
           uint64_t{flag} << 1 | uint64_t{held};
  }
  // False: no word of this kind and version.
  static bool parse(uint64_t raw, Kind kind, Word* word) {
    *word = {};
    if (raw == 0) return true;
    if (raw >> 56 != tag(kind)) return false;
    word->holder = raw >> 16 & (kNumbers - 1);
    word->count = static_cast<uint32_t>(raw >> 2) % kCounts;
    word->flag = (raw & 2) != 0;
    word->held = (raw & 1) != 0;
    return true;
  }
  static uint64_t tag(Kind kind) { return kVersion << 5 | static_cast<uint64_t>(kind); }
  // How far `a` is behind `b`, where both count on and wrap.
  static uint32_t distance(uint32_t a, uint32_t b) { return (b - a) % kCounts; }
};

// The word that a wait is for, and what stood there.
struct Awaited {
  const uint64_t* at = nullptr;  // null: several words, or none
  uint64_t seen = 0;
};
enum class Woken : uint8_t { kOne, kAll };

// The memory of the words. Tests have one of their own.
class Words {
 public:
  // 0: *found is what stood there, which is `desired` now if it was `expected`. Else: the thread's
  // error is set.
  virtual int swap(uint64_t* at, uint64_t expected, uint64_t desired, uint64_t* found) = 0;
  virtual uint64_t load(const uint64_t* at) = 0;
  // Whether a load asks nobody: where it does, a swap costs no more.
  virtual bool at_hand(const uint64_t* /*at*/) { return true; }
  // The caller's name, and whether the one of this name is gone: 1 it is, 0 it is not, -1 not
  // known.
  virtual uint64_t self() = 0;
  virtual int gone(uint64_t holder) = 0;
  virtual Nanos time() = 0;
  // The n-th look of a wait, from 0 on, found nothing. `left`: until its deadline. It may end
  // sooner than by its own length where the word that is awaited was changed and wake() called.
  virtual void pause(uint32_t n, Nanos left, const Awaited& awaited) = 0;
  // The word was changed as others may have awaited it. What a pause takes does not rest on it.
  virtual void wake(const uint64_t* at, Woken who) = 0;

 protected:
  ~Words() = default;
};

// One call's wait: its deadline, and when to ask whether an owner is gone.
class Wait {
 public:
  // Within the first span most owners are done; then a question is one message to the home, and
  // each doubles the time to the next.
  static constexpr Nanos kPatience = 5 * kMilli, kLongest = 500 * kMilli;

  Wait(Words& words, Nanos span) : words_(words), deadline_(words.time() + span) {
    ask_at_ = words.time() + kPatience;
  }
  bool over() { return words_.time() >= deadline_; }
  // False: the deadline has passed.
  bool again(const Awaited& awaited = {}) {
    const Nanos t = words_.time();
    if (t >= deadline_) return false;
    words_.pause(looks_++, deadline_ - t, awaited);
    return true;
  }
  // Whether it is time to ask if those that are waited for are gone: now and then, and once more at
  // the deadline.
  bool due() {
    const Nanos t = words_.time();
    if (t < ask_at_ && t < deadline_) return false;
    pause_ = pause_ * 2 < kLongest ? pause_ * 2 : kLongest;
    ask_at_ = t + pause_;
    return true;
  }
  // A holder that cannot be asked about may be there.
  bool gone(uint64_t holder) { return due() && words_.gone(holder) > 0; }

 private:
  Words& words_;
  Nanos deadline_, ask_at_ = 0, pause_ = kPatience;
  uint32_t looks_ = 0;
};

// Swaps, and says what became of it: kDone, kTimedOut (another value stands there) or kFailed.
inline Outcome replace(Words& words, uint64_t* at, uint64_t expected, uint64_t desired) {
  uint64_t found = 0;
  if (words.swap(at, expected, desired, &found) != 0) return Outcome::kFailed;
  return found == expected ? Outcome::kDone : Outcome::kTimedOut;
}
// The same, where others wait for that.
inline Outcome replace_and_wake(Words& words, uint64_t* at, uint64_t expected, uint64_t desired,
                                Woken who = Woken::kAll) {
  const Outcome done = replace(words, at, expected, desired);
  if (done == Outcome::kDone) words.wake(at, who);
  return done;
}

}  // namespace cmi::locks

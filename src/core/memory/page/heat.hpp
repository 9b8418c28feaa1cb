// How often this process stores to one page, in one byte: whether the page stays writable over its
// write-backs (rule 27), and whether other nodes store to it as well. Pure; the page's lock guards
// it; all zero is a page that was never stored to.
//
// A page becomes hot with the first store after a write-back that found changes: the fault for that
// store is the last one. A hot page is compared with its twin by each barrier and timer, and cools
// when kQuiet comparisons in a row found no change: by then they have cost about as much as the
// fault that they saved.
#pragma once

#include <cstdint>

namespace cmi::memory {

class Heat {
 public:
  static constexpr uint8_t kQuiet = 31;  // comparisons: 0.3 us each where a store fault takes 10

  bool hot() const { return (bits_ & kHot) != 0; }
  // Another node stored to the page while it was dirty here, and it has not been hot since.
  bool contended() const { return (bits_ & kContended) != 0; }

  // A store finds the page clean or on its way home. True: it stays writable from here on.
  bool stored() {
    if ((bits_ & (kHot | kCandidate)) != kCandidate) {
      if (!hot()) bits_ &= static_cast<uint8_t>(~kByTimer);
      return false;
    }
    bits_ = kHot;
    return true;
  }
  // The page is write-protected for a write-back. `changed`: it had stores.
  void written_back(bool changed) {
    const uint8_t kept = hot() ? kContended : kContended | kByTimer;
    bits_ = static_cast<uint8_t>((bits_ & kept) | (changed ? kCandidate : 0));
  }
  // It is the timer that writes the page back next.
  void timer_takes() {
    if (!hot()) bits_ |= kByTimer;
  }
  // Another node has stored to the page, which is taken away now. Whether the timer was or would
  // have been too early: there are stores of this process (`dirty`), or it was the timer that
  // published the last ones.
  bool taken_early(bool dirty) const {
    return dirty || (bits_ & (kHot | kCandidate | kByTimer)) == (kCandidate | kByTimer);
  }
  // The timer has found changes in a hot page. False: for the first time since it was sent; the
  // next tick takes it, if no barrier has by then.
  bool is_due() {
    if ((bits_ & kAged) != 0) return true;
    bits_ = static_cast<uint8_t>((bits_ | kAged) & ~kQuietMask);
    return false;
  }
  // A hot page has been compared, and sent if it has changed. True: it is to be written back and
  // protected.
  bool compared(bool changed) {
    if (changed) {
      bits_ &= static_cast<uint8_t>(~(kQuietMask | kAged));
    } else if ((bits_ & kQuietMask) < kQuiet) {
      ++bits_;
    }
    return (bits_ & kQuietMask) == kQuiet;
  }
  // The page is taken out of every view. `dirty`: with stores of this process.
  void taken_away(bool dirty) {
    bits_ = static_cast<uint8_t>(dirty ? kContended : bits_ & kContended);
  }

 private:
  static constexpr uint8_t kHot = 0x80, kContended = 0x20, kQuietMask = 0x1f;
  static constexpr uint8_t kCandidate = 0x40, kAged = 0x40;  // not hot; hot
  static constexpr uint8_t kByTimer = 0x01;                  // not hot: no comparisons are counted
  uint8_t bits_ = 0;
};

}  // namespace cmi::memory

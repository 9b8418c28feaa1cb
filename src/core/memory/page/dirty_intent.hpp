// What an importer knows of the dirty intent of one page in its home's map of pages in flux (rule
// 21), in one byte: whether it is set there, whether it is being asked for, and under which epoch.
// A invalidation round tells the epoch that it clears, so that one that is overtaken by the next
// mark of the same page does nothing. Pure; the page's lock guards it; all zero is a page never
// marked.
#pragma once

#include <cstdint>

namespace cmi::memory {

class IntentState {
 public:
  // Set at the home: the page may be stored to.
  bool held() const { return (bits_ & (kHeld | kAsked)) == kHeld; }
  bool asked() const { return (bits_ & kAsked) != 0; }  // some thread waits for the home's answer
  uint8_t epoch() const { return bits_ & kEpoch; }      // of the last one asked for; 0: none ever

  // Another epoch than that of the write-back that may still be out, of which there is one at most,
  // and than `late`, which a message of an earlier request may still name (LateIntents); 0: none.
  uint8_t ask(uint8_t late = 0) {
    int next = epoch() % kEpoch + 1;
    if (next == late) next = next % kEpoch + 1;
    bits_ = static_cast<uint8_t>(kAsked | next);
    return epoch();
  }
  // Refused, or without an answer: the next one is asked for under the same epoch, which nothing
  // that clears it has ever named. So however often that happens, no epoch comes back while it is
  // out.
  // False: it is not held, also where it was granted and has been dropped meanwhile.
  bool answered(bool granted) {
    const bool dropped = (bits_ & kHeld) != 0;
    bits_ = static_cast<uint8_t>(granted ? (dropped ? 0 : kHeld) | epoch() : epoch() - 1);
    return held();
  }
  // Asked for, and not to be used whatever the answer is, or without one: the epoch under which the
  // home may have it, to be cleared there. The next one has another.
  uint8_t give_back() { return bits_ = epoch(); }
  // It goes with a write-back, or to be cleared. 0: it is not held.
  uint8_t take() {
    const uint8_t taken = held() ? epoch() : 0;
    if (taken != 0) bits_ &= static_cast<uint8_t>(~kHeld);
    return taken;
  }
  // The page is taken out of use, with its dirty intent at the home: one that is being asked for
  // will not be held either, since the home may have set it before it took them all away.
  uint8_t drop() {
    if (asked()) bits_ |= kHeld;
    return take();
  }

 private:
  static constexpr uint8_t kHeld = 0x80, kAsked = 0x40, kEpoch = 0x3f;
  uint8_t bits_ = 0;
};

}  // namespace cmi::memory

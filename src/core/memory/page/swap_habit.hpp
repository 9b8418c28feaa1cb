// What this process does with a page after it has swapped a word there, in one byte: whether the
// next swap asks for the page, and for its dirty intent, along with the answer (rule 12). Pure; the
// page's lock guards it; all zero is a page of which nothing is known.
//
// A swap that leaves the page away, or without its intent, and is followed by a miss of the page,
// or by a request for the intent, teaches to ask. One that is followed by the next swap instead
// teaches not to: so words that are only counted up bring no pages.
#pragma once

#include <cstdint>

namespace cmi::memory {

class SwapHabit {
 public:
  bool wants_page() const { return (bits_ & kWantsPage) != 0; }
  bool wants_intent() const { return (bits_ & kWantsIntent) != 0; }

  // A swap is over. Whether an access has to fetch the page, and whether a store has to ask for
  // its intent.
  void swapped(bool lacks_page, bool lacks_intent) {
    if ((bits_ & kLacksPage) != 0) bits_ &= static_cast<uint8_t>(~kWantsPage);
    bits_ &= static_cast<uint8_t>(~(kLacksPage | kLacksIntent));
    if (lacks_page) bits_ |= kLacksPage;
    if (lacks_intent) bits_ |= kLacksIntent;
  }
  // An access has missed the page.
  void missed() {
    if ((bits_ & kLacksPage) != 0) bits_ |= kWantsPage;
    bits_ &= static_cast<uint8_t>(~kLacksPage);
  }
  // A store asks for the intent.
  void asked_intent() {
    if ((bits_ & kLacksIntent) != 0) bits_ |= kWantsIntent;
    bits_ &= static_cast<uint8_t>(~kLacksIntent);
  }
  // Where it would be brought, it is not, to find out whether it would be missed.
  void try_without() { bits_ &= static_cast<uint8_t>(~kWantsPage); }

  // A swap has brought the intent. True: the page is to be entered into the list of those whose
  // intent may be unused (UnusedIntents).
  bool brought_intent() {
    const bool listed = (bits_ & kListed) != 0;
    bits_ |= kUnused | kLately | kListed;
    return !listed;
  }
  bool unused() const { return (bits_ & kUnused) != 0; }
  void used() { bits_ &= static_cast<uint8_t>(~(kUnused | kLately)); }
  // The page's turn in that list has come: it goes out of it, is entered again, or goes out and the
  // intent is given back. `idle`: no store is on its way.
  enum class Due : uint8_t { kForget, kKeep, kGiveBack };
  Due due(bool idle) {
    if (!unused()) {
      bits_ &= static_cast<uint8_t>(~kListed);
      return Due::kForget;
    }
    const bool keep = !idle || (bits_ & kLately) != 0;
    const int gone = keep ? kLately : kUnused | kListed | kWantsIntent;
    bits_ &= static_cast<uint8_t>(~gone);
    return keep ? Due::kKeep : Due::kGiveBack;
  }

 private:
  static constexpr uint8_t kLacksPage = 1, kLacksIntent = 2, kWantsPage = 4, kWantsIntent = 8;
  // Of an intent that a swap has brought: no store has used it; it came since the page's last turn.
  static constexpr uint8_t kUnused = 16, kLately = 32, kListed = 64;
  uint8_t bits_ = 0;
};

}  // namespace cmi::memory

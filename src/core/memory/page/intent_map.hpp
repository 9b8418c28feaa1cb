// The dirty intents of one sharer of a segment, at its home (rule 21): pages, each with the epoch
// under which its intent was set last. Kept by groups of neighbouring pages, so that a page takes
// some 2.5 bytes where many are dirty, and at most 80. Pure; the owner's lock guards it.
#pragma once

#include <array>
#include <cstdint>
#include <map>

namespace cmi::memory {

class IntentMap {
 public:
  // 0: none.
  uint8_t epoch(uint32_t page) const;
  // Returns the epoch that it had, 0: none. `epoch`: 0: none from now on.
  uint8_t set(uint32_t page, uint8_t epoch);
  // Takes away the intent, if it is of this epoch. False: it is not.
  bool drop_intent(uint32_t page, uint8_t epoch);
  // Takes away those of this page and of all behind it.
  void cut(uint32_t first);
  void clear() { groups_.clear(); }
  bool empty() const { return groups_.empty(); }
  // visit(page, epoch) of each, in ascending order.
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [group, epochs] : groups_) {
      for (uint32_t i = 0; i < kGroup; ++i) {
        if (epochs[i] != 0) visit(group * kGroup + i, epochs[i]);
      }
    }
  }

 private:
  static constexpr uint32_t kGroup = 32;  // pages
  using Epochs = std::array<uint8_t, kGroup>;
  std::map<uint32_t, Epochs> groups_;  // no group has none
};

}  // namespace cmi::memory

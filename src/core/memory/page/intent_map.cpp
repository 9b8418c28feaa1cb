#include "core/memory/page/intent_map.hpp"

#include <algorithm>
#include <utility>

namespace cmi::memory {

uint8_t IntentMap::epoch(uint32_t page) const {
  const auto it = groups_.find(page / kGroup);
  return it == groups_.end() ? uint8_t{0} : it->second[page % kGroup];
}

uint8_t IntentMap::set(uint32_t page, uint8_t epoch) {
  if (epoch != 0) return std::exchange(groups_[page / kGroup][page % kGroup], epoch);
  const auto it = groups_.find(page / kGroup);
  if (it == groups_.end()) return 0;
  const uint8_t before = std::exchange(it->second[page % kGroup], uint8_t{0});
  if (it->second == Epochs{}) groups_.erase(it);
  return before;
}

bool IntentMap::drop_intent(uint32_t page, uint8_t epoch) {
  if (epoch == 0 || this->epoch(page) != epoch) return false;
  (void)set(page, 0);
  return true;
}

void IntentMap::cut(uint32_t first) {
  const uint32_t whole = first / kGroup + (first % kGroup != 0 ? 1 : 0);
  groups_.erase(groups_.lower_bound(whole), groups_.end());
  const auto it = groups_.find(first / kGroup);
  if (it == groups_.end()) return;
  std::fill(it->second.begin() + first % kGroup, it->second.end(), uint8_t{0});
  if (it->second == Epochs{}) groups_.erase(it);
}

}  // namespace cmi::memory

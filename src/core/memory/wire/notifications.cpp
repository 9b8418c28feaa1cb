// See notifications.hpp.
#include "core/memory/wire/notifications.hpp"

namespace cmi::memory {

bool InvalidateNotification::check() const {
  if (count > kMaxRanges || body.size() < size_t{count} * PageRangeList::kItem) return false;
  PageUpdates updates(*this);
  for (Update u; updates.next(&u);) {
  }
  return updates.end();
}

}  // namespace cmi::memory

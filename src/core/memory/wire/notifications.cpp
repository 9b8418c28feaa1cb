// See notifications.hpp.
#include "core/memory/wire/notifications.hpp"

namespace cmi::memory {

bool InvalidateNotification::check() const {
  if (count > kMaxRanges || body.size() < size_t{count} * PageRangeList::kItem) return false;
  Reader in = updates();
  while (in.ok() && in.left() > 0) (void)take_update(in);
  return in.ok();
}

}  // namespace cmi::memory

// See context_down.hpp.
#include "events/context_down.hpp"

#include <algorithm>

#include "events/sorted.hpp"

namespace cmi::events {

ContextDown::ContextDown(cmi_event_type t, const access::NaddrInfo& who,
                         std::vector<int32_t> segments)
    : Event(t), who_(who), segments_(std::move(segments)) {
  sort_unique(&segments_);
}

bool ContextDown::absorb(Event& newer) {
  if (newer.type != type) return false;
  auto& same = static_cast<ContextDown&>(newer);
  if (same.who_.context != who_.context) return false;
  merge_unique(&segments_, same.segments_);
  return true;
}

bool ContextDown::forget(int32_t segment) {
  std::erase(segments_, segment);
  return segments_.empty();
}

size_t ContextDown::room() const {
  return Block::kAddressRoom + Block::room<cmi_seg>(segments_.size());
}

void ContextDown::fill(cmi_event* out, Block block, std::byte*, uint16_t version) const {
  out->down.einfo_naddr = block.put(who_, version);
  out->down.einfo_nsegs = static_cast<uint32_t>(segments_.size());
  out->down.einfo_segs = block.take<cmi_seg>(segments_.size());
  std::copy(segments_.begin(), segments_.end(), out->down.einfo_segs);
}

}  // namespace cmi::events

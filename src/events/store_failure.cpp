// See store_failure.hpp.
#include "events/store_failure.hpp"

#include "events/sorted.hpp"

namespace cmi::events {

StoreFailure::StoreFailure(int32_t segment, std::vector<uint32_t> pages, bool local)
    : Event(local ? CMI_EVENT_HW : CMI_EVENT_STORE_FAILURE),
      segment_(segment),
      pages_(std::move(pages)) {
  sort_unique(&pages_);
}

bool StoreFailure::absorb(Event& newer) {
  if (newer.type != type) return false;
  auto& same = static_cast<StoreFailure&>(newer);
  if (same.segment_ != segment_) return false;
  merge_unique(&pages_, same.pages_);
  return true;
}

void StoreFailure::fill(cmi_event* out, Block block, std::byte* lowest_view, uint16_t) const {
  out->serr.einfo_seg = segment_;
  out->serr.einfo_naddrs = 0;
  out->serr.einfo_addr = nullptr;
  if (lowest_view == nullptr) return;
  out->serr.einfo_naddrs = static_cast<uint32_t>(pages_.size());
  out->serr.einfo_addr = block.take<void*>(pages_.size());
  for (size_t i = 0; i < pages_.size(); ++i) {
    out->serr.einfo_addr[i] = lowest_view + size_t{pages_[i]} * kPageSize;
  }
}

}  // namespace cmi::events

// CMI_EVENT_STORE_FAILURE, and CMI_EVENT_HW for the same by a fault of this side: stores to these
// pages of a segment did not reach their home. One for each segment. Pure.
#pragma once

#include <vector>

#include "events/event.hpp"

namespace cmi::events {

class StoreFailure final : public Event {
 public:
  StoreFailure(int32_t segment, std::vector<uint32_t> pages, bool local);

  Rank rank() const override { return type == CMI_EVENT_HW ? kHardware : kOther; }
  bool absorb(Event& newer) override;
  bool forget(int32_t segment) override { return segment == segment_; }
  size_t room() const override { return Block::room<void*>(pages_.size()); }
  int32_t view_of() const override { return segment_; }
  void fill(cmi_event* out, Block block, std::byte* lowest_view, uint16_t version) const override;

 private:
  const int32_t segment_;
  std::vector<uint32_t> pages_;  // ascending, each once
};

}  // namespace cmi::events

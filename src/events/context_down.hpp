// CMI_EVENT_RCTXT_DOWN and CMI_EVENT_HCTXT_DOWN: a peer has ended, and these segments are affected.
// One for each peer. Pure.
#pragma once

#include <vector>

#include "events/event.hpp"

namespace cmi::events {

class ContextDown final : public Event {
 public:
  ContextDown(cmi_event_type type, const access::NaddrInfo& who, std::vector<int32_t> segments);

  bool absorb(Event& newer) override;
  bool forget(int32_t segment) override;
  size_t room() const override;
  void fill(cmi_event* out, Block block, std::byte* lowest_view, uint16_t version) const override;

 private:
  const access::NaddrInfo who_;
  std::vector<int32_t> segments_;  // ascending, each once
};

}  // namespace cmi::events

// CMI_EVENT_CMAP: contexts that share a segment with this one and cannot be reached. One for each
// request of the client, and at most one that nobody asked for. Pure.
#pragma once

#include <vector>

#include "events/event.hpp"

namespace cmi::events {

class ConnectivityMap final : public Event {
 public:
  // `request` 0: nobody asked.
  ConnectivityMap(uint64_t request, const std::vector<access::NaddrInfo>& cut_off);

  Rank rank() const override { return kConnectivity; }
  bool absorb(Event& newer) override;
  bool forget(int32_t) override { return false; }
  size_t room() const override;
  void fill(cmi_event* out, Block block, std::byte* lowest_view, uint16_t version) const override;

 private:
  void add(const std::vector<access::NaddrInfo>& peers);

  const uint64_t request_;
  std::vector<access::NaddrInfo> cut_off_;  // each context once
};

}  // namespace cmi::events

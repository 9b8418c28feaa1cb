// See connectivity_map.hpp.
#include "events/connectivity_map.hpp"

#include <algorithm>

namespace cmi::events {

ConnectivityMap::ConnectivityMap(uint64_t request, const std::vector<access::NaddrInfo>& cut_off)
    : Event(CMI_EVENT_CMAP), request_(request) {
  add(cut_off);
}

void ConnectivityMap::add(const std::vector<access::NaddrInfo>& peers) {
  for (auto& peer : peers) {
    if (std::find(cut_off_.begin(), cut_off_.end(), peer) == cut_off_.end()) {
      cut_off_.push_back(peer);
    }
  }
}

bool ConnectivityMap::absorb(Event& newer) {
  if (newer.type != type || request_ != 0) return false;
  auto& same = static_cast<ConnectivityMap&>(newer);
  if (same.request_ != 0) return false;
  add(same.cut_off_);
  return true;
}

size_t ConnectivityMap::room() const {
  return Block::room<cmi_naddr*>(cut_off_.size()) + cut_off_.size() * Block::kAddressRoom;
}

void ConnectivityMap::fill(cmi_event* out, Block block, std::byte*, uint16_t version) const {
  out->cmap.einfo_reqid = request_;
  out->cmap.einfo_nnodes = static_cast<uint32_t>(cut_off_.size());
  out->cmap.einfo_nodes = block.take<cmi_naddr*>(cut_off_.size());
  for (size_t i = 0; i < cut_off_.size(); ++i) {
    out->cmap.einfo_nodes[i] = block.put(cut_off_[i], version);
  }
}

}  // namespace cmi::events

// Addresses as the client sees them.
#include "events/event.hpp"

#include <algorithm>

namespace cmi::events {

cmi_naddr* Block::put(const access::NaddrInfo& address, uint16_t version) {
  std::byte* bytes = take<std::byte>(kAddressRoom);
  // The addresses of contexts that we have met are good; and a zeroed one decodes as none.
  if (!ok(access::encode_naddr(address, {bytes, kAddressRoom}, version))) {
    std::fill(bytes, bytes + kAddressRoom, std::byte{0});
  }
  return reinterpret_cast<cmi_naddr*>(bytes);
}

}  // namespace cmi::events

// See refused.hpp. Observed with libfabric 1.17; doc/providers.md has the details.
#include "fabric/ofi/refused.hpp"

namespace cmi::fabric::ofi {

const char* why_refused(std::string_view provider) {
  const auto names = [&](std::string_view part) {
    return provider.find(part) != std::string_view::npos;
  };
  if (names("shm")) {
    return "a peer that ends crashes the processes that talk to it, one that refuses an operation "
           "stops them for good, and with virtual addresses no key is checked at all";
  }
  if (names("ofi_rxd") || provider == "udp") {
    return "its compare-and-swap loses updates and can crash the target, and an operation with a "
           "key that was revoked never ends";
  }
  return nullptr;
}

}  // namespace cmi::fabric::ofi

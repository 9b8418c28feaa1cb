// See refused.hpp. Observed with libfabric 1.17 and 2.1; doc/providers.md has the details.
#include "fabric/ofi/refused.hpp"

#include <rdma/fabric.h>

namespace cmi::fabric::ofi {

const char* why_refused(std::string_view provider, uint32_t version) {
  const auto names = [&](std::string_view part) {
    return provider.find(part) != std::string_view::npos;
  };
  if (names("shm") && FI_MAJOR(version) >= 2) {
    return "nothing tells of a peer that was killed, an operation that has to be refused never "
           "ends (after 2.6 it is completed as if it had been done), and with virtual addresses "
           "no key is checked at all";
  }
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

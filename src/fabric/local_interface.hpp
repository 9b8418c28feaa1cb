// The ways by which a context reaches others and is reached: each is one provider at one address of
// this machine. A context has one, or several where its user asks for them: then a peer on this
// machine and one on another may each take the best that both have (routes.hpp).
// Threads: one, that of cmi_ini.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.hpp"

namespace cmi::fabric {

inline constexpr size_t kMaxWays = 8;  // as many listeners as a handle has room for

// The provider opened twice: for what we serve, driven by the service thread, and for what we
// start, driven by the threads that wait, so that neither wakes the other.
struct LocalInterface {
  std::unique_ptr<Fabric> serving, linking;
  bool cas = false;  // swaps go by it: a device's, found to be coherent with the CPU's
};

// Takes lists, separated by commas, of providers and of addresses: each provider at each address
// where it can be opened, in the order of the list of providers. Without a provider it is the best
// at each address, and at several addresses devices do not keep TCP from being opened as well. An
// address `auto` is what ofi::reachable_addresses() says. Errors are those of open_fabric(), for a
// provider that opens nowhere and for an address where nothing opens, unless `auto` found it.
// kInval: more than kMaxWays.
Result<std::vector<LocalInterface>> open_ways(const std::string& providers,
                                              const std::string& addresses);

#ifdef CMI_FAULT_POINTS
// Where it is set, open_ways() returns what it returns: the network of a simulation.
inline std::vector<LocalInterface> (*g_simulated_ways)() = nullptr;
#endif

}  // namespace cmi::fabric

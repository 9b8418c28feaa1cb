// For providers with a small limit on one operation: reads and writes of any length up to
// kWholeRma, each made of several operations of the provider. A write that is refused because its
// end is out of bounds may have stored the part that lies within them. Any thread.
#pragma once

#include <memory>

#include "fabric/fabric.hpp"

namespace cmi::fabric {

// Longest read and write that the rest of the library may ask for, so that no deadline has to allow
// for more than this at wire speed.
inline constexpr size_t kWholeRma = size_t{64} << 20;

// The fabric itself where it does not need this.
std::unique_ptr<Fabric> with_whole_operations(std::unique_ptr<Fabric> fabric);

}  // namespace cmi::fabric

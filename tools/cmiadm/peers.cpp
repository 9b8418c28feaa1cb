// See peers.hpp.
#include "peers.hpp"

#include <fmt/format.h>

namespace cmi::adm {

std::string fingerprint(uint32_t token_fingerprint) {
  return fmt::format("{:08x}", token_fingerprint);
}

}  // namespace cmi::adm

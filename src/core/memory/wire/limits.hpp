// Limits of a home that a cluster may meet, and that cmiadm doctor tells.
#pragma once

#include <cstddef>

namespace cmi::memory {

inline constexpr size_t kMaxSharers = 4096;  // imports of one segment

}  // namespace cmi::memory

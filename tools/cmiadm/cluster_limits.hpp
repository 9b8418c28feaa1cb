// How many importers a process can be home of at once, by what the library takes for each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fabric/server.hpp"

namespace cmi::adm {

inline constexpr uint64_t kDescriptorsOfContext = 40;

constexpr uint64_t importers_for_files(uint64_t files) {
  if (files <= kDescriptorsOfContext) return 0;
  return std::min<uint64_t>((files - kDescriptorsOfContext) / fabric::kDescriptorsOfClient,
                            fabric::kMaxClients);
}

constexpr uint64_t files_for_importers(uint64_t importers) {
  return kDescriptorsOfContext + importers * fabric::kDescriptorsOfClient;
}

}  // namespace cmi::adm

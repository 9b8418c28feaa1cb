// What a mutation of the protocol needs beyond a condition. Mutations are switched on by fault
// points whose names begin with mutate_, for the litmus tests alone: doc/design/mutations.md.
#pragma once

#include <cstring>
#include <utility>

#include "core/base/codec.hpp"
#include "core/memory/importer/import.hpp"

namespace cmi::memory {

// Replaces the bytes in packed diffs by what the pages hold now.
inline void read_again(const Import& imp, Bytes diffs) {
  for (Reader in(diffs); in.left() > 0;) {
    const std::byte* page = imp.page_data(in.get<uint32_t>());
    in.get<uint8_t>();  // epoch of its dirty intent
    for (auto runs = in.get<uint16_t>(); runs > 0; --runs) {
      const size_t start = in.get<uint16_t>();
      const Bytes bytes = in.blob();
      std::memcpy(const_cast<std::byte*>(bytes.data()), page + start, bytes.size());
    }
  }
}

}  // namespace cmi::memory

// What a mutation of the home's side needs beyond a condition; see importer/mutation.hpp.
#pragma once

#include <utility>

#include "core/base/ids.hpp"

namespace cmi::memory {

// Leaves the registrations of all that a client imports open: they get another owner.
template <class Segments>
void keep_keys(Segments& segments, const ContextId& client) {
  for (auto& [id, s] : segments) {
    for (auto& h : s.sharers) {
      if (h.client == client) s.tokens[random_u64()] = {{}, std::move(h.session), true};
    }
  }
}

}  // namespace cmi::memory

// The swap of one word at home, for an importer.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

// Makes the swap, under the lock `mu` of the segment (null: there is none). *found: what stood
// there; 0 unless kOk is returned. *publish: it is to be published.
WireStatus make_swap(HomeCore& home, Segment* s, const ContextId& client, const CasRequest& m,
                     uint64_t* found, bool* publish);
// Null: no other importer has the page.
RoundPtr publish_swap(HomeCore& home, Segment& s, const ContextId& client, const CasRequest& m)
    CMI_REQUIRES(home.mu);

}  // namespace cmi::memory

// The swap of one word at home, for an importer.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

// Makes the swap and publishes it. *found: what stood there; 0 unless kOk is returned. *published:
// the round at whose end other importers have dropped the page; null: nothing is to be waited for.
WireStatus swap_word(HomeCore& home, const ContextId& client, const CasRequest& m, uint64_t* found,
                     RoundPtr* published) CMI_REQUIRES(home.mu);

}  // namespace cmi::memory

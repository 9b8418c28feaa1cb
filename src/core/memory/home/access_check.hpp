// Whether an importer may do what it asks for, and the plain answer to a request.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

void reply(fabric::Server& server, const ContextId& client, uint64_t number, WireStatus s,
           Bytes more = {});
// These are called under the segment's lock `mu`.
// Of a segment that cannot be used any more; null: there is none.
WireStatus why_gone(HomeCore& home, const Segment* s);
// Whether this import may do this, `right` being bits of fabric::kRead and so on. kOk sets *sharer.
WireStatus check(HomeCore& home, Segment* s, const ContextId& client, uint32_t instance,
                 uint32_t right, Sharer** sharer);
// The same of a write-through import, and of these bytes of the segment.
WireStatus check_write_through(HomeCore& home, Segment* s, const fabric::ClientInfo& client,
                               uint32_t instance, uint64_t offset, size_t len, uint32_t rights);

// low_of(), before the lock of the rounds is held.
uint64_t low_for(HomeCore& home, const Segment& s, const Sharer& h) CMI_EXCLUDES(home.mu);

}  // namespace cmi::memory

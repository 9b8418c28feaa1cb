// Whether an importer may do what it asks for, and the plain answer to a request.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

void reply(fabric::Server& server, const ContextId& client, uint64_t number, WireStatus s,
           Bytes more = {});
// Of a segment that cannot be used any more; null: there is none.
WireStatus why_gone(HomeCore& home, const Segment* s) CMI_REQUIRES(home.mu);
// Whether this import may do this, `right` being bits of fabric::kRead and so on. kOk sets both.
WireStatus check(HomeCore& home, const ContextId& client, uint64_t uid, uint32_t instance,
                 uint32_t right, Segment** segment, Sharer** sharer) CMI_REQUIRES(home.mu);
// The same of a write-through import, and of these bytes of the segment.
WireStatus check_write_through(HomeCore& home, const fabric::ClientInfo& client, uint64_t uid,
                               uint32_t instance, uint64_t offset, size_t len, uint32_t rights,
                               Segment** segment) CMI_REQUIRES(home.mu);

}  // namespace cmi::memory

// Keys to a segment's memory, and what becomes of that memory while somebody may still use one.
#pragma once

#include <memory>

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

// What the token lets its sharer reach: its part of the segment, up to the break. For the present
// session of `client`; without one for the token itself. Null: there is no memory yet, or the
// client has no session any more. These are called under the segment's lock `mu`, the first without
// HomeCore::mu where that can be: a provider may take long to register memory.
Result<std::unique_ptr<fabric::Region>> register_for(HomeCore& home, Segment& s,
                                                     const access::TokenInfo& token, uint64_t key,
                                                     const ContextId* client = nullptr);
// The client gets a session key: it may have an operation under way when the segment goes.
void note_key(HomeCore& home, Segment& s, const ContextId& client);
// The segment goes: its addresses are quarantined where somebody may still reach them.
// Under both of its locks.
void quarantine_memory(HomeCore& home, Segment& s) CMI_EXCLUDES(home.mu);
// Frees the oldest addresses in quarantine, where there are too many. An honest importer that is
// still there connects anew.
void trim_quarantine(HomeCore& home) CMI_EXCLUDES(home.mu);

}  // namespace cmi::memory

// What mutations (core/base/mutation.hpp) of pages and diffs do beyond a condition. Defined with
// CMI_FAULT_INJECTION only: elsewhere mutated() is false when compiled, and nothing calls these.
#pragma once

#include "core/memory/page/compare.hpp"
#include "core/memory/page/page.hpp"

namespace cmi::memory::mutation {

// Makes all bytes of a block travel where one of them has changed.
void widen(ChangedBits& bits);

// Lets a page that was invalidated while it was fetched pass for one that was not.
void forget_stale(Page& page);

// Whether the page is no more the one that this fetch has claimed.
bool delivered_by_another(const Page& page);

// Lets go of pages' locks while they are written back.
void unlock_meanwhile(Page* pages, uint32_t n);

// Lets the page be fetched anew while its stores are on their way.
void forget_write_back(Page& page);

}  // namespace cmi::memory::mutation

// Copies and swaps between a message and memory that others use at the same time, for write-through
// imports.
#pragma once

#include <cstddef>

namespace cmi::memory {

// What an instruction accesses as one is copied as one: whole for everybody else within a cache
// line.
void copy_shared(std::byte* to, const std::byte* from, size_t n);
// Stores `desired` if `expected` is there; what was there goes to `expected`. False: there is no
// such swap, of this size at this address.
bool swap_shared(std::byte* at, std::byte* expected, const std::byte* desired, size_t size);

}  // namespace cmi::memory

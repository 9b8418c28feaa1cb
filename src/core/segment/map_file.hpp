// Mapping the files of segments into this process, in pages of either size. `page` is that of the
// file's pages, or of what an address has to be a multiple of; lengths and offsets are multiples of
// it. What is mapped is shared and may be read and written.
// Any thread, but not the fault handler: the calls change mappings only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cmi::segment {

// A home segment's file from its beginning: at `addr`, where nothing may be mapped, or anywhere.
// Takes no memory and does not move the file's end. Null: no room there.
std::byte* map_home(int file, void* addr, size_t len, size_t page);

// The same part of the file at its place in such a mapping, over what is there, in one step.
bool map_home_over(int file, std::byte* at, size_t len, uint64_t offset, size_t page);

// A file of pages of the usual size, at a multiple of `page`.
std::byte* map_aligned(int file, void* addr, size_t len, size_t page);

}  // namespace cmi::segment

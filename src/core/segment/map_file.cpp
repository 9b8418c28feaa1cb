// mmap of segment files. Mapping large pages for stores would move the file's end up to that of the
// mapping (Linux 6.18 and before), and with it the break of an extensible segment; and it would
// reserve pages for all of it. So it is mapped for loads, without a reservation, and opened after.
#include "core/segment/map_file.hpp"

#include <sys/mman.h>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"

namespace cmi::segment {

namespace {

constexpr int kBoth = PROT_READ | PROT_WRITE;

// Owns nothing: the caller's mapping. Null: not there, or not at `addr`.
std::byte* map_at(int file, void* addr, size_t len, int access, int flags, uint64_t offset) {
  void* p =
      ::mmap(addr, len, access, MAP_SHARED | flags | (addr != nullptr ? MAP_FIXED_NOREPLACE : 0),
             file, static_cast<off_t>(offset));
  if (p == MAP_FAILED) return nullptr;
  if (addr == nullptr || p == addr) return static_cast<std::byte*>(p);
  ::munmap(p, len);  // a kernel that takes the address for a wish
  return nullptr;
}

std::byte* map_large(int file, void* addr, size_t len, uint64_t offset) {
  std::byte* const at = map_at(file, addr, len, PROT_READ, MAP_NORESERVE, offset);
  if (at == nullptr) return nullptr;
  Mapping map(at, len);
  if (::mprotect(at, len, kBoth) != 0) return nullptr;
  map.release();
  return at;
}

}  // namespace

std::byte* map_home(int file, void* addr, size_t len, size_t page) {
  if (page != kPageSize) return map_large(file, addr, len, 0);
  return map_at(file, addr, len, kBoth, 0, 0);
}

bool map_home_over(int file, std::byte* at, size_t len, uint64_t offset, size_t page) {
  if (page == kPageSize) {
    return ::mmap(at, len, kBoth, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) !=
           MAP_FAILED;
  }
  // Threads that touch it meanwhile must not find it closed to stores: made elsewhere, then moved.
  Mapping fresh(map_large(file, nullptr, len, offset), len);
  if (!fresh || ::mremap(fresh.data(), len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
    return false;
  }
  fresh.release();
  return true;
}

std::byte* map_aligned(int file, void* addr, size_t len, size_t page) {
  if (addr != nullptr || page == kPageSize) return map_at(file, addr, len, kBoth, 0, 0);
  void* room =
      ::mmap(nullptr, len + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(room);
  const size_t before = (page - reinterpret_cast<uintptr_t>(room) % page) % page;
  std::byte* const at = begin + before;
  if (::mmap(at, len, kBoth, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    ::munmap(room, len + page);
    return nullptr;
  }
  if (before != 0) ::munmap(begin, before);
  if (before != page) ::munmap(at + len, page - before);
  return at;
}

}  // namespace cmi::segment

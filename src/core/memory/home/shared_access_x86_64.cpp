// Swaps of the processor, of any alignment within a cache line.
#include <cstdint>
#include <cstring>

#include "core/memory/home/shared_access.hpp"

namespace cmi::memory {

namespace {
template <class T>
struct [[gnu::packed]] OfAnyAlignment {
  T value;
};

template <class T>
bool swap_one(std::byte* at, std::byte* expected, const std::byte* desired) {
  T was, next;
  std::memcpy(&was, expected, sizeof was);
  std::memcpy(&next, desired, sizeof next);
  auto* word = reinterpret_cast<volatile OfAnyAlignment<T>*>(at);
  bool swapped;
  // Not the builtin, which wants it aligned.
  asm volatile("lock cmpxchg %3, %1"
               : "=@ccz"(swapped), "+m"(word->value), "+a"(was)
               : "r"(next)
               : "memory");
  std::memcpy(expected, &was, sizeof was);
  return swapped;
}

void swap_16(std::byte* at, std::byte* expected, const std::byte* desired) {
  uint64_t was[2], next[2];
  std::memcpy(was, expected, sizeof was);
  std::memcpy(next, desired, sizeof next);
  struct Wide {
    uint64_t word[2];
  };
  asm volatile("lock cmpxchg16b %0"
               : "+m"(*reinterpret_cast<volatile Wide*>(at)), "+a"(was[0]), "+d"(was[1])
               : "b"(next[0]), "c"(next[1])
               : "cc", "memory");
  std::memcpy(expected, was, sizeof was);
}
}  // namespace

bool swap_shared(std::byte* at, std::byte* expected, const std::byte* desired, size_t size) {
  constexpr size_t kLine = 64;
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (address % kLine + size > kLine) return false;
  switch (size) {
    case 1:
      swap_one<uint8_t>(at, expected, desired);
      return true;
    case 2:
      swap_one<uint16_t>(at, expected, desired);
      return true;
    case 4:
      swap_one<uint32_t>(at, expected, desired);
      return true;
    case 8:
      swap_one<uint64_t>(at, expected, desired);
      return true;
    case 16:
      if (address % 16 != 0) return false;
      swap_16(at, expected, desired);
      return true;
    default:
      return false;
  }
}

}  // namespace cmi::memory

// Swaps of the processor, which are aligned.
#include <cstdint>
#include <cstring>

#include "core/memory/home/shared_access.hpp"

namespace cmi::memory {

namespace {
template <class T>
void swap_one(std::byte* at, std::byte* expected, const std::byte* desired) {
  T was, next;
  std::memcpy(&was, expected, sizeof was);
  std::memcpy(&next, desired, sizeof next);
  __atomic_compare_exchange_n(reinterpret_cast<T*>(at), &was, next, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  std::memcpy(expected, &was, sizeof was);
}

// A pair that was loaded exclusively is one value only if the store that follows succeeds: so what
// is not expected is stored back. Ordered as __ATOMIC_SEQ_CST is with the exclusive instructions.
void swap_16(std::byte* at, std::byte* expected, const std::byte* desired) {
  uint64_t was[2], next[2], found[2], stored[2];
  uint32_t failed;
  std::memcpy(was, expected, sizeof was);
  std::memcpy(next, desired, sizeof next);
  do {
    asm volatile(
        "ldaxp %[low], %[high], [%[at]]\n\t"
        "cmp %[low], %[was0]\n\t"
        "ccmp %[high], %[was1], #0, eq\n\t"
        "csel %[out0], %[next0], %[low], eq\n\t"
        "csel %[out1], %[next1], %[high], eq\n\t"
        "stlxp %w[failed], %[out0], %[out1], [%[at]]"
        : [low] "=&r"(found[0]), [high] "=&r"(found[1]), [out0] "=&r"(stored[0]),
          [out1] "=&r"(stored[1]), [failed] "=&r"(failed)
        : [at] "r"(at), [was0] "r"(was[0]), [was1] "r"(was[1]), [next0] "r"(next[0]),
          [next1] "r"(next[1])
        : "cc", "memory");
  } while (failed != 0);
  std::memcpy(expected, found, sizeof found);
}
}  // namespace

bool swap_shared(std::byte* at, std::byte* expected, const std::byte* desired, size_t size) {
  if (size == 0 || reinterpret_cast<uintptr_t>(at) % size != 0) return false;
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
      swap_16(at, expected, desired);
      return true;
    default:
      return false;
  }
}

}  // namespace cmi::memory

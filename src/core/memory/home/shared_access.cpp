#include "core/memory/home/shared_access.hpp"

#include <cstdint>
#include <cstring>

namespace cmi::memory {

namespace {
template <class T>
struct [[gnu::packed]] Unaligned {
  T value;
};

template <class T>
void copy_one(std::byte* to, const std::byte* from) {
  // One access: whole for everybody else within a cache line, as an instruction's would be.
  const T v = reinterpret_cast<const volatile Unaligned<T>*>(from)->value;
  reinterpret_cast<volatile Unaligned<T>*>(to)->value = v;
}

}  // namespace

void copy_shared(std::byte* to, const std::byte* from, size_t n) {
  while (n >= 8) {
    copy_one<uint64_t>(to, from);
    to += 8;
    from += 8;
    n -= 8;
  }
  if (n >= 4) {
    copy_one<uint32_t>(to, from);
    to += 4;
    from += 4;
    n -= 4;
  }
  if (n >= 2) {
    copy_one<uint16_t>(to, from);
    to += 2;
    from += 2;
    n -= 2;
  }
  if (n != 0) copy_one<uint8_t>(to, from);
}

}  // namespace cmi::memory

/*
 * cmi/cpp/atomic.hpp: objects that the threads of all nodes change. Part of <cmi/cmi.hpp>.
 */
#ifndef CMI_CPP_ATOMIC_HPP
#define CMI_CPP_ATOMIC_HPP

#include <cmi.h>

#include <cmi/cpp/context.hpp>
#include <cmi/cpp/error.hpp>
#include <cmi/cpp/segment.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <type_traits>

namespace cmi {

/* ---- Atomic objects ------------------------------------------------------------------------- */

/**
 * An object in a segment that the threads of all nodes change by atm_cas(). T has 1, 2, 4 or 8
 * bytes, all of which count (no padding), and lies at a multiple of its size; a smaller one than 8
 * bytes shares its aligned word of 8 with its neighbours, which must be changed in no other way
 * meanwhile. Every change publishes what its thread had stored before, as publish() does, and is
 * seen by all nodes when it returns; a load is made from the cached page, and acquires what was
 * published before the change that it sees. The caller's thread is registered.
 */
template <shareable T>
class atomic_ref {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
                "atm_cas() swaps 8 bytes");
  static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>,
                "all bits are compared");

 public:
  atomic_ref(const context& of, T& object) noexcept : ctxt_(of.get()), object_(&object) {}

  T load() const noexcept {
    T value;
    __atomic_load(object_, &value, __ATOMIC_ACQUIRE);
    return value;
  }
  /** Whether it was `expected`, and is `desired` now; if not, `expected` is what it is. */
  bool compare_exchange(T& expected, T desired, std::error_code& code) const noexcept {
    for (uint64_t seen = cached();;) {
      uint64_t found = 0;
      const uint64_t wanted = with(seen, expected);
      detail::set(code, CMIFN(ctxt_, 10, atm_cas)(ctxt_, word(), wanted, with(wanted, desired),
                                                  &found) == 0);
      if (code) return false;
      if (found == wanted) return true;
      const T there = part(found);
      if (std::memcmp(&there, &expected, sizeof(T)) != 0) {
        expected = there;
        return false;
      }
      seen = found; /* a neighbour in the word has changed */
    }
  }
  bool compare_exchange(T& expected, T desired) const {
    return detail::throwing(
        [&](std::error_code& code) { return compare_exchange(expected, desired, code); });
  }
  T exchange(T desired, std::error_code& code) const noexcept {
    T expected = load();
    while (!compare_exchange(expected, desired, code) && !code) {
    }
    return expected;
  }
  T exchange(T desired) const {
    return detail::throwing([&](std::error_code& code) { return exchange(desired, code); });
  }
  void store(T desired, std::error_code& code) const noexcept {
    static_cast<void>(exchange(desired, code));
  }
  void store(T desired) const { static_cast<void>(exchange(desired)); }
  /** The value before. */
  T fetch_add(T more, std::error_code& code) const noexcept requires std::is_arithmetic_v<T> {
    T expected = load();
    while (!compare_exchange(expected, static_cast<T>(expected + more), code) && !code) {
    }
    return expected;
  }
  T fetch_add(T more) const requires std::is_arithmetic_v<T> {
    return detail::throwing([&](std::error_code& code) { return fetch_add(more, code); });
  }
  T fetch_sub(T less, std::error_code& code) const noexcept requires std::is_arithmetic_v<T> {
    T expected = load();
    while (!compare_exchange(expected, static_cast<T>(expected - less), code) && !code) {
    }
    return expected;
  }
  T fetch_sub(T less) const requires std::is_arithmetic_v<T> {
    return detail::throwing([&](std::error_code& code) { return fetch_sub(less, code); });
  }

 private:
  static constexpr uintptr_t kInWord = 7;
  uint64_t* word() const noexcept {
    return reinterpret_cast<uint64_t*>(reinterpret_cast<uintptr_t>(object_) & ~kInWord);
  }
  size_t offset() const noexcept { return reinterpret_cast<uintptr_t>(object_) & kInWord; }
  uint64_t cached() const noexcept { return __atomic_load_n(word(), __ATOMIC_RELAXED); }
  uint64_t with(uint64_t whole, T value) const noexcept {
    std::memcpy(reinterpret_cast<std::byte*>(&whole) + offset(), &value, sizeof value);
    return whole;
  }
  T part(uint64_t whole) const noexcept {
    T value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(&whole) + offset(), sizeof value);
    return value;
  }

  cmi_ctxt* ctxt_;
  T* object_;
};

}  // namespace cmi

#endif

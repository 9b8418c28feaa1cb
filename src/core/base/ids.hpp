// Strong names for what must never be mixed up: nodes, contexts, segments, pages.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace cmi {

inline constexpr size_t kPageSize = 4096;
inline constexpr size_t kPageShift = 12;

// 128 random or hashed bits; all zero means none.
template <class Tag>
struct Id128 {
  uint64_t hi = 0, lo = 0;
  auto operator<=>(const Id128&) const = default;
  explicit operator bool() const { return (hi | lo) != 0; }
};
using NodeId = Id128<struct NodeTag>;        // the same for all contexts of a node
using ContextId = Id128<struct ContextTag>;  // drawn at random by each cmi_ini

enum class PageIndex : uint32_t {};  // page of a segment, in steps of kPageSize
inline constexpr uint32_t raw(PageIndex p) { return static_cast<uint32_t>(p); }

uint64_t random_u64();  // from the kernel, never zero

// The same, fetched many at a time: for a caller that needs one with each message. One thread at a
// time.
class Secrets {
 public:
  uint64_t next();

 private:
  std::array<uint64_t, 32> drawn_{};
  size_t left_ = 0;
};

inline ContextId random_context_id() { return {random_u64(), random_u64()}; }

}  // namespace cmi

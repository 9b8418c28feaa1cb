// Stacks on which faults are served, so that a fault takes little of the stack of the thread that
// faults: a coroutine's or a small thread's has no room for a fetch. Each has an unmapped page
// below. A stack belongs to one fault at a time. Any thread, the fault handler above all; no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "core/base/ids.hpp"

namespace cmi::memory {

class FaultStacks {
 public:
  static constexpr size_t kSize = 32 * kPageSize;  // twice what a fault with a nested one takes
  static constexpr size_t kKept = 64;

  constexpr FaultStacks() = default;
  // The lowest byte of one, kSize bytes; nullptr: there is no memory for it.
  std::byte* take();
  void give(std::byte* stack);
  // Unmaps those that nobody uses.
  void release();

 private:
  std::array<std::atomic<std::byte*>, kKept> free_{};
};

}  // namespace cmi::memory

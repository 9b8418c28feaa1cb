// The stacks of the fault handler.
#include "core/memory/vm/fault_stacks.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace cmi::memory {

std::byte* FaultStacks::take() {
  for (auto& slot : free_) {
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    // Acquire pairs with give(): what the last fault wrote there is over.
    if (std::byte* stack = slot.exchange(nullptr, std::memory_order_acquire); stack != nullptr) {
      return stack;
    }
  }
  const int saved_errno = errno;  // the interrupted client's
  void* p = mmap(nullptr, kPageSize + kSize, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  std::byte* stack = nullptr;
  if (p != MAP_FAILED) {
    stack = static_cast<std::byte*>(p) + kPageSize;
    if (mprotect(stack, kSize, PROT_READ | PROT_WRITE) != 0) {
      munmap(p, kPageSize + kSize);
      stack = nullptr;
    }
  }
  errno = saved_errno;
  return stack;
}

void FaultStacks::give(std::byte* stack) {
  for (auto& slot : free_) {
    std::byte* none = nullptr;
    if (slot.load(std::memory_order_relaxed) == nullptr &&
        slot.compare_exchange_strong(none, stack, std::memory_order_release,
                                     std::memory_order_relaxed)) {
      return;
    }
  }
  munmap(stack - kPageSize, kPageSize + kSize);
}

void FaultStacks::release() {
  for (auto& slot : free_) {
    std::byte* stack = slot.exchange(nullptr, std::memory_order_acquire);
    if (stack != nullptr) munmap(stack - kPageSize, kPageSize + kSize);
  }
}

}  // namespace cmi::memory

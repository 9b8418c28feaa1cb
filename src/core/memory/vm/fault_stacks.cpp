// The stacks of the fault handler, and the way onto one.
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

#if !defined(__x86_64__)
#error "call_on_stack() is written for x86-64"
#endif
[[gnu::noinline]] void call_on_stack(std::byte* top, void (*function)(void*), void* argument) {
  // The frame keeps a frame pointer, by which debuggers find their way back from the other stack.
  (void)*static_cast<void* volatile*>(__builtin_frame_address(0));
  asm volatile(
      "movq %%rsp, %%rbx\n\t"
      "movq %[top], %%rsp\n\t"
      "callq *%[function]\n\t"
      "movq %%rbx, %%rsp"
      : "+D"(argument), [top] "+r"(top), [function] "+r"(function)
      :
      : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3",
        "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
        "xmm15", "memory", "cc");
}

}  // namespace cmi::memory

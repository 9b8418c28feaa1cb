// What each processor does in its own way: what it tells of a fault, a copy that a handler may end,
// the way onto another stack, the hint of a loop that waits. One source for each processor
// implements it; CMakeLists.txt compiles the one that fits.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

namespace cmi::arch {

// Of a SIGBUS or SIGSEGV that the processor raised: was the access a store?
bool was_store(const ucontext_t& uc);

// The instruction that was interrupted.
uintptr_t program_counter(const ucontext_t& uc);

// Copies n bytes and returns how many were not copied, which is 0 unless a handler has called
// leave_copy(). Bytes in front of the one that faulted are copied.
size_t copy_until_left(void* to, const void* from, size_t n);

enum class Left {
  kNoCopy,  // the thread was somewhere else
  kGoesOn,  // it goes on, by smaller steps: it faults again where the memory is broken
  kEnded,   // it ends when the handler returns
};
// In a handler of SIGBUS: has a copy end in which the thread has faulted.
Left leave_copy(ucontext_t& uc);

// Calls function(argument) with its frames below `top`, 16 byte aligned. Nothing may be thrown
// through it.
void call_on_stack(std::byte* top, void (*function)(void*), void* argument);

// In a loop that waits for another processor's store.
inline void spin_hint() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // yield does nothing on most; this waits for some dozen cycles
#else
#error "the library is written for x86-64 and aarch64"
#endif
}

}  // namespace cmi::arch

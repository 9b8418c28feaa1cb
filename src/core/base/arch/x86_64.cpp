// See arch.hpp.
#include "core/base/arch/arch.hpp"

extern "C" {
extern const char cmi_copy_begin[] __attribute__((visibility("hidden")));
extern const char cmi_copy_end[] __attribute__((visibility("hidden")));
}

namespace cmi::arch {

bool was_store(const ucontext_t& uc) { return (uc.uc_mcontext.gregs[REG_ERR] & 2) != 0; }

uintptr_t program_counter(const ucontext_t& uc) {
  return static_cast<uintptr_t>(uc.uc_mcontext.gregs[REG_RIP]);
}

// One instruction, which the handler knows by its address; it may fault in its middle, with the
// registers saying how far it came. Once in the program, because of the names in it.
[[gnu::noinline]] size_t copy_until_left(void* to, const void* from, size_t n) {
  asm volatile(
      ".globl cmi_copy_begin\n"
      ".hidden cmi_copy_begin\n"
      ".globl cmi_copy_end\n"
      ".hidden cmi_copy_end\n"
      "cmi_copy_begin:\n\t"
      "rep movsb\n"
      "cmi_copy_end:\n\t"
      : "+D"(to), "+S"(from), "+c"(n)
      :
      : "memory");
  return n;
}

[[gnu::hot]] Left leave_copy(ucontext_t& uc) {
  if (program_counter(uc) != reinterpret_cast<uintptr_t>(&cmi_copy_begin[0])) return Left::kNoCopy;
  uc.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&cmi_copy_end[0]);
  return Left::kEnded;
}

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

}  // namespace cmi::arch

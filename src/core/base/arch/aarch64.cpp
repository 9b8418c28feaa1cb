// See arch.hpp.
#include <asm/sigcontext.h>

#include <cstring>

#include "core/base/arch/arch.hpp"

extern "C" {
extern const char cmi_copy_begin[] __attribute__((visibility("hidden")));
extern const char cmi_copy_bytes[] __attribute__((visibility("hidden")));
extern const char cmi_copy_end[] __attribute__((visibility("hidden")));
}

namespace cmi::arch {

namespace {

// The exception syndrome, which the kernel puts behind the registers as one of a list of records.
// Each begins with its kind and its size; one of kind 0 ends the list. 0: there is none.
uint64_t syndrome(const ucontext_t& uc) {
  const auto& records = uc.uc_mcontext.__reserved;
  for (size_t at = 0; at + sizeof(esr_context) <= sizeof records;) {
    _aarch64_ctx head;
    std::memcpy(&head, &records[at], sizeof head);
    if (head.magic == ESR_MAGIC) {
      esr_context record;
      std::memcpy(&record, &records[at], sizeof record);
      return record.esr;
    }
    if (head.magic == 0 || head.size < sizeof head) break;
    at += head.size;
  }
  return 0;
}

}  // namespace

// Of a data abort: WnR. It is set as well where a cache was to be maintained (CM), which stores
// nothing; dc zva, which stores, has CM clear.
bool was_store(const ucontext_t& uc) {
  constexpr uint64_t kWrite = uint64_t{1} << 6, kMaintenance = uint64_t{1} << 8;
  return (syndrome(uc) & (kWrite | kMaintenance)) == kWrite;
}

uintptr_t program_counter(const ucontext_t& uc) { return uc.uc_mcontext.pc; }

// Sixteen bytes at a time, then the rest one by one; aligned words of 8 bytes are stored whole. A
// fault of the first loop goes on in the second, which comes to the very byte. Once in the program,
// because of the names in it.
[[gnu::noinline]] size_t copy_until_left(void* to, const void* from, size_t n) {
  uint64_t low, high;
  asm volatile(
      ".globl cmi_copy_begin\n"
      ".hidden cmi_copy_begin\n"
      ".globl cmi_copy_bytes\n"
      ".hidden cmi_copy_bytes\n"
      ".globl cmi_copy_end\n"
      ".hidden cmi_copy_end\n"
      "cmi_copy_begin:\n\t"
      "cmp %[n], #16\n\t"
      "b.lo cmi_copy_bytes\n\t"
      "ldp %[low], %[high], [%[from]]\n\t"
      "stp %[low], %[high], [%[to]]\n\t"
      "add %[from], %[from], #16\n\t"
      "add %[to], %[to], #16\n\t"
      "sub %[n], %[n], #16\n\t"
      "b cmi_copy_begin\n"
      "cmi_copy_bytes:\n\t"
      "cbz %[n], cmi_copy_end\n\t"
      "ldrb %w[low], [%[from]]\n\t"
      "strb %w[low], [%[to]]\n\t"
      "add %[from], %[from], #1\n\t"
      "add %[to], %[to], #1\n\t"
      "sub %[n], %[n], #1\n\t"
      "b cmi_copy_bytes\n"
      "cmi_copy_end:\n\t"
      : [to] "+r"(to), [from] "+r"(from), [n] "+r"(n), [low] "=&r"(low), [high] "=&r"(high)
      :
      : "memory", "cc");
  return n;
}

[[gnu::hot]] Left leave_copy(ucontext_t& uc) {
  const auto begin = reinterpret_cast<uintptr_t>(&cmi_copy_begin[0]);
  const auto bytes = reinterpret_cast<uintptr_t>(&cmi_copy_bytes[0]);
  const auto end = reinterpret_cast<uintptr_t>(&cmi_copy_end[0]);
  const uintptr_t at = program_counter(uc);
  if (at < begin || at >= end) return Left::kNoCopy;
  uc.uc_mcontext.pc = at < bytes ? bytes : end;
  return at < bytes ? Left::kGoesOn : Left::kEnded;
}

[[gnu::noinline]] void call_on_stack(std::byte* top, void (*function)(void*), void* argument) {
  // The frame keeps a frame pointer, by which debuggers find their way back from the other stack.
  (void)*static_cast<void* volatile*>(__builtin_frame_address(0));
  register void* first asm("x0") = argument;
  asm volatile(
      "mov x19, sp\n\t"
      "mov sp, %[top]\n\t"
      "blr %[function]\n\t"
      "mov sp, x19"
      : "+r"(first)
      : [top] "r"(top), [function] "r"(function)
      : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
        "x15", "x16", "x17", "x18", "x19", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7",
        "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20",
        "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory",
        "cc");
}

}  // namespace cmi::arch

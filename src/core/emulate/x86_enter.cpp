// The way in is IRETQ, which loads flags, stack pointer and instruction pointer at once, and is a
// serializing instruction, as the CPU asks for before code that was written through another mapping
// is executed. The way back is a jump that needs no register.
#include "core/emulate/x86_enter.hpp"

#include <cpuid.h>

#include <cstring>
#include <initializer_list>

namespace cmi::emulate {

static_assert(offsetof(Frame, flags) == 128 && offsetof(Frame, entry) == 136 &&
              offsetof(Frame, host_rsp) == 144 && offsetof(Frame, state_in) == 152 &&
              offsetof(Frame, state_out) == 160 && offsetof(Frame, mask) == 168 &&
              offsetof(Frame, mxcsr) == 172 && offsetof(Frame, resume) == 176);

asm(R"(
.text
.p2align 4
.hidden cmi_emulate_enter
.hidden cmi_emulate_resume
.globl cmi_emulate_enter
.globl cmi_emulate_resume
.type cmi_emulate_enter, @function
.type cmi_emulate_resume, @function
cmi_emulate_enter:
  pushq %rbx
  pushq %rbp
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, 144(%rdi)
  movl 168(%rdi), %eax
  xorl %edx, %edx
  movq 152(%rdi), %rcx
  xrstor64 (%rcx)
  movl %ss, %eax
  pushq %rax
  pushq 32(%rdi)
  pushq 128(%rdi)
  movl %cs, %eax
  pushq %rax
  pushq 136(%rdi)
  movq 0(%rdi), %rax
  movq 8(%rdi), %rcx
  movq 16(%rdi), %rdx
  movq 24(%rdi), %rbx
  movq 40(%rdi), %rbp
  movq 48(%rdi), %rsi
  movq 64(%rdi), %r8
  movq 72(%rdi), %r9
  movq 80(%rdi), %r10
  movq 88(%rdi), %r11
  movq 96(%rdi), %r12
  movq 104(%rdi), %r13
  movq 112(%rdi), %r14
  movq 120(%rdi), %r15
  movq 56(%rdi), %rdi
  iretq
.size cmi_emulate_enter, .-cmi_emulate_enter
cmi_emulate_resume:
  movq %rcx, 8(%rax)
  movq %rdx, 16(%rax)
  movq %rbx, 24(%rax)
  movq %rsp, 32(%rax)
  movq %rbp, 40(%rax)
  movq %rsi, 48(%rax)
  movq %rdi, 56(%rax)
  movq %r8, 64(%rax)
  movq %r9, 72(%rax)
  movq %r10, 80(%rax)
  movq %r11, 88(%rax)
  movq %r12, 96(%rax)
  movq %r13, 104(%rax)
  movq %r14, 112(%rax)
  movq %r15, 120(%rax)
  movq 144(%rax), %rsp
  pushfq
  popq 128(%rax)
  cld
  movq %rax, %rdi
  movq 160(%rdi), %rcx
  movl 168(%rdi), %eax
  xorl %edx, %edx
  xsave64 (%rcx)
  fninit
  ldmxcsr 172(%rdi)
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbp
  popq %rbx
  ret
.size cmi_emulate_resume, .-cmi_emulate_resume
)");

extern "C" void cmi_emulate_enter(Frame* frame);
extern "C" void cmi_emulate_resume();

void enter(Frame* frame) {
  frame->resume = reinterpret_cast<uint64_t>(&cmi_emulate_resume);
  cmi_emulate_enter(frame);
}

void write_tail(std::byte* writable, std::byte* code, Frame* frame) {
  std::byte* at = writable + kInstructionEnd;
  const auto put = [&](std::initializer_list<unsigned> opcode, const void* target) {
    for (unsigned b : opcode) *at++ = static_cast<std::byte>(b);
    const std::byte* next = code + (at - writable) + sizeof(int32_t);
    const auto distance = static_cast<int32_t>(static_cast<const std::byte*>(target) - next);
    std::memcpy(at, &distance, sizeof distance);
    at += sizeof distance;
  };
  put({0x48, 0x89, 0x05}, &frame->gpr[kRax]);  // mov %rax, gpr[0]
  put({0x48, 0x8d, 0x05}, frame);              // lea frame, %rax
  put({0xff, 0x25}, &frame->resume);           // jmp *resume
}

const StateLayout& state_layout() {
  static const StateLayout layout = [] {
    StateLayout l;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return l;
    unsigned low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr uint32_t kReached =
        1u << kX87 | 1u << kSse | 1u << kAvx | 1u << kOpmask | 1u << kZmmHigh | 1u << kZmmMore;
    l.mask = low & kReached;
    l.size = kExtended;
    for (unsigned i = kAvx; i < 8; ++i) {
      if ((l.mask >> i & 1) == 0) continue;
      if (__get_cpuid_count(0xd, i, &a, &b, &c, &d) == 0) return StateLayout{};
      l.length[i] = a;
      l.offset[i] = b;
      if (l.size < a + b) l.size = a + b;
    }
    return l;
  }();
  return layout;
}

namespace {

uint64_t present(const std::byte* image) {
  uint64_t bits;
  std::memcpy(&bits, image + kHeader, sizeof bits);
  return bits;
}

// Where a part of a register is; null: it is in its initial state, or the CPU does not have it.
const std::byte* part(const std::byte* image, Component c, size_t at) {
  if ((state_layout().mask >> c & 1) == 0 || (present(image) >> c & 1) == 0) return nullptr;
  return image + (c == kSse ? kXmm : state_layout().offset[c]) + at;
}

std::byte* part_to_set(std::byte* image, Component c, size_t at) {
  if ((state_layout().mask >> c & 1) == 0) return nullptr;
  std::byte* const begin = image + (c == kSse ? kXmm : state_layout().offset[c]);
  if (const uint64_t bits = present(image); (bits >> c & 1) == 0) {
    std::memset(begin, 0, c == kSse ? 256 : state_layout().length[c]);
    const uint64_t with = bits | uint64_t{1} << c;
    std::memcpy(image + kHeader, &with, sizeof with);
  }
  return begin + at;
}

struct Part {
  Component component;
  size_t at, from, length;  // in the component; in the register
};
// The parts of a 64-byte register.
int parts_of(unsigned number, Part out[3]) {
  if (number >= 16) {
    out[0] = {kZmmMore, size_t{number - 16} * 64, 0, 64};
    return 1;
  }
  out[0] = {kSse, size_t{number} * 16, 0, 16};
  out[1] = {kAvx, size_t{number} * 16, 16, 16};
  out[2] = {kZmmHigh, size_t{number} * 32, 32, 32};
  return 3;
}

}  // namespace

void get_vector(const std::byte* image, unsigned number, std::byte out[64]) {
  std::memset(out, 0, 64);
  Part parts[3];
  const int n = parts_of(number, parts);
  for (int i = 0; i < n; ++i) {
    const Part& p = parts[i];
    if (const std::byte* at = part(image, p.component, p.at)) {
      std::memcpy(out + p.from, at, p.length);
    }
  }
}

void set_vector(std::byte* image, unsigned number, const std::byte in[64]) {
  Part parts[3];
  const int n = parts_of(number, parts);
  for (int i = 0; i < n; ++i) {
    const Part& p = parts[i];
    if (std::byte* at = part_to_set(image, p.component, p.at)) {
      std::memcpy(at, in + p.from, p.length);
    }
  }
}

uint64_t get_mask(const std::byte* image, unsigned number) {
  uint64_t value = 0;
  if (const std::byte* at = part(image, kOpmask, size_t{number} * 8)) {
    std::memcpy(&value, at, sizeof value);
  }
  return value;
}

void set_mask(std::byte* image, unsigned number, uint64_t value) {
  if (std::byte* at = part_to_set(image, kOpmask, size_t{number} * 8)) {
    std::memcpy(at, &value, sizeof value);
  }
}

}  // namespace cmi::emulate

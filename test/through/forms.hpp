// Forms of x86-64 instructions with an operand in memory, each as code that can be run with all
// registers as the test wants them. What is common to all: RDI points to the middle of the memory
// under test, RSI 1024 bytes behind, R14 to ordinary memory; the address of form_end lies at RDI+96
// for jumps. Which vector registers hold what: see Registers::fill().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cmi::test {

enum Gpr : unsigned { kRax, kRcx, kRdx, kRbx, kRsp, kRbp, kRsi, kRdi, kR8, kR14 = 14 };

// Where a run starts from and what it ends with.
struct alignas(64) Registers {
  uint64_t gpr[16];
  uint64_t flags;
  uint64_t host_stack;
  std::byte pad[112];
  std::byte state[4096];  // as XSAVE has it

  // The same for each run but for the pointers.
  void fill(std::byte* memory, std::byte* other);
};

struct Form {
  const void* code;
  const char* text;
};

enum class Needs {
  kAlways,   // any alignment
  kAligned,  // operands stay within their natural alignment
  kSse4,
  kAvx2,
  kAvx512,
};
// Empty where the CPU lacks what these need.
std::span<const Form> forms(Needs needs);

// Ordinary memory that forms push to and pop from: 128 bytes around where RSP starts.
inline constexpr size_t kStackSeen = 128;
std::byte* form_stack();

// Runs it. What it raises is the caller's SIGSEGV handler's business.
void run(const Form& form, Registers* registers);
// Where a form ends: what RDI+96 is to hold for those that jump.
uint64_t form_end_address();

// Bytes of the state that instructions can see, gathered: the same registers give the same bytes.
size_t visible_state(const Registers& registers, std::byte* out);
inline constexpr size_t kVisible = 4096;

}  // namespace cmi::test

// From the handler into one instruction with a thread's whole state loaded, and back with the state
// that it left.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cmi::emulate {

// Numbers of general registers as the CPU encodes them.
enum Gpr : unsigned { kRax, kRcx, kRdx, kRbx, kRsp, kRbp, kRsi, kRdi };

// Lies behind the code, so that the code finds it without a register. Its layout is known to the
// assembly in x86_enter.cpp.
struct Frame {
  uint64_t gpr[16];
  uint64_t flags;
  uint64_t entry;     // where the instruction begins
  uint64_t host_rsp;  // of the handler, meanwhile
  uint64_t state_in, state_out;
  uint32_t mask;   // the state components in both
  uint32_t mxcsr;  // for the handler afterwards
  uint64_t resume;
};

// The thread's extended state as XSAVE lays it out (standard form), as far as instructions that we
// execute can reach it: x87, SSE, AVX, AVX-512.
struct StateLayout {
  uint32_t mask = 0;  // components of this CPU
  uint32_t size = 0;  // bytes of an image with them
  uint32_t offset[8] = {}, length[8] = {};
};
enum Component : unsigned { kX87, kSse, kAvx, kOpmask = 5, kZmmHigh = 6, kZmmMore = 7 };
const StateLayout& state_layout();  // mask 0: no XSAVE
inline constexpr size_t kMxcsr = 24, kXmm = 160, kSwReserved = 464, kHeader = 512, kExtended = 576;

// Vector registers and masks in an image. Registers that are in their initial state are not in
// there, but for a bit that says so.
void get_vector(const std::byte* image, unsigned number, std::byte out[64]);
void set_vector(std::byte* image, unsigned number, const std::byte in[64]);
uint64_t get_mask(const std::byte* image, unsigned number);
void set_mask(std::byte* image, unsigned number, uint64_t value);

// Where the instruction ends in the code page, and what follows it there. Written once.
inline constexpr size_t kInstructionEnd = 64;
void write_tail(std::byte* writable, std::byte* code, Frame* frame);

// Executes from frame->entry to the tail. Flags, registers and the state in state_in are the
// thread's; they must have nothing set that traps.
void enter(Frame* frame);

}  // namespace cmi::emulate

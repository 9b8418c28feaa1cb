// One instruction while it is executed: what it is, whose registers it works on, where its operands
// lie. x86_step.cpp decodes it; the other files x86_*.cpp each have a kind of instruction:
// x86_operand.cpp those with one operand in memory that its ModRM byte names, which is nearly all
// of them; x86_stack.cpp those that also use the stack or name their operand in another way;
// x86_strings.cpp; x86_vector.cpp gathers, scatters and masked bytes.
#pragma once

#include <Zydis/Zydis.h>

#include <cstring>

#include "core/emulate/emulate.hpp"
#include "core/emulate/x86_enter.hpp"

namespace cmi::emulate {

// Of a register among those of its kind.
inline unsigned number_of(ZydisRegister r) {
  return static_cast<unsigned>(ZydisRegisterGetId(r)) & 0x1f;
}

inline bool is_vex_like(const ZydisDecodedInstruction& i) {
  return i.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX ||
         i.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX ||
         i.encoding == ZYDIS_INSTRUCTION_ENCODING_XOP;
}

// Fields of an XSAVE image.
inline uint32_t load32(const std::byte* at) {
  uint32_t v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline uint64_t load64(const std::byte* at) {
  uint64_t v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

// Size: all kinds of instruction work on the same state of the thread; each kind has its own file.
class Machine {
 public:
  Machine(ucontext_t& uc, Memory& memory, Bench& bench)
      : greg_(uc.uc_mcontext.gregs), uc_(uc), memory_(memory), bench_(bench) {}
  Stop step();

 private:
  static constexpr uint64_t kCarry = 1, kParity = 4, kAdjust = 0x10, kZero = 0x40, kSign = 0x80,
                            kTrap = 0x100, kDown = 0x400, kOverflow = 0x800, kNested = 0x4000,
                            kResume = 0x10000, kAlign = 0x40000;
  static constexpr uint64_t kArithmetic = kCarry | kParity | kAdjust | kZero | kSign | kOverflow;

  // x86_step.cpp
  bool decode();
  uint64_t rip() const { return static_cast<uint64_t>(greg_[REG_RIP]); }
  uint64_t next() const { return rip() + insn_.length; }
  void advance() { greg_[REG_RIP] = static_cast<greg_t>(next()); }
  uint64_t gpr(unsigned n) const;
  void set_gpr(unsigned n, uint64_t value, unsigned size);  // as a store of that width does
  uint64_t flags() const { return static_cast<uint64_t>(greg_[REG_EFL]); }
  void set_flags(uint64_t value, uint64_t which);
  uint64_t segment_base(ZydisRegister segment) const;
  uint64_t address_of(const ZydisDecodedOperand& op, uint64_t vector_index = 0) const;
  const ZydisDecodedOperand* memory_operand() const;  // the only one; null: none or several
  bool reads(const ZydisDecodedOperand& op) const;
  bool writes(const ZydisDecodedOperand& op) const;
  bool locked(const ZydisDecodedOperand& op) const;
  std::byte* client_state() const { return reinterpret_cast<std::byte*>(uc_.uc_mcontext.fpregs); }
  bool client_state_is_whole() const;

  // x86_operand.cpp
  Stop with_one_operand();
  Stop change_atomically(uint64_t addr, std::byte* operand, size_t size);
  Stop would_trap(const ZydisDecodedOperand& op, const std::byte* operand) const;
  void load_state();
  Stop run(const std::byte* operand);
  Stop floating_point_trap();
  bool place(const std::byte* operand);
  void commit(uint64_t addr, const std::byte* operand);
  void commit_state();

  // x86_stack.cpp
  Stop push();
  Stop pop();
  Stop jump_or_call();
  Stop translate();
  Stop move_absolute();
  Stop move_64();

  // x86_strings.cpp
  struct StringStep;
  Stop string();
  Stop do_elements(StringStep& step);
  bool compare(uint64_t a, uint64_t b, unsigned size);

  // x86_vector.cpp
  struct GatherOperands;
  GatherOperands gather_operands() const;
  Stop gather_or_scatter();
  Stop move_masked_bytes();
  // Which bytes of the operand a masked load looks at; false: all.
  bool wanted_bytes(const ZydisDecodedOperand& op, uint8_t* wanted) const;

  greg_t* const greg_;
  ucontext_t& uc_;
  Memory& memory_;
  Bench& bench_;
  uint8_t bytes_[ZYDIS_MAX_INSTRUCTION_LENGTH] = {};
  ZydisDecodedInstruction insn_{};
  ZydisDecodedOperand ops_[ZYDIS_MAX_OPERAND_COUNT] = {};
  uint32_t mxcsr_ = 0;         // the thread's
  bool traps_masked_ = false;  // it lets floating point trap: looked at afterwards
  int bit_register_ = -1;      // whose bits above those of the operand have gone into the address
  uint64_t bit_offset_ = 0;
};

}  // namespace cmi::emulate

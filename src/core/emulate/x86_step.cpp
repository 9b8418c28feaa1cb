// Decoding: what an instruction is, which file executes its kind, which registers and addresses it
// names.
#include <asm/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/emulate/x86_machine.hpp"

namespace cmi::emulate {

namespace {

constexpr int kGregs[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// What does something else than computing on its operand: with selectors, the stack pointer, whole
// states, tiles, shadow stacks.
bool is_strange(const ZydisDecodedInstruction& i) {
  switch (i.meta.category) {
    case ZYDIS_CATEGORY_XSAVE:
    case ZYDIS_CATEGORY_XSAVEOPT:
    case ZYDIS_CATEGORY_AMX_TILE:
    case ZYDIS_CATEGORY_CET:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_SEGOP:
    case ZYDIS_CATEGORY_SYSTEM:
    case ZYDIS_CATEGORY_ENQCMD:
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_INTERRUPT:
      return true;
    default:
      return i.encoding == ZYDIS_INSTRUCTION_ENCODING_3DNOW ||
             i.encoding == ZYDIS_INSTRUCTION_ENCODING_MVEX;
  }
}

// Hints about caches, of which there is none.
bool is_hint(const ZydisDecodedInstruction& i) {
  switch (i.mnemonic) {
    case ZYDIS_MNEMONIC_CLFLUSH:
    case ZYDIS_MNEMONIC_CLFLUSHOPT:
    case ZYDIS_MNEMONIC_CLWB:
    case ZYDIS_MNEMONIC_CLDEMOTE:
    case ZYDIS_MNEMONIC_NOP:
      return true;
    default:
      return i.meta.category == ZYDIS_CATEGORY_PREFETCH;
  }
}

bool has_shadow_stack() {
  uint64_t pointer = 0;
  asm volatile("rdsspq %0" : "+r"(pointer));  // does nothing where there is none
  return pointer != 0;
}

}  // namespace

bool supported() {
  if (fault_point_fails("emulate_unsupported")) return false;
  const StateLayout& l = state_layout();
  if ((l.mask & 3) != 3 || l.size > Bench::kPage) return false;
  // The system may not let memory be executed that has been written.
  static const bool executable = [] { return Bench().open(); }();
  return executable && !fault_point_fails("emulate_not_executable");
}

ThreadState thread_state(const ucontext_t& uc) {
  constexpr uint64_t kComputed = 0xcd5;  // of the flags: those, and the direction
  ThreadState state{};
  static_assert(REG_R8 == 0 && REG_RIP == 16 && REG_EFL == 17);
  std::copy_n(uc.uc_mcontext.gregs, state.size(), state.begin());
  state[REG_EFL] &= kComputed;
  return state;
}

Stop step(ucontext_t& uc, Memory& memory, Bench& bench) {
  return Machine(uc, memory, bench).step();
}

uint64_t Machine::gpr(unsigned n) const { return static_cast<uint64_t>(greg_[kGregs[n & 15]]); }

void Machine::set_gpr(unsigned n, uint64_t value, unsigned size) {
  greg_t& r = greg_[kGregs[n & 15]];
  if (size < 4) {
    const uint64_t low = (uint64_t{1} << (8 * size)) - 1;
    value = (static_cast<uint64_t>(r) & ~low) | (value & low);
  } else if (size == 4) {
    value &= UINT32_MAX;
  }
  r = static_cast<greg_t>(value);
}

void Machine::set_flags(uint64_t value, uint64_t which) {
  greg_[REG_EFL] = static_cast<greg_t>((flags() & ~which) | (value & which));
}

bool Machine::decode() {
  ZydisDecoder decoder;
  if (!ZYAN_SUCCESS(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64))) {
    return false;
  }
  // The next page may not be there; where the instruction goes on in it, it is.
  const auto* code = reinterpret_cast<const uint8_t*>(rip());
  const size_t here = std::min<size_t>(sizeof bytes_, Bench::kPage - rip() % Bench::kPage);
  std::memcpy(bytes_, code, here);
  ZyanStatus s = ZydisDecoderDecodeFull(&decoder, bytes_, here, &insn_, ops_);
  if (s == ZYDIS_STATUS_NO_MORE_DATA && here < sizeof bytes_) {
    std::memcpy(bytes_ + here, code + here, sizeof bytes_ - here);
    s = ZydisDecoderDecodeFull(&decoder, bytes_, sizeof bytes_, &insn_, ops_);
  }
  return ZYAN_SUCCESS(s);
}

uint64_t Machine::segment_base(ZydisRegister segment) const {
  uint64_t base = 0;
  if (segment == ZYDIS_REGISTER_FS) syscall(SYS_arch_prctl, ARCH_GET_FS, &base);
  if (segment == ZYDIS_REGISTER_GS) syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
  return base;
}

// Without an index register where that is a vector: its element comes as `vector_index`.
uint64_t Machine::address_of(const ZydisDecodedOperand& op, uint64_t vector_index) const {
  uint64_t a = static_cast<uint64_t>(op.mem.disp.has_displacement ? op.mem.disp.value : 0);
  const auto value = [&](ZydisRegister r) {
    const uint64_t v = gpr(number_of(r));
    return ZydisRegisterGetClass(r) == ZYDIS_REGCLASS_GPR32 ? v & UINT32_MAX : v;
  };
  switch (op.mem.base) {
    case ZYDIS_REGISTER_NONE:
      break;
    case ZYDIS_REGISTER_RIP:
    case ZYDIS_REGISTER_EIP:
      a += next();
      break;
    default:
      a += value(op.mem.base);
  }
  if (op.mem.type == ZYDIS_MEMOP_TYPE_VSIB) {
    a += vector_index * op.mem.scale;
  } else if (op.mem.index != ZYDIS_REGISTER_NONE) {
    a += value(op.mem.index) * op.mem.scale;
  }
  if (insn_.address_width == 32) a &= UINT32_MAX;
  return a + segment_base(op.mem.segment);
}

const ZydisDecodedOperand* Machine::memory_operand() const {
  const ZydisDecodedOperand* found = nullptr;
  for (unsigned i = 0; i < insn_.operand_count; ++i) {
    if (ops_[i].type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    if (found != nullptr) return nullptr;
    found = &ops_[i];
  }
  return found;
}

bool Machine::writes(const ZydisDecodedOperand& op) const {
  return (op.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
}

bool Machine::reads(const ZydisDecodedOperand& op) const {
  // Of those that merge under a mask, the decoder says that they read their destination.
  if (is_vex_like(insn_) && writes(op)) return locked(op);
  return (op.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
}

// CMPXCHG without LOCK stores what it has found where it fails: better what is there by then.
bool Machine::locked(const ZydisDecodedOperand& op) const {
  if ((insn_.attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0) return true;
  return insn_.mnemonic == ZYDIS_MNEMONIC_XCHG || insn_.mnemonic == ZYDIS_MNEMONIC_CMPXCHG ||
         insn_.mnemonic == ZYDIS_MNEMONIC_CMPXCHG8B ||
         insn_.mnemonic == ZYDIS_MNEMONIC_CMPXCHG16B ||
         (insn_.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX && writes(op) &&
          (op.actions & ZYDIS_OPERAND_ACTION_READ) != 0 && op.size <= 64);
}

bool Machine::client_state_is_whole() const {
  const std::byte* s = client_state();
  const StateLayout& l = state_layout();
  if (s == nullptr || load32(s + kSwReserved) != FP_XSTATE_MAGIC1) return false;
  return (load64(s + kSwReserved + 8) & l.mask) == l.mask && load32(s + kSwReserved + 16) >= l.size;
}

Stop Machine::step() {
  // IRETQ takes a way back from a shadow stack that nobody has put there.
  if (has_shadow_stack() || !decode() || !client_state_is_whole() || is_strange(insn_)) {
    return Stop::cannot(rip());
  }
  if (is_hint(insn_)) {
    advance();
    return {};
  }
  switch (insn_.meta.category) {
    case ZYDIS_CATEGORY_STRINGOP:
      return string();
    case ZYDIS_CATEGORY_AVX2GATHER:
    case ZYDIS_CATEGORY_GATHER:
    case ZYDIS_CATEGORY_SCATTER:
      return gather_or_scatter();
    default:
      break;
  }
  switch (insn_.mnemonic) {
    case ZYDIS_MNEMONIC_PUSH:
      return push();
    case ZYDIS_MNEMONIC_POP:
      return pop();
    case ZYDIS_MNEMONIC_JMP:
    case ZYDIS_MNEMONIC_CALL:
      return jump_or_call();
    case ZYDIS_MNEMONIC_XLAT:
      return translate();
    case ZYDIS_MNEMONIC_MASKMOVDQU:
    case ZYDIS_MNEMONIC_VMASKMOVDQU:
      return move_masked_bytes();
    case ZYDIS_MNEMONIC_MOVDIR64B:
      return move_64();
    case ZYDIS_MNEMONIC_MOV:
      if ((insn_.attributes & ZYDIS_ATTRIB_HAS_MODRM) == 0) return move_absolute();
      break;
    default:
      break;
  }
  return with_one_operand();
}

}  // namespace cmi::emulate

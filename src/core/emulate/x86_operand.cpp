// Instructions with one operand in memory that their ModRM byte names: copied with that byte
// changed to name a copy of the operand, executed, and what they stored written back.
#include <signal.h>

#include <cstring>

#include "core/emulate/x86_machine.hpp"

namespace cmi::emulate {

namespace {

constexpr uint32_t kAllMasked = 0x1f80, kRaised = 0x3f;

bool is_bit_test(ZydisMnemonic m) {
  return m == ZYDIS_MNEMONIC_BT || m == ZYDIS_MNEMONIC_BTS || m == ZYDIS_MNEMONIC_BTR ||
         m == ZYDIS_MNEMONIC_BTC;
}

// Instructions that work on the control and status of floating point itself.
bool is_control(ZydisMnemonic m) {
  return m == ZYDIS_MNEMONIC_LDMXCSR || m == ZYDIS_MNEMONIC_VLDMXCSR ||
         m == ZYDIS_MNEMONIC_STMXCSR || m == ZYDIS_MNEMONIC_VSTMXCSR ||
         m == ZYDIS_MNEMONIC_FXSAVE || m == ZYDIS_MNEMONIC_FXSAVE64 ||
         m == ZYDIS_MNEMONIC_FXRSTOR || m == ZYDIS_MNEMONIC_FXRSTOR64;
}

}  // namespace

// The instruction with [rip + distance to `operand`] for its operand, in front of the tail. What
// only says where the operand is goes: segment, address size, the bits of REX and the like that
// extend base and index; LOCK too, as the copy is nobody else's. False: too long like this, for all
// the prefixes that it has.
bool Machine::place(const std::byte* operand) {
  uint8_t out[ZYDIS_MAX_INSTRUCTION_LENGTH + 8];
  size_t n = 0, from = 0;
  const auto is_rex = [](uint8_t b) { return (b & 0xf0) == 0x40; };
  for (;; ++from) {
    const uint8_t b = bytes_[from];
    if (b == 0x66 || b == 0xf2 || b == 0xf3) {
      out[n++] = b;
    } else if (b != 0x26 && b != 0x2e && b != 0x36 && b != 0x3e && b != 0x64 && b != 0x65 &&
               b != 0x67 && b != 0xf0 && !is_rex(b)) {
      break;
    }
  }
  if ((insn_.attributes & ZYDIS_ATTRIB_HAS_REX) != 0) {
    out[n++] = static_cast<uint8_t>(bytes_[insn_.raw.rex.offset] & ~3u);
  }
  const size_t opcode = n;
  const size_t modrm = insn_.raw.modrm.offset;
  for (; from < modrm; ++from) out[n++] = bytes_[from];
  // X and B are kept inverted in there.
  if (is_vex_like(insn_) && out[opcode] != 0xc5) out[opcode + 1] |= 0x60;
  out[n++] = (bytes_[modrm] & 0x38) | 0x05;
  const size_t distance_at = n;
  n += sizeof(int32_t);
  const bool sib = (bytes_[modrm] & 7) == 4;
  for (from = modrm + 1 + (sib ? 1 : 0) + insn_.raw.disp.size / 8; from < insn_.length; ++from) {
    out[n++] = bytes_[from];
  }
  if (n > ZYDIS_MAX_INSTRUCTION_LENGTH) return false;
  const auto distance = static_cast<int32_t>(operand - (bench_.code() + kInstructionEnd));
  std::memcpy(out + distance_at, &distance, sizeof distance);
  auto* frame = reinterpret_cast<Frame*>(bench_.frame());
  write_tail(bench_.code_writable(), bench_.code(), frame);
  std::memcpy(bench_.code_writable() + kInstructionEnd - n, out, n);
  frame->entry = reinterpret_cast<uint64_t>(bench_.code() + kInstructionEnd - n);
  return true;
}

// A copy of the thread's state to start from. Where it wants floating point to trap, that is looked
// for afterwards: a trap in here would be fatal.
void Machine::load_state() {
  const StateLayout& l = state_layout();
  std::byte* in = bench_.state_in();
  std::memcpy(in, client_state(), l.size);
  const uint64_t bits = load64(in + kHeader) & l.mask;
  std::memset(in + kHeader, 0, kExtended - kHeader);
  std::memcpy(in + kHeader, &bits, sizeof bits);
  mxcsr_ = load32(in + kMxcsr);
  traps_masked_ = (mxcsr_ & kAllMasked) != kAllMasked && !is_control(insn_.mnemonic);
  if (traps_masked_) {
    const uint32_t quiet = (mxcsr_ | kAllMasked) & ~kRaised;
    std::memcpy(in + kMxcsr, &quiet, sizeof quiet);
  }
  std::memset(bench_.state_out() + kHeader, 0, kExtended - kHeader);
}

Stop Machine::run(const std::byte* operand) {
  auto* frame = reinterpret_cast<Frame*>(bench_.frame());
  if (!place(operand)) return Stop::cannot(rip());
  for (unsigned i = 0; i < 16; ++i) frame->gpr[i] = gpr(i);
  if (bit_register_ >= 0) frame->gpr[bit_register_] = bit_offset_;
  frame->flags = flags() & ~(kTrap | kNested | kResume | kAlign);
  frame->state_in = reinterpret_cast<uint64_t>(bench_.state_in());
  frame->state_out = reinterpret_cast<uint64_t>(bench_.state_out());
  frame->mask = state_layout().mask;
  frame->mxcsr = kAllMasked;
  enter(frame);
  return traps_masked_ ? floating_point_trap() : Stop{};
}

Stop Machine::floating_point_trap() {
  std::byte* out = bench_.state_out();
  uint32_t after = load32(out + kMxcsr);
  const uint32_t raised = after & kRaised, trapping = raised & ~(mxcsr_ >> 7);
  after = mxcsr_ | raised;
  std::memcpy(out + kMxcsr, &after, sizeof after);
  if (trapping == 0) return {};
  // The flags say it, and nothing else has changed.
  std::memcpy(client_state() + kMxcsr, &after, sizeof after);
  const int code = (trapping & 1) != 0    ? FPE_FLTINV
                   : (trapping & 4) != 0  ? FPE_FLTDIV
                   : (trapping & 8) != 0  ? FPE_FLTOVF
                   : (trapping & 16) != 0 ? FPE_FLTUND
                   : (trapping & 2) != 0  ? FPE_FLTUND
                                          : FPE_FLTRES;
  return Stop::signal(SIGFPE, code, rip());
}

void Machine::commit_state() {
  const StateLayout& l = state_layout();
  std::byte* to = client_state();
  const std::byte* from = bench_.state_out();
  std::memcpy(to, from, kXmm + 256);
  for (unsigned i = kAvx; i < 8; ++i) {
    if (l.length[i] != 0) std::memcpy(to + l.offset[i], from + l.offset[i], l.length[i]);
  }
  const uint64_t bits = (load64(to + kHeader) & ~uint64_t{l.mask}) | load64(from + kHeader);
  std::memcpy(to + kHeader, &bits, sizeof bits);
}

void Machine::commit(uint64_t addr, const std::byte* operand) {
  const auto* frame = reinterpret_cast<const Frame*>(bench_.frame());
  // x87 remembers where its last instruction and that one's operand were.
  std::byte* x87 = bench_.state_out();
  constexpr size_t kLastInstruction = 8, kLastOperand = 16;
  if (load64(x87 + kLastInstruction) == frame->entry) {
    const uint64_t at = rip();
    std::memcpy(x87 + kLastInstruction, &at, sizeof at);
  }
  if (load64(x87 + kLastOperand) == reinterpret_cast<uint64_t>(operand)) {
    std::memcpy(x87 + kLastOperand, &addr, sizeof addr);
  }
  for (unsigned i = 0; i < 16; ++i) {
    if (static_cast<int>(i) != bit_register_) set_gpr(i, frame->gpr[i], 8);
  }
  set_flags(frame->flags, kArithmetic | kDown);
  commit_state();
  advance();
}

// What would raise an exception in the CPU must not be tried.
// Complexity: one case for each way in which the CPU refuses.
// NOLINTNEXTLINE(readability-function-cognitive-complexity)
Stop Machine::would_trap(const ZydisDecodedOperand& op, const std::byte* operand) const {
  const unsigned size = op.size / 8;
  if (insn_.mnemonic == ZYDIS_MNEMONIC_DIV || insn_.mnemonic == ZYDIS_MNEMONIC_IDIV) {
    uint64_t divisor = 0;
    std::memcpy(&divisor, operand, size);
    const unsigned bits = size * 8;
    const uint64_t ones = size == 8 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
    const uint64_t low = gpr(kRax) & ones;
    const uint64_t high = (size == 1 ? gpr(kRax) >> 8 : gpr(kRdx)) & ones;
    bool bad = divisor == 0 || high >= divisor;
    if (insn_.mnemonic == ZYDIS_MNEMONIC_IDIV && divisor != 0) {
      // By magnitudes: the quotient of the signed ones must fit.
      __extension__ using Wide = unsigned __int128;
      const uint64_t sign = uint64_t{1} << (bits - 1);
      const bool dividend_negative = (high & sign) != 0, divisor_negative = (divisor & sign) != 0;
      const Wide wide_ones = size == 8 ? ~Wide{0} : (Wide{1} << (2 * bits)) - 1;
      Wide dividend = (Wide{high} << bits) | low;
      if (dividend_negative) dividend = (~dividend + 1) & wide_ones;
      const Wide by = divisor_negative ? (~divisor + 1) & ones : divisor;
      const Wide quotient = dividend / by;
      bad = quotient > (dividend_negative != divisor_negative ? Wide{sign} : Wide{sign} - 1);
    }
    if (bad) return Stop::signal(SIGFPE, FPE_INTDIV, rip());
  }
  uint32_t mxcsr = 0;
  switch (insn_.mnemonic) {
    case ZYDIS_MNEMONIC_LDMXCSR:
    case ZYDIS_MNEMONIC_VLDMXCSR:
      mxcsr = load32(operand);
      break;
    case ZYDIS_MNEMONIC_FXRSTOR:
    case ZYDIS_MNEMONIC_FXRSTOR64:
      mxcsr = load32(operand + kMxcsr);
      break;
    default:
      break;
  }
  if ((mxcsr & ~0xffffu) != 0) return Stop::signal(SIGSEGV, SI_KERNEL, 0);
  return {};
}

// Computes on what was there, and stores if it still is; else computes anew.
Stop Machine::change_atomically(uint64_t addr, std::byte* operand, size_t size) {
  constexpr size_t kLine = 64;  // a CPU at home locks no more than one
  if (size > 16 || (size & (size - 1)) != 0 || addr % kLine + size > kLine) {
    return Stop::cannot(rip());
  }
  std::byte old[16];
  if (Stop s = memory_.read_for_swap(addr, old, size)) return s;
  for (;;) {
    std::memcpy(operand, old, size);
    if (Stop s = run(operand)) return s;
    std::byte found[16];
    if (Stop s = memory_.swap(addr, old, operand, found, size)) return s;
    if (std::memcmp(found, old, size) == 0) break;
    std::memcpy(old, found, size);
  }
  commit(addr, operand);
  return {};
}

// Complexity: one case for each instruction.
// NOLINTNEXTLINE(readability-function-cognitive-complexity)
Stop Machine::with_one_operand() {
  const ZydisDecodedOperand* op = memory_operand();
  if (op == nullptr || op->mem.type != ZYDIS_MEMOP_TYPE_MEM ||
      op->encoding != ZYDIS_OPERAND_ENCODING_MODRM_RM || op->size == 0 ||
      op->size / 8 > Bench::kOperand) {
    return Stop::cannot(rip());
  }
  if (ops_[0].type == ZYDIS_OPERAND_TYPE_REGISTER && writes(ops_[0]) &&
      ZydisRegisterGetClass(ops_[0].reg.value) == ZYDIS_REGCLASS_SEGMENT) {
    return Stop::cannot(rip());
  }
  const size_t size = op->size / 8;
  uint64_t addr = address_of(*op);
  if (is_bit_test(insn_.mnemonic) && ops_[1].type == ZYDIS_OPERAND_TYPE_REGISTER) {
    // Bits of the register beyond the operand's own reach into memory before and behind it.
    bit_register_ = static_cast<int>(number_of(ops_[1].reg.value)) & 15;
    const unsigned shift = 64 - op->size;
    const auto offset =
        static_cast<int64_t>(gpr(static_cast<unsigned>(bit_register_)) << shift) >> shift;
    addr += static_cast<uint64_t>((offset >> __builtin_ctz(op->size)) * static_cast<int64_t>(size));
    bit_offset_ = static_cast<uint64_t>(offset) & (op->size - 1);
  }
  // As aligned as the original, so that what looks at that finds it.
  std::byte* operand = bench_.operand() + addr % 64;
  load_state();
  if (writes(*op) && locked(*op)) return change_atomically(addr, operand, size);
  if (reads(*op)) {
    std::memset(operand, 0, size);
    uint8_t wanted[64];
    const bool some = size <= sizeof wanted && wanted_bytes(*op, wanted);
    if (Stop s = memory_.read(addr, operand, size, some ? wanted : nullptr)) return s;
    if (Stop s = would_trap(*op, operand)) return s;
    if (Stop s = run(operand)) return s;
    if (writes(*op)) {
      if (Stop s = memory_.write(addr, operand, size, nullptr)) return s;
    }
  } else {
    // Over two backgrounds that differ in each byte: where the results agree, it has stored.
    std::byte* first = bench_.buffer(0);
    std::memset(operand, 0x5a, size);
    if (Stop s = run(operand)) return s;
    std::memcpy(first, operand, size);
    std::memset(operand, 0xa5, size);
    if (Stop s = run(operand)) return s;
    auto* written = reinterpret_cast<uint8_t*>(bench_.buffer(1));
    bool all = true;
    for (size_t i = 0; i < size; ++i) {
      written[i] = first[i] == operand[i] ? 1 : 0;
      all = all && written[i] != 0;
    }
    if (Stop s = memory_.write(addr, operand, size, all ? nullptr : written)) return s;
  }
  commit(addr, operand);
  return {};
}

}  // namespace cmi::emulate

// Instructions that use the stack beside their operand, and those that name it in their own way.
// The stack itself is never in a write-through segment: the kernel could not have put the handler's
// frame there.
#include <cstring>

#include "core/emulate/x86_machine.hpp"

namespace cmi::emulate {

Stop Machine::push() {
  const unsigned size = insn_.operand_width / 8;
  if (ops_[0].type != ZYDIS_OPERAND_TYPE_MEMORY || (size != 2 && size != 8)) {
    return Stop::cannot(rip());
  }
  std::byte value[8];
  if (Stop s = memory_.read(address_of(ops_[0]), value, size, nullptr)) return s;
  const uint64_t top = gpr(kRsp) - size;
  if (Stop s = memory_.write(top, value, size, nullptr)) return s;
  set_gpr(kRsp, top, 8);
  advance();
  return {};
}

Stop Machine::pop() {
  const unsigned size = insn_.operand_width / 8;
  if (ops_[0].type != ZYDIS_OPERAND_TYPE_MEMORY || (size != 2 && size != 8)) {
    return Stop::cannot(rip());
  }
  std::byte value[8];
  const uint64_t top = gpr(kRsp);
  if (Stop s = memory_.read(top, value, size, nullptr)) return s;
  // An address that is relative to the stack pointer is so after the pop.
  set_gpr(kRsp, top + size, 8);
  if (Stop s = memory_.write(address_of(ops_[0]), value, size, nullptr)) {
    set_gpr(kRsp, top, 8);
    return s;
  }
  advance();
  return {};
}

Stop Machine::jump_or_call() {
  const bool call = insn_.mnemonic == ZYDIS_MNEMONIC_CALL;
  if (ops_[0].type != ZYDIS_OPERAND_TYPE_MEMORY || ops_[0].size != 64 ||
      insn_.meta.branch_type != ZYDIS_BRANCH_TYPE_NEAR) {
    return Stop::cannot(rip());
  }
  std::byte value[8];
  if (Stop s = memory_.read(address_of(ops_[0]), value, sizeof value, nullptr)) return s;
  if (call) {
    const uint64_t top = gpr(kRsp) - sizeof(uint64_t), back = next();
    std::byte bytes[8];
    std::memcpy(bytes, &back, sizeof back);
    if (Stop s = memory_.write(top, bytes, sizeof bytes, nullptr)) return s;
    set_gpr(kRsp, top, 8);
  }
  uint64_t target;
  std::memcpy(&target, value, sizeof target);
  greg_[REG_RIP] = static_cast<greg_t>(target);
  return {};
}

// XLAT: AL from the table at RBX.
Stop Machine::translate() {
  const ZydisDecodedOperand* op = memory_operand();
  if (op == nullptr) return Stop::cannot(rip());
  uint64_t at = gpr(kRbx) + (gpr(kRax) & 0xff);
  if (insn_.address_width == 32) at &= UINT32_MAX;
  std::byte value;
  if (Stop s = memory_.read(at + segment_base(op->mem.segment), &value, 1, nullptr)) return s;
  set_gpr(kRax, static_cast<uint64_t>(value), 1);
  advance();
  return {};
}

// MOV between the accumulator and an address of 64 bits.
Stop Machine::move_absolute() {
  const ZydisDecodedOperand* op = memory_operand();
  if (op == nullptr || op->size > 64) return Stop::cannot(rip());
  const unsigned size = op->size / 8;
  std::byte value[8] = {};
  if (writes(*op)) {
    const uint64_t from = gpr(kRax);
    std::memcpy(value, &from, sizeof from);
    if (Stop s = memory_.write(address_of(*op), value, size, nullptr)) return s;
  } else {
    if (Stop s = memory_.read(address_of(*op), value, size, nullptr)) return s;
    uint64_t to;
    std::memcpy(&to, value, sizeof to);
    set_gpr(kRax, to, size);
  }
  advance();
  return {};
}

// MOVDIR64B: 64 bytes, all at once, to the address in a register.
Stop Machine::move_64() {
  const ZydisDecodedOperand* source = nullptr;
  for (unsigned i = 0; i < insn_.operand_count; ++i) {
    if (ops_[i].type == ZYDIS_OPERAND_TYPE_MEMORY &&
        ops_[i].encoding == ZYDIS_OPERAND_ENCODING_MODRM_RM) {
      source = &ops_[i];
    }
  }
  if (source == nullptr) return Stop::cannot(rip());
  const bool extended = (insn_.attributes & ZYDIS_ATTRIB_HAS_REX) != 0 && insn_.raw.rex.R != 0;
  uint64_t to = gpr((bytes_[insn_.raw.modrm.offset] >> 3 & 7u) + (extended ? 8u : 0u));
  if (insn_.address_width == 32) to &= UINT32_MAX;
  std::byte value[64];
  if (Stop s = memory_.read(address_of(*source), value, sizeof value, nullptr)) return s;
  if (Stop s = memory_.write(to, value, sizeof value, nullptr)) return s;
  advance();
  return {};
}

}  // namespace cmi::emulate

// Gathers and scatters, element by element; stores of chosen bytes; and which bytes a masked load
// looks at.
#include <cstring>

#include "core/emulate/x86_machine.hpp"

namespace cmi::emulate {

namespace {

bool is_mask(ZydisRegister r) { return ZydisRegisterGetClass(r) == ZYDIS_REGCLASS_MASK; }

// Bytes of an element of the index.
unsigned index_size(ZydisMnemonic m) {
  switch (m) {
    case ZYDIS_MNEMONIC_VGATHERDPS:
    case ZYDIS_MNEMONIC_VGATHERDPD:
    case ZYDIS_MNEMONIC_VPGATHERDD:
    case ZYDIS_MNEMONIC_VPGATHERDQ:
    case ZYDIS_MNEMONIC_VSCATTERDPS:
    case ZYDIS_MNEMONIC_VSCATTERDPD:
    case ZYDIS_MNEMONIC_VPSCATTERDD:
    case ZYDIS_MNEMONIC_VPSCATTERDQ:
      return 4;
    case ZYDIS_MNEMONIC_VGATHERQPS:
    case ZYDIS_MNEMONIC_VGATHERQPD:
    case ZYDIS_MNEMONIC_VPGATHERQD:
    case ZYDIS_MNEMONIC_VPGATHERQQ:
    case ZYDIS_MNEMONIC_VSCATTERQPS:
    case ZYDIS_MNEMONIC_VSCATTERQPD:
    case ZYDIS_MNEMONIC_VPSCATTERQD:
    case ZYDIS_MNEMONIC_VPSCATTERQQ:
      return 8;
    default:
      return 0;
  }
}

unsigned data_size(ZydisMnemonic m) {
  switch (m) {
    case ZYDIS_MNEMONIC_VGATHERDPS:
    case ZYDIS_MNEMONIC_VPGATHERDD:
    case ZYDIS_MNEMONIC_VGATHERQPS:
    case ZYDIS_MNEMONIC_VPGATHERQD:
    case ZYDIS_MNEMONIC_VSCATTERDPS:
    case ZYDIS_MNEMONIC_VPSCATTERDD:
    case ZYDIS_MNEMONIC_VSCATTERQPS:
    case ZYDIS_MNEMONIC_VPSCATTERQD:
      return 4;
    default:
      return 8;
  }
}

// Bytes of an element of a move under a vector's signs; 0: it is no such move.
unsigned masked_move_element(ZydisMnemonic m) {
  switch (m) {
    case ZYDIS_MNEMONIC_VMASKMOVPS:
    case ZYDIS_MNEMONIC_VPMASKMOVD:
      return 4;
    case ZYDIS_MNEMONIC_VMASKMOVPD:
    case ZYDIS_MNEMONIC_VPMASKMOVQ:
      return 8;
    default:
      return 0;
  }
}

// The same of a move under a mask register. *contiguous: the elements follow each other in memory,
// as many as the mask has bits set.
unsigned opmask_move_element(ZydisMnemonic m, bool* contiguous) {
  *contiguous = m == ZYDIS_MNEMONIC_VEXPANDPS || m == ZYDIS_MNEMONIC_VPEXPANDD ||
                m == ZYDIS_MNEMONIC_VEXPANDPD || m == ZYDIS_MNEMONIC_VPEXPANDQ;
  switch (m) {
    case ZYDIS_MNEMONIC_VMOVDQU8:
      return 1;
    case ZYDIS_MNEMONIC_VMOVDQU16:
      return 2;
    case ZYDIS_MNEMONIC_VMOVDQA32:
    case ZYDIS_MNEMONIC_VMOVDQU32:
    case ZYDIS_MNEMONIC_VMOVAPS:
    case ZYDIS_MNEMONIC_VMOVUPS:
    case ZYDIS_MNEMONIC_VEXPANDPS:
    case ZYDIS_MNEMONIC_VPEXPANDD:
      return 4;
    case ZYDIS_MNEMONIC_VMOVDQA64:
    case ZYDIS_MNEMONIC_VMOVDQU64:
    case ZYDIS_MNEMONIC_VMOVAPD:
    case ZYDIS_MNEMONIC_VMOVUPD:
    case ZYDIS_MNEMONIC_VEXPANDPD:
    case ZYDIS_MNEMONIC_VPEXPANDQ:
      return 8;
    default:
      return 0;
  }
}

}  // namespace

// The addresses, the vector that is gathered or scattered, and what chooses its elements.
struct Machine::GatherOperands {
  const ZydisDecodedOperand* at = nullptr;
  const ZydisDecodedOperand* data = nullptr;
  const ZydisDecodedOperand* mask = nullptr;
};

Machine::GatherOperands Machine::gather_operands() const {
  GatherOperands found;
  for (unsigned i = 0; i < insn_.operand_count_visible; ++i) {
    if (ops_[i].type == ZYDIS_OPERAND_TYPE_MEMORY) {
      found.at = &ops_[i];
    } else if (ops_[i].type == ZYDIS_OPERAND_TYPE_REGISTER) {
      // A vector before the mask is the data; of the AVX2 forms the last one is the mask.
      if (is_mask(ops_[i].reg.value) || found.data != nullptr) {
        found.mask = &ops_[i];
      } else {
        found.data = &ops_[i];
      }
    }
  }
  // EVEX scatters name the data behind the mask.
  if (insn_.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX) {
    for (unsigned i = 0; i < insn_.operand_count_visible; ++i) {
      if (ops_[i].type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
      (is_mask(ops_[i].reg.value) ? found.mask : found.data) = &ops_[i];
    }
  }
  return found;
}

Stop Machine::gather_or_scatter() {
  const unsigned index_bytes = index_size(insn_.mnemonic), bytes = data_size(insn_.mnemonic);
  const auto [op, data, mask] = gather_operands();
  if (index_bytes == 0 || op == nullptr || data == nullptr || mask == nullptr ||
      op->mem.type != ZYDIS_MEMOP_TYPE_VSIB) {
    return Stop::cannot(rip());
  }
  std::byte* state = client_state();
  const unsigned data_number = number_of(data->reg.value), mask_number = number_of(mask->reg.value);
  const bool scatter = insn_.meta.category == ZYDIS_CATEGORY_SCATTER;
  const bool by_vector = !is_mask(mask->reg.value);
  std::byte index[64], value[64], chosen[64] = {};
  get_vector(state, number_of(op->mem.index), index);
  get_vector(state, data_number, value);
  uint64_t left = 0;  // elements to do
  const unsigned n = insn_.avx.vector_length / 8 / (index_bytes > bytes ? index_bytes : bytes);
  if (by_vector) {
    get_vector(state, mask_number, chosen);
    for (unsigned i = 0; i < n; ++i) {
      left |= static_cast<uint64_t>(static_cast<uint8_t>(chosen[(i + 1) * bytes - 1]) >> 7) << i;
    }
  } else {
    left = get_mask(state, mask_number) & ((uint64_t{1} << n) - 1);
  }
  for (unsigned i = 0; i < n; ++i) {
    if ((left >> i & 1) == 0) continue;
    uint64_t at = 0;
    std::memcpy(&at, index + i * index_bytes, index_bytes);
    if (index_bytes == 4) at = static_cast<uint64_t>(int64_t{static_cast<int32_t>(at)});
    at = address_of(*op, at);
    std::byte* const e = value + i * bytes;
    const Stop s =
        scatter ? memory_.write(at, e, bytes, nullptr) : memory_.read(at, e, bytes, nullptr);
    if (s) {
      // The elements that are stored already are done, and the mask says so.
      if (scatter) set_mask(state, mask_number, left);
      return s;
    }
    left &= ~(uint64_t{1} << i);
  }
  if (!scatter) {
    const size_t length = n * bytes;
    std::memset(value + length, 0, sizeof value - length);
    set_vector(state, data_number, value);
  }
  if (by_vector) {
    const std::byte none[64] = {};
    set_vector(state, mask_number, none);
  } else {
    set_mask(state, mask_number, 0);
  }
  advance();
  return {};
}

// MASKMOVDQU and its AVX form: the bytes whose sign is set in the mask, to the address in RDI.
Stop Machine::move_masked_bytes() {
  const ZydisDecodedOperand* op = memory_operand();
  const ZydisDecodedOperand* registers[2] = {};
  unsigned found = 0;
  for (unsigned i = 0; i < insn_.operand_count && found < 2; ++i) {
    if (ops_[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
        ZydisRegisterGetClass(ops_[i].reg.value) == ZYDIS_REGCLASS_XMM) {
      registers[found++] = &ops_[i];
    }
  }
  if (op == nullptr || found != 2) return Stop::cannot(rip());
  std::byte value[64], mask[64];
  get_vector(client_state(), number_of(registers[0]->reg.value), value);
  get_vector(client_state(), number_of(registers[1]->reg.value), mask);
  uint8_t written[16];
  for (unsigned i = 0; i < sizeof written; ++i) written[i] = static_cast<uint8_t>(mask[i]) >> 7;
  uint64_t to = gpr(kRdi);
  if (insn_.address_width == 32) to &= UINT32_MAX;
  to += segment_base(op->mem.segment);
  if (Stop s = memory_.write(to, value, sizeof written, written)) return s;
  advance();
  return {};
}

// Of plain moves the mask chooses bytes of the operand; of expanding ones it says how many. What
// others do with masked elements is theirs: they get all bytes.
bool Machine::wanted_bytes(const ZydisDecodedOperand& op, uint8_t* wanted) const {
  const size_t size = op.size / 8;
  const std::byte* state = client_state();
  if (const unsigned bytes = masked_move_element(insn_.mnemonic); bytes != 0) {
    std::byte mask[64];
    get_vector(state, number_of(ops_[1].reg.value), mask);
    for (size_t i = 0; i < size; ++i) {
      wanted[i] = static_cast<uint8_t>(mask[i / bytes * bytes + bytes - 1]) >> 7;
    }
    return true;
  }
  bool contiguous = false;
  const unsigned bytes = opmask_move_element(insn_.mnemonic, &contiguous);
  if (bytes == 0) return false;
  if (insn_.encoding != ZYDIS_INSTRUCTION_ENCODING_EVEX ||
      insn_.avx.mask.reg == ZYDIS_REGISTER_NONE || insn_.avx.mask.reg == ZYDIS_REGISTER_K0) {
    return false;
  }
  const size_t n = size / bytes;
  uint64_t mask = get_mask(state, number_of(insn_.avx.mask.reg));
  if (n < 64) mask &= (uint64_t{1} << n) - 1;
  if (contiguous) {
    const int k = __builtin_popcountll(mask);
    mask = k == 64 ? UINT64_MAX : (uint64_t{1} << k) - 1;
  }
  for (size_t i = 0; i < size; ++i) wanted[i] = mask >> (i / bytes) & 1;
  return true;
}

}  // namespace cmi::emulate

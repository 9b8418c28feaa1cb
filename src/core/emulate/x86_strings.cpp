// MOVS, STOS, LODS, SCAS and CMPS, with and without repetition. Of a repeated one some elements at
// a time: then the thread goes on with the same instruction and the rest, and takes its signals in
// between, as on the CPU.
#include <algorithm>
#include <cstring>

#include "core/emulate/x86_machine.hpp"

namespace cmi::emulate {

namespace {

uint64_t element(const std::byte* at, unsigned size) {
  uint64_t v = 0;
  std::memcpy(&v, at, size);
  return v;
}

}  // namespace

Stop Machine::string() {
  enum class What { kMove, kStore, kLoad, kScan, kCompare } what;
  switch (insn_.mnemonic) {
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_MOVSQ:
      what = What::kMove;
      break;
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
      what = What::kStore;
      break;
    case ZYDIS_MNEMONIC_LODSB:
    case ZYDIS_MNEMONIC_LODSW:
    case ZYDIS_MNEMONIC_LODSD:
    case ZYDIS_MNEMONIC_LODSQ:
      what = What::kLoad;
      break;
    case ZYDIS_MNEMONIC_SCASB:
    case ZYDIS_MNEMONIC_SCASW:
    case ZYDIS_MNEMONIC_SCASD:
    case ZYDIS_MNEMONIC_SCASQ:
      what = What::kScan;
      break;
    case ZYDIS_MNEMONIC_CMPSB:
    case ZYDIS_MNEMONIC_CMPSW:
    case ZYDIS_MNEMONIC_CMPSD:
    case ZYDIS_MNEMONIC_CMPSQ:
      what = What::kCompare;
      break;
    default:
      return Stop::cannot(rip());
  }
  unsigned size = 0;
  uint64_t source_base = 0;
  for (unsigned i = 0; i < insn_.operand_count; ++i) {
    if (ops_[i].type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    size = ops_[i].size / 8;
    if (ops_[i].mem.base == ZYDIS_REGISTER_RSI || ops_[i].mem.base == ZYDIS_REGISTER_ESI) {
      source_base = segment_base(ops_[i].mem.segment);
    }
  }
  if (size == 0 || size > 8) return Stop::cannot(rip());
  // Registers of 32 bits count and point with a short address.
  const bool narrow = insn_.address_width == 32;
  const uint64_t reach = narrow ? UINT32_MAX : UINT64_MAX;
  const unsigned width = narrow ? 4 : 8;
  const bool until_differs = (insn_.attributes & ZYDIS_ATTRIB_HAS_REPE) != 0;
  const bool until_equal = (insn_.attributes & ZYDIS_ATTRIB_HAS_REPNE) != 0;
  const bool repeated =
      until_differs || until_equal || (insn_.attributes & ZYDIS_ATTRIB_HAS_REP) != 0;
  const uint64_t count = repeated ? gpr(kRcx) & reach : 1;
  if (count == 0) {
    advance();
    return {};
  }
  const bool down = (flags() & kDown) != 0;
  const uint64_t from = (gpr(kRsi) & reach) + source_base, to = gpr(kRdi) & reach;
  const bool uses_source = what == What::kMove || what == What::kLoad || what == What::kCompare;
  const bool uses_target = what != What::kLoad;

  // As many as lie in one page each, so that no more is touched than the CPU would have to.
  uint64_t n = count;
  const auto within_page = [&](uint64_t at) {
    const uint64_t in_page = at % Bench::kPage;
    const uint64_t fit = down ? in_page / size + (in_page + size <= Bench::kPage ? 1 : 0)
                              : (Bench::kPage - in_page) / size;
    n = std::min(n, std::max<uint64_t>(fit, 1));
  };
  if (uses_source) within_page(from);
  if (uses_target) within_page(to);
  if (what == What::kMove) {
    // What has been stored and is read again later on in the same copy.
    const uint64_t distance = down ? from - to : to - from;
    if (distance != 0 && distance < n * size) n = std::max<uint64_t>(distance / size, 1);
  }
  const uint64_t back = down ? (n - 1) * size : 0;  // from the first element to the lowest
  const size_t length = n * size;
  // The i-th element in the order of the instruction, in a copy of all of them.
  const auto nth = [&](const std::byte* copy, uint64_t i) {
    return element(copy + (down ? n - 1 - i : i) * size, size);
  };
  const auto compare = [&](uint64_t a, uint64_t b) {
    const uint64_t ones = size == 8 ? UINT64_MAX : (uint64_t{1} << (8 * size)) - 1;
    const uint64_t sign = uint64_t{1} << (8 * size - 1);
    a &= ones;
    b &= ones;
    const uint64_t r = (a - b) & ones;
    set_flags((a < b ? kCarry : 0) | (r == 0 ? kZero : 0) | ((r & sign) != 0 ? kSign : 0) |
                  (__builtin_parity(static_cast<unsigned>(r & 0xff)) == 0 ? kParity : 0) |
                  (((a ^ b ^ r) & 0x10) != 0 ? kAdjust : 0) |
                  (((a ^ b) & (a ^ r) & sign) != 0 ? kOverflow : 0),
              kArithmetic);
    return r == 0;
  };

  std::byte* const source = bench_.buffer(0);
  std::byte* const target = bench_.buffer(1);
  if (uses_source) {
    if (Stop s = memory_.read(from - back, source, length, nullptr)) return s;
  }
  uint64_t done = n;
  bool over = false;
  const uint64_t accumulator = gpr(kRax);
  switch (what) {
    case What::kMove:
      if (Stop s = memory_.write(to - back, source, length, nullptr)) return s;
      break;
    case What::kStore:
      for (uint64_t i = 0; i < n; ++i) std::memcpy(target + i * size, &accumulator, size);
      if (Stop s = memory_.write(to - back, target, length, nullptr)) return s;
      break;
    case What::kLoad:
      set_gpr(kRax, nth(source, n - 1), size);
      break;
    case What::kScan:
    case What::kCompare:
      if (Stop s = memory_.read(to - back, target, length, nullptr)) return s;
      for (done = 0; done < n && !over;) {
        const uint64_t a = what == What::kScan ? accumulator : nth(source, done);
        const bool equal = compare(a, nth(target, done));
        ++done;
        over = repeated && (equal ? until_equal : !until_equal);
      }
      break;
  }
  const uint64_t moved = down ? ~(done * size) + 1 : done * size;
  if (uses_source) set_gpr(kRsi, gpr(kRsi) + moved, width);
  if (uses_target) set_gpr(kRdi, gpr(kRdi) + moved, width);
  if (repeated) {
    set_gpr(kRcx, count - done, width);
    if (count != done && !over) return {};
  }
  advance();
  return {};
}

}  // namespace cmi::emulate

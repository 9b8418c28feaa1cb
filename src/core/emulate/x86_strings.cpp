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

// One execution: of a repeated instruction, the elements that are done at once.
struct Machine::StringStep {
  enum class What { kMove, kStore, kLoad, kScan, kCompare, kNone };
  What what = What::kNone;
  unsigned size = 0;  // bytes of an element
  bool down = false;
  bool repeated = false, until_equal = false;
  uint64_t from = 0, to = 0;  // of the first element
  uint64_t count = 1;         // elements that are left for the instruction
  uint64_t n = 0;             // elements of this step
  uint64_t done = 0;
  bool over = false;  // a comparison has ended the repetition

  bool uses_source() const {
    return what == What::kMove || what == What::kLoad || what == What::kCompare;
  }
  bool uses_target() const { return what != What::kLoad; }
  uint64_t back() const {
    return down ? (n - 1) * size : 0;
  }  // from the first element to the lowest
  // The i-th element in the order of the instruction, in a copy of all of them.
  uint64_t nth(const std::byte* copy, uint64_t i) const {
    return element(copy + (down ? n - 1 - i : i) * size, size);
  }
  void choose_n();
  static What what_it_does(ZydisMnemonic m);
};

Machine::StringStep::What Machine::StringStep::what_it_does(ZydisMnemonic m) {
  switch (m) {
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_MOVSQ:
      return What::kMove;
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
      return What::kStore;
    case ZYDIS_MNEMONIC_LODSB:
    case ZYDIS_MNEMONIC_LODSW:
    case ZYDIS_MNEMONIC_LODSD:
    case ZYDIS_MNEMONIC_LODSQ:
      return What::kLoad;
    case ZYDIS_MNEMONIC_SCASB:
    case ZYDIS_MNEMONIC_SCASW:
    case ZYDIS_MNEMONIC_SCASD:
    case ZYDIS_MNEMONIC_SCASQ:
      return What::kScan;
    case ZYDIS_MNEMONIC_CMPSB:
    case ZYDIS_MNEMONIC_CMPSW:
    case ZYDIS_MNEMONIC_CMPSD:
    case ZYDIS_MNEMONIC_CMPSQ:
      return What::kCompare;
    default:
      return What::kNone;
  }
}

// As many as lie in one page each, so that no more is touched than the CPU would have to.
void Machine::StringStep::choose_n() {
  n = count;
  const auto within_page = [&](uint64_t at) {
    const uint64_t in_page = at % Bench::kPage;
    const uint64_t fit = down ? in_page / size + (in_page + size <= Bench::kPage ? 1 : 0)
                              : (Bench::kPage - in_page) / size;
    n = std::min(n, std::max<uint64_t>(fit, 1));
  };
  if (uses_source()) within_page(from);
  if (uses_target()) within_page(to);
  if (what == What::kMove) {
    // What has been stored and is read again later on in the same copy.
    const uint64_t distance = down ? from - to : to - from;
    if (distance != 0 && distance < n * size) n = std::max<uint64_t>(distance / size, 1);
  }
}

// Sets the flags as CMP does. Whether the two are equal.
bool Machine::compare(uint64_t a, uint64_t b, unsigned size) {
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
}

// Reads, computes and writes the elements of one step; registers are left to string().
Stop Machine::do_elements(StringStep& step) {
  using What = StringStep::What;
  std::byte* const source = bench_.buffer(0);
  std::byte* const target = bench_.buffer(1);
  const uint64_t n = step.n;
  const size_t length = n * step.size;
  if (step.uses_source()) {
    if (Stop s = memory_.read(step.from - step.back(), source, length, nullptr)) return s;
  }
  step.done = n;
  const uint64_t accumulator = gpr(kRax);
  const uint64_t to = step.to - step.back();
  switch (step.what) {
    case What::kMove:
      return memory_.write(to, source, length, nullptr);
    case What::kStore:
      for (uint64_t i = 0; i < n; ++i) {
        std::memcpy(target + i * step.size, &accumulator, step.size);
      }
      return memory_.write(to, target, length, nullptr);
    case What::kLoad:
      set_gpr(kRax, step.nth(source, n - 1), step.size);
      break;
    case What::kScan:
    case What::kCompare:
      if (Stop s = memory_.read(to, target, length, nullptr)) return s;
      for (step.done = 0; step.done < n && !step.over;) {
        const uint64_t a = step.what == What::kScan ? accumulator : step.nth(source, step.done);
        const bool equal = compare(a, step.nth(target, step.done), step.size);
        ++step.done;
        step.over = step.repeated && (equal ? step.until_equal : !step.until_equal);
      }
      break;
    case What::kNone:
      break;
  }
  return {};
}

Stop Machine::string() {
  StringStep step;
  step.what = StringStep::what_it_does(insn_.mnemonic);
  if (step.what == StringStep::What::kNone) return Stop::cannot(rip());
  uint64_t source_base = 0;
  for (unsigned i = 0; i < insn_.operand_count; ++i) {
    if (ops_[i].type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    step.size = ops_[i].size / 8;
    if (ops_[i].mem.base == ZYDIS_REGISTER_RSI || ops_[i].mem.base == ZYDIS_REGISTER_ESI) {
      source_base = segment_base(ops_[i].mem.segment);
    }
  }
  if (step.size == 0 || step.size > 8) return Stop::cannot(rip());
  // Registers of 32 bits count and point with a short address.
  const bool narrow = insn_.address_width == 32;
  const uint64_t reach = narrow ? UINT32_MAX : UINT64_MAX;
  const unsigned width = narrow ? 4 : 8;
  step.until_equal = (insn_.attributes & ZYDIS_ATTRIB_HAS_REPNE) != 0;
  step.repeated = step.until_equal || (insn_.attributes & ZYDIS_ATTRIB_HAS_REPE) != 0 ||
                  (insn_.attributes & ZYDIS_ATTRIB_HAS_REP) != 0;
  if (step.repeated) step.count = gpr(kRcx) & reach;
  if (step.count == 0) {
    advance();
    return {};
  }
  step.down = (flags() & kDown) != 0;
  step.from = (gpr(kRsi) & reach) + source_base;
  step.to = gpr(kRdi) & reach;
  step.choose_n();
  if (Stop s = do_elements(step)) return s;

  const uint64_t moved = step.down ? ~(step.done * step.size) + 1 : step.done * step.size;
  if (step.uses_source()) set_gpr(kRsi, gpr(kRsi) + moved, width);
  if (step.uses_target()) set_gpr(kRdi, gpr(kRdi) + moved, width);
  if (step.repeated) {
    set_gpr(kRcx, step.count - step.done, width);
    if (step.count != step.done && !step.over) return {};
  }
  advance();
  return {};
}

}  // namespace cmi::emulate

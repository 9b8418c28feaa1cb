// Instructions on a write-through segment do what they do on ordinary memory: to registers, flags,
// memory and the stack, whatever their form, and they raise what they would raise there. One
// process has the segment at home and imports it.
#include <asm/prctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cfenv>
#include <csetjmp>
#include <initializer_list>
#include <string>
#include <vector>

#include "support/skip.hpp"
#include "system/one_process.hpp"
#include "through/forms.hpp"

namespace cmi::test::instructions_test {

namespace {

constexpr size_t kPages = 16, kSize = kPages * 4096, kOther = 8192, kMiddle = 4 * 4096;

// A segment at home, and the view of it that a write-through import has.
class Through : public one_process::Process {
 public:
  // False: there are none, and the case is skipped.
  bool open(cmi_acc rights = CMI_ACC_READ | CMI_ACC_WRITE) {
    ini();
    if ((ctxt->caps & CMI_CAP_WRITE_THROUGH) == 0) {
      skip("this build has no write-through segments");
      return false;
    }
    seg = segment(kPages);
    home = attach(seg);
    cmi_rseg* rseg = CALL(seg_exp, seg, CMI_SEG_WRITE_THROUGH);
    REQUIRE(rseg != nullptr);
    import = CALL(seg_imp, rseg);
    REQUIRE(import > 0);
    cmi_ds ds;
    ds.token.tok = token(seg, rights);
    REQUIRE(CALL(seg_ctl, import, CMI_SEG_TOKEN, &ds) == 0);
    view = attach(import);
    REQUIRE(CALL(cmi_enb, 1) == 0);
    return true;
  }

  cmi_seg seg = 0, import = 0;
  std::byte* home = nullptr;
  std::byte* view = nullptr;
};

// Content that differs from run to run in nothing, with values where some forms need them.
void fill(std::byte* memory, size_t middle) {
  uint64_t seed = 3;
  for (size_t i = 0; i < kSize; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    memory[i] = static_cast<std::byte>(seed >> 40);
  }
  const auto put = [&](size_t at, auto value) {
    std::memcpy(memory + middle + at, &value, sizeof value);
  };
  put(32, uint64_t{0x00007f3500a10bc3});
  put(80, uint16_t{0x27f});   // for FLDCW
  put(84, uint32_t{0x9fc0});  // for LDMXCSR
  put(96, form_end_address());
}

struct Outcome {
  Registers registers;
  std::vector<std::byte> memory, other, stack, state;
};

alignas(4096) std::byte g_plain[kSize];
alignas(64) std::byte g_other[kOther];

// Of memory at `base` that a form sees at `seen`.
void run_on(const Form& form, std::byte* base, std::byte* seen, size_t middle, Outcome* out) {
  for (size_t i = 0; i < kOther; ++i) g_other[i] = static_cast<std::byte>(i * 7);
  std::byte* const stack = form_stack() - kStackSeen / 2;
  std::memset(stack, 0x11, kStackSeen);
  fill(base, middle);
  out->registers.fill(seen + middle, g_other + kOther / 2);
  run(form, &out->registers);
  out->memory.assign(base, base + kSize);
  out->other.assign(g_other, g_other + kOther);
  out->stack.assign(stack, stack + kStackSeen);
  out->state.resize(kVisible);
  out->state.resize(visible_state(out->registers, out->state.data()));
}

// Where the two differ; empty: nowhere.
std::string difference(const Outcome& plain, const Outcome& through, const std::byte* view) {
  for (unsigned i = 0; i < 16; ++i) {
    const uint64_t a = plain.registers.gpr[i], b = through.registers.gpr[i];
    const uint64_t from = a - reinterpret_cast<uint64_t>(g_plain);
    if (a != b && !(from < kSize && from == b - reinterpret_cast<uint64_t>(view))) {
      return "general register " + std::to_string(i);
    }
  }
  if (plain.registers.flags != through.registers.flags) return "flags";
  if (plain.state != through.state) return "vector or floating point state";
  if (plain.memory != through.memory) return "memory";
  if (plain.other != through.other) return "ordinary memory";
  if (plain.stack != through.stack) return "the stack";
  return "";
}

// Runs all of them with the operand in the middle of a page and, where they may be anywhere, across
// the border of two. Returns how many there were.
size_t compare(Through& process, Needs needs, bool anywhere) {
  static Outcome plain, through;
  for (const Form& form : forms(needs)) {
    const std::string text = form.text;
    CAPTURE(text);
    const bool aligned = !anywhere || text.find("vmova") != text.npos ||
                         text.find("vmovdqa") != text.npos || text.find("vmovnt") != text.npos;
    for (const size_t middle : {kMiddle, kMiddle - 33, kMiddle - 39, kMiddle - 80}) {
      if (aligned && middle != kMiddle) continue;
      CAPTURE(middle);
      run_on(form, g_plain, g_plain, middle, &plain);
      run_on(form, process.home, process.view, middle, &through);
      const std::string differs = difference(plain, through, process.view);
      CHECK_MESSAGE(differs.empty(), "differs in ", differs);
    }
  }
  return forms(needs).size();
}

// ---- What instructions raise

struct Raised {
  int signo = 0, code = 0, error = 0;
  uint64_t address = 0, pc = 0;
  ucontext_t context{};  // general registers
};
sigjmp_buf g_escape;
Raised g_raised;

void on_signal(int signo, siginfo_t* info, void* context) {
  const auto* uc = static_cast<ucontext_t*>(context);
  g_raised.signo = signo;
  g_raised.code = info->si_code;
  g_raised.error = info->si_errno;
  g_raised.address = reinterpret_cast<uint64_t>(info->si_addr);
  g_raised.pc = static_cast<uint64_t>(uc->uc_mcontext.gregs[REG_RIP]);
  g_raised.context.uc_mcontext = uc->uc_mcontext;
  siglongjmp(g_escape, 1);
}

template <class F>
Raised raised_by(F access) {
  struct sigaction handler {};
  struct sigaction former[2];
  handler.sa_sigaction = on_signal;
  handler.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &handler, &former[0]);
  sigaction(SIGFPE, &handler, &former[1]);
  g_raised = {};
  if (sigsetjmp(g_escape, 1) == 0) access();
  sigaction(SIGSEGV, &former[0], nullptr);
  sigaction(SIGFPE, &former[1], nullptr);
  return g_raised;
}

TEST_SUITE_BEGIN("through");

TEST_CASE_FIXTURE(Through, "instructions_do_to_a_write_through_segment_what_they_do_to_memory") {
  if (!open()) return;
  const size_t basic = compare(*this, Needs::kAlways, true);
  const size_t aligned = compare(*this, Needs::kAligned, false);
  CHECK(basic + aligned + compare(*this, Needs::kSse4, false) >= 200);
}

TEST_CASE_FIXTURE(Through,
                  "avx_instructions_do_to_a_write_through_segment_what_they_do_to_memory") {
  if (!open()) return;
  if (compare(*this, Needs::kAvx2, true) == 0) skip("no AVX2 here");
}

TEST_CASE_FIXTURE(Through, "avx512_instructions_do_to_write_through_what_they_do_to_memory") {
  if (!open()) return;
  if (compare(*this, Needs::kAvx512, true) == 0) skip("no AVX-512 here");
}

// A mapping whose middle is the view: what lies before and behind it is ordinary memory.
TEST_CASE_FIXTURE(Through, "an_operand_may_lie_partly_outside_of_the_segment") {
  if (!open()) return;
  REQUIRE(CALL(seg_dt, import, view) == 0);
  const size_t alignment = info().seg_alignment;
  void* all = mmap(nullptr, kSize + 4 * alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(all != MAP_FAILED);
  auto* const begin = reinterpret_cast<std::byte*>(
      (reinterpret_cast<uintptr_t>(all) + 2 * alignment) / alignment * alignment);
  REQUIRE(munmap(begin, kSize) == 0);
  view = static_cast<std::byte*>(CALL(seg_at, import, begin, 0));
  REQUIRE(view == begin);
  REQUIRE(mprotect(begin - 4096, 4096, PROT_READ | PROT_WRITE) == 0);
  for (size_t i = 0; i < 8; ++i) {
    home[i] = std::byte(0x10 + i);
    begin[-8 + static_cast<ptrdiff_t>(i)] = std::byte(0x90 + i);
  }
  auto* word = reinterpret_cast<volatile uint64_t*>(begin - 3);
  uint64_t value = 0;
  asm volatile("movq (%1), %0" : "=r"(value) : "r"(word) : "memory");
  CHECK(value == 0x1413121110979695);
  asm volatile("movq %0, (%1)" : : "r"(uint64_t{0x0807060504030201}), "r"(word) : "memory");
  CHECK(begin[-1] == std::byte{3});
  CHECK(begin[-4] == std::byte{0x94});
  CHECK(home[0] == std::byte{4});
  CHECK(home[4] == std::byte{8});
  CHECK(home[5] == std::byte{0x15});
  // Behind it nothing may be accessed: the plain fault that this is, and nothing is stored.
  std::memset(home + kSize - 8, 0x33, 8);
  const uint64_t end = reinterpret_cast<uint64_t>(begin) + kSize;
  const Raised load = raised_by([&] {
    uint64_t ignored;
    asm volatile("movq (%1), %0" : "=r"(ignored) : "r"(end - 3) : "memory");
  });
  CHECK(load.signo == SIGSEGV);
  CHECK((load.code == SEGV_MAPERR || load.code == SEGV_ACCERR));
  CHECK(load.address == end);
  REQUIRE(mprotect(begin + kSize, 4096, PROT_READ) == 0);
  const Raised store = raised_by([&] {
    asm volatile("movq %0, (%1)" : : "r"(end), "r"(end - 3) : "memory");
  });
  CHECK(store.signo == SIGSEGV);
  CHECK(store.code == SEGV_ACCERR);
  CHECK(store.address == end);
  CHECK(CALL(seg_dt, import, view) == 0);
  munmap(all, kSize + 4 * alignment);
}

// Code of a page of its own in front of the view, so that it can name the view in all ways.
TEST_CASE_FIXTURE(Through, "operands_are_named_by_rip_segments_and_short_or_absolute_addresses") {
  if (!open()) return;
  REQUIRE(CALL(seg_dt, import, view) == 0);
  const uint64_t value = 0x1122334455667788, other = 0x99aabbccddeeff00;
  const size_t alignment = info().seg_alignment;
  // Below 2^32, where an address of 32 bits reaches.
  std::byte* low = nullptr;
  for (uintptr_t at = 0x20000000; low == nullptr && at < 0x70000000; at += 0x1000000) {
    const uintptr_t aligned = (at + alignment) / alignment * alignment;
    low = static_cast<std::byte*>(CALL(seg_at, import, reinterpret_cast<void*>(aligned), 0));
  }
  REQUIRE(low != nullptr);
  view = low;
  void* page = mmap(view - 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  REQUIRE(page == view - 4096);
  auto* const code = static_cast<uint8_t*>(page);
  const auto put = [&](size_t at, std::initializer_list<unsigned> bytes, auto operand) {
    for (unsigned b : bytes) code[at++] = static_cast<uint8_t>(b);
    std::memcpy(code + at, &operand, sizeof operand);
    code[at + sizeof operand] = 0xc3;  // ret
    return at + sizeof operand;
  };
  const auto call = [&](size_t at, uint64_t rax) {
    asm volatile("call *%1" : "+a"(rax) : "r"(code + at) : "memory", "cc");
    return rax;
  };
  std::memcpy(home + 16, &value, sizeof value);
  // mov rax, [rip + ...]; mov [rip + ...], rax; add qword [rip + ...], imm8, which comes behind.
  put(0, {0x48, 0x8b, 0x05}, int32_t{4096 - 7 + 16});
  CHECK(call(0, 0) == value);
  put(32, {0x48, 0x89, 0x05}, int32_t{4096 - 32 - 7 + 24});
  call(32, other);
  CHECK(std::memcmp(home + 24, &other, 8) == 0);
  const size_t end = put(64, {0x48, 0x83, 0x05}, int32_t{4096 - 64 - 8 + 24});
  code[end] = 5;
  code[end + 1] = 0xc3;
  call(64, 0);
  const uint64_t sum = other + 5;
  CHECK(std::memcmp(home + 24, &sum, 8) == 0);
  // mov al/rax to and from an absolute address.
  put(96, {0x48, 0xa1}, reinterpret_cast<uint64_t>(view + 16));
  CHECK(call(96, 0) == value);
  put(128, {0xa2}, reinterpret_cast<uint64_t>(view + 32));
  call(128, 0x1234);
  CHECK(home[32] == std::byte{0x34});
  CHECK(home[33] == std::byte{0});
  // An address of 32 bits in a register that has more.
  uint64_t got = 0;
  const auto narrow = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(view));
  asm volatile("addr32 movq 16(%k1), %0" : "=r"(got) : "r"(uint64_t{narrow} | 0xabcull << 40));
  CHECK(got == value);
  // Relative to the bases of FS and GS.
  uint64_t base = 0;
  asm volatile("movq %%fs:0, %0" : "=r"(base));  // where the base points to itself
  asm volatile("movq %%fs:16(%1), %0" : "=r"(got) : "r"(reinterpret_cast<uint64_t>(view) - base));
  CHECK(got == value);
  REQUIRE(syscall(SYS_arch_prctl, ARCH_SET_GS, view) == 0);
  asm volatile("movq %%gs:16, %0" : "=r"(got));
  asm volatile("incb %%gs:32" : : : "memory", "cc");
  REQUIRE(syscall(SYS_arch_prctl, ARCH_SET_GS, 0) == 0);
  CHECK(got == value);
  CHECK(home[32] == std::byte{0x35});
  munmap(page, 4096);
}

TEST_CASE_FIXTURE(Through, "masked_bytes_beyond_the_segment_do_not_matter") {
  if (!open()) return;
  if (forms(Needs::kAvx512).empty()) {
    skip("no AVX-512 here");
    return;
  }
  REQUIRE(CALL(seg_dt, import, view) == 0);
  const size_t alignment = info().seg_alignment;
  void* all = mmap(nullptr, kSize + 3 * alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(all != MAP_FAILED);
  auto* const begin = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(all) + alignment) /
                                                   alignment * alignment);
  REQUIRE(munmap(begin, kSize) == 0);
  view = static_cast<std::byte*>(CALL(seg_at, import, begin, 0));
  REQUIRE(view == begin);
  for (size_t i = 0; i < 10; ++i) home[kSize - 10 + i] = std::byte(i + 1);
  alignas(64) unsigned char got[64];
  const std::byte* at = begin + kSize - 10;
  const auto tail = raised_by([&] {
    asm volatile(
        "kmovq %1, %%k1\n vmovdqu8 (%0), %%zmm7%{%%k1%}%{z%}\n vmovdqu8 %%zmm7, (%2)\n"
        "vpsubb %%zmm6, %%zmm6, %%zmm6\n vmovdqu8 %%zmm6, -4(%0)%{%%k1%}\n"
        :
        : "r"(at), "r"(uint64_t{0x3ff}), "r"(got)
        : "memory", "xmm6", "xmm7");
  });
  CHECK(tail.signo == 0);
  for (size_t i = 0; i < 64; ++i) CHECK(got[i] == (i < 10 ? i + 1 : 0));
  CHECK(home[kSize - 5] == std::byte{0});  // 10 from 14 before the end on
  CHECK(home[kSize - 4] == std::byte{7});
  CHECK(CALL(seg_dt, import, view) == 0);
  munmap(all, kSize + 3 * alignment);
}

TEST_CASE_FIXTURE(Through, "strings_move_between_write_through_and_cached_segments") {
  if (!open()) return;
  const cmi_seg second = segment(kPages);
  std::byte* second_home = attach(second);
  const cmi_seg cached = import_own(second);
  std::byte* cached_view = attach(cached);
  for (size_t i = 0; i < kSize; ++i) home[i] = static_cast<std::byte>(i * 11 + i / 256);
  const auto move = [](void* to, const void* from, size_t n) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
  };
  const Raised out = raised_by([&] { move(cached_view + 100, view + 50, 10000); });
  CHECK(out.signo == 0);
  CHECK(CALL(wmb_fn) == 0);
  CHECK(std::memcmp(second_home + 100, home + 50, 10000) == 0);
  CHECK(second_home[99] == std::byte{0});
  CHECK(second_home[10100] == std::byte{0});
  const Raised in = raised_by([&] { move(view + 30000, cached_view + 100, 9000); });
  CHECK(in.signo == 0);
  CHECK(std::memcmp(home + 30000, home + 50, 9000) == 0);
  // And home views as the other side.
  const Raised own = raised_by([&] { move(second_home + 20001, view + 50, 5000); });
  CHECK(own.signo == 0);
  CHECK(std::memcmp(second_home + 20001, home + 50, 5000) == 0);
}

TEST_CASE_FIXTURE(Through, "a_division_by_zero_in_a_write_through_segment_raises_sigfpe_there") {
  if (!open()) return;
  const Raised r = raised_by([&] {
    asm volatile("leaq 1f(%%rip), %%rcx\n movq $77, %%rax\n xorl %%edx, %%edx\n 1: divq (%0)\n"
                 :
                 : "r"(view)
                 : "rax", "rcx", "rdx", "memory", "cc");
  });
  CHECK(r.signo == SIGFPE);
  CHECK(r.code == FPE_INTDIV);
  CHECK(r.address == r.pc);
  CHECK(r.pc == static_cast<uint64_t>(r.context.uc_mcontext.gregs[REG_RCX]));
  CHECK(r.context.uc_mcontext.gregs[REG_RAX] == 77);
}

TEST_CASE_FIXTURE(Through, "floating_point_traps_that_the_thread_wants_are_raised_at_the_load") {
  if (!open()) return;
  const double zero = 0.0, one = 1.0;
  std::memcpy(home, &zero, sizeof zero);
  std::memcpy(home + 8, &one, sizeof one);
  feenableexcept(FE_DIVBYZERO);
  const Raised trap = raised_by([&] {
    asm volatile("movsd %0, %%xmm7\n divsd (%1), %%xmm7" : : "m"(one), "r"(view) : "xmm7");
  });
  const Raised none = raised_by([&] {
    asm volatile("movsd %0, %%xmm7\n divsd 8(%1), %%xmm7" : : "m"(one), "r"(view) : "xmm7");
  });
  fedisableexcept(FE_ALL_EXCEPT);
  CHECK(trap.signo == SIGFPE);
  CHECK(trap.code == FPE_FLTDIV);
  CHECK(none.signo == 0);
}

TEST_CASE_FIXTURE(Through, "what_cannot_be_executed_raises_access_error_and_changes_nothing") {
  if (!open()) return;
  std::memset(home, 0x44, 8192);
  const std::vector<std::byte> before(home, home + 8192);
  // A whole state is not what one wants to have in there; a lock across two lines, neither.
  const Raised state = raised_by([&] {
    asm volatile("xsave64 (%0)" : : "r"(view + 64), "a"(7), "d"(0) : "memory");
  });
  CHECK(state.code == SEGV_CMI);
  CHECK(state.error == CMI_ERROR_ACCESS);
  const Raised split = raised_by([&] {
    asm volatile("lock incq (%0)" : : "r"(view + 60) : "memory", "cc");
  });
  CHECK(split.code == SEGV_CMI);
  CHECK(split.error == CMI_ERROR_ACCESS);
  CHECK(std::memcmp(home, before.data(), before.size()) == 0);
}

TEST_CASE_FIXTURE(Through, "a_refused_store_leaves_registers_flags_and_memory_as_they_were") {
  if (!open(CMI_ACC_READ)) return;
  home[0] = std::byte{0x7f};
  const Raised r = raised_by([&] {
    asm volatile("leaq 1f(%%rip), %%rcx\n movq $3, %%rax\n stc\n 1: xaddq %%rax, 8(%0)\n"
                 :
                 : "r"(view)
                 : "rax", "rcx", "memory", "cc");
  });
  CHECK(r.code == SEGV_CMI);
  CHECK(r.error == CMI_ERROR_ACCESS);
  CHECK(r.address == reinterpret_cast<uint64_t>(view + 8));
  CHECK(r.pc == static_cast<uint64_t>(r.context.uc_mcontext.gregs[REG_RCX]));
  CHECK(r.context.uc_mcontext.gregs[REG_RAX] == 3);
  CHECK((r.context.uc_mcontext.gregs[REG_EFL] & 1) == 1);
  CHECK(home[8] == std::byte{0});
}

TEST_SUITE_END();

}  // namespace

}  // namespace cmi::test::instructions_test

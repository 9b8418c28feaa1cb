// What each processor does in its own way: what a fault tells, a copy that a handler ends, swaps.
#include "core/base/arch/arch.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>

#include <csetjmp>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/base/ids.hpp"
#include "core/memory/home/shared_access.hpp"

namespace cmi::test::arch_test {

namespace {

// SIGSEGV is this object's while it lives.
class Faults {
 public:
  using Handler = void (*)(int, siginfo_t*, void*);
  explicit Faults(Handler handler) {
    struct sigaction ours {};
    ours.sa_sigaction = handler;
    ours.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &ours, &before_);
  }
  ~Faults() { sigaction(SIGSEGV, &before_, nullptr); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

 private:
  struct sigaction before_ {};
};

// Two pages, of which nobody may use the second.
struct HalfOpen {
  std::byte* begin = static_cast<std::byte*>(
      mmap(nullptr, 2 * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::byte* border = begin + kPageSize;
  HalfOpen() { mprotect(border, kPageSize, PROT_NONE); }
  ~HalfOpen() { munmap(begin, 2 * kPageSize); }
  HalfOpen(const HalfOpen&) = delete;
  HalfOpen& operator=(const HalfOpen&) = delete;
};

sigjmp_buf g_back;
volatile bool g_stored;
volatile uintptr_t g_at;
volatile int g_left, g_faults;

void note_fault(int, siginfo_t*, void* context) {
  const auto& uc = *static_cast<const ucontext_t*>(context);
  g_stored = arch::was_store(uc);
  g_at = arch::program_counter(uc);
  siglongjmp(g_back, 1);
}

void leave(int, siginfo_t*, void* context) {
  g_faults = g_faults + 1;
  g_left = static_cast<int>(arch::leave_copy(*static_cast<ucontext_t*>(context)));
  if (g_left == static_cast<int>(arch::Left::kNoCopy)) siglongjmp(g_back, 1);
}

[[gnu::noinline]] uint32_t load(const volatile uint32_t* at) { return *at; }
[[gnu::noinline]] void store(volatile uint32_t* at) { *at = 1; }

bool is_in(uintptr_t at, const void* function) {
  const auto begin = reinterpret_cast<uintptr_t>(function);
  return at >= begin && at - begin < 128;
}

}  // namespace

TEST_CASE("a_fault_tells_a_load_from_a_store_and_where_it_was") {
  const HalfOpen memory;
  const Faults faults(note_fault);
  auto* const closed = reinterpret_cast<uint32_t*>(memory.border);
  g_stored = true;
  if (sigsetjmp(g_back, 1) == 0) FAIL(load(closed));
  CHECK_FALSE(g_stored);
  CHECK(is_in(g_at, reinterpret_cast<const void*>(&load)));
  if (sigsetjmp(g_back, 1) == 0) {
    store(closed);
    FAIL("it was stored");
  }
  CHECK(g_stored);
  CHECK(is_in(g_at, reinterpret_cast<const void*>(&store)));
  // Of memory that may be read, too.
  mprotect(memory.border, kPageSize, PROT_READ);
  g_stored = false;
  if (sigsetjmp(g_back, 1) == 0) {
    store(closed);
    FAIL("it was stored");
  }
  CHECK(g_stored);
}

TEST_CASE("a_copy_that_is_left_has_copied_all_before_the_byte_that_faulted") {
  const HalfOpen memory;
  const Faults faults(leave);
  std::vector<std::byte> other(kPageSize);
  std::iota(reinterpret_cast<uint8_t*>(other.data()),
            reinterpret_cast<uint8_t*>(other.data() + 512), 7);
  for (const bool reads : {true, false}) {
    for (size_t before = 0; before < 70; ++before) {
      for (const size_t n : {before, before + 1, before + 15, before + 16, before + 100}) {
        CAPTURE(reads);
        CAPTURE(before);
        CAPTURE(n);
        std::byte* const at = memory.border - before;
        if (before != 0) std::memset(at, 0, before);
        if (reads && before != 0) std::memcpy(at, other.data(), before);
        std::vector<std::byte> got(256);
        g_faults = 0;
        g_left = -1;
        const size_t missing = reads ? arch::copy_until_left(got.data(), at, n)
                                     : arch::copy_until_left(at, other.data(), n);
        REQUIRE(missing == n - before);
        REQUIRE((g_faults > 0) == (n > before));
        if (n > before) REQUIRE(g_left == static_cast<int>(arch::Left::kEnded));
        const std::byte* const copied = reads ? got.data() : at;
        if (before != 0) REQUIRE(std::memcmp(copied, other.data(), before) == 0);
        if (reads) REQUIRE(got[before] == std::byte{0});
      }
    }
  }
}

TEST_CASE("a_fault_of_other_code_is_no_copy_that_is_left") {
  const HalfOpen memory;
  const Faults faults(leave);
  if (sigsetjmp(g_back, 1) == 0) FAIL(load(reinterpret_cast<const uint32_t*>(memory.border)));
  CHECK(g_left == static_cast<int>(arch::Left::kNoCopy));
}

TEST_CASE("a_swap_of_each_size_stores_what_is_desired_where_it_finds_what_is_expected") {
  alignas(64) std::byte words[128];
  for (const size_t size : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{16}}) {
    CAPTURE(size);
    std::byte* const at = words + 64 - size;
    std::memset(words, 0x11, sizeof words);
    std::byte expected[16], desired[16];
    std::memset(expected, 0x11, sizeof expected);
    std::memset(desired, 0x22, sizeof desired);
    REQUIRE(memory::swap_shared(at, expected, desired, size));
    CHECK(expected[0] == std::byte{0x11});  // what was there
    for (size_t i = 0; i < sizeof words; ++i) {
      const bool swapped = words + i >= at && words + i < at + size;
      REQUIRE(words[i] == std::byte{static_cast<uint8_t>(swapped ? 0x22 : 0x11)});
    }
    // One byte is not as expected, the last one: nothing is stored, and what is there is told.
    std::memset(expected, 0x22, sizeof expected);
    expected[size - 1] = std::byte{0x33};
    std::memset(desired, 0x44, sizeof desired);
    REQUIRE(memory::swap_shared(at, expected, desired, size));
    CHECK(at[0] == std::byte{0x22});
    CHECK(std::memcmp(expected, at, size) == 0);
  }
  std::byte some[16] = {};
  CHECK_FALSE(memory::swap_shared(words, some, some, 3));
  CHECK_FALSE(memory::swap_shared(words + 8, some, some, 16));
  CHECK_FALSE(memory::swap_shared(words + 60, some, some, 8));  // of two lines
}

}  // namespace cmi::test::arch_test

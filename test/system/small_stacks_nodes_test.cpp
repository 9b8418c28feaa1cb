// What a fault takes of the stack of the thread that faults: a painted stack shows it.
#include <doctest/doctest.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/each_provider.hpp"

namespace cmi::test::small_stacks_nodes_test {

namespace {

constexpr uint64_t kPages = 512;
constexpr size_t kPainted = size_t{256} << 10;
constexpr unsigned char kPaint = 0xa5;

// Loads or stores one word in each of the pages. Runs on the painted stack.
ucontext_t g_caller, g_coroutine;
uint64_t g_at, g_pages;
bool g_store;
void touch_pages() {
  for (uint64_t page = 0; page < g_pages; ++page) {
    auto* word = reinterpret_cast<volatile uint64_t*>(g_at + page * kPage);
    if (g_store) {
      *word = page + 1;
    } else {
      (void)*word;
    }
  }
}

// Bytes of the stack that were written to.
size_t stack_of(uint64_t at, uint64_t pages, bool store, unsigned char* stack) {
  g_at = at;
  g_pages = pages;
  g_store = store;
  std::memset(stack, kPaint, kPainted);
  getcontext(&g_coroutine);
  g_coroutine.uc_stack.ss_sp = stack;
  g_coroutine.uc_stack.ss_size = kPainted;
  g_coroutine.uc_link = &g_caller;
  makecontext(&g_coroutine, touch_pages, 0);
  swapcontext(&g_caller, &g_coroutine);
  size_t untouched = 0;
  while (untouched < kPainted && stack[untouched] == kPaint) ++untouched;
  return kPainted - untouched;
}

// Of the handler: what faults take more than plain memory does, without the frame that the kernel
// makes for the signal. By kind of fault: load misses, first stores, store misses.
struct Taken {
  std::array<int64_t, 3> bytes;
};
Taken taken_by(Process& process, uint64_t at, uint64_t pages) {
  return process.run(
      [](uint64_t view, uint64_t n) {
        auto* stack =
            static_cast<unsigned char*>(mmap(nullptr, kPainted, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
        auto* plain = static_cast<unsigned char*>(
            mmap(nullptr, n * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        const auto base = static_cast<int64_t>(
            stack_of(reinterpret_cast<uint64_t>(plain), n, true, stack) +
            std::max(getauxval(AT_MINSIGSTKSZ), static_cast<unsigned long>(MINSIGSTKSZ)));
        Taken taken{};
        taken.bytes[0] = static_cast<int64_t>(stack_of(view, n / 2, false, stack)) - base;
        taken.bytes[1] = static_cast<int64_t>(stack_of(view, n / 2, true, stack)) - base;
        taken.bytes[2] =
            static_cast<int64_t>(stack_of(view + n / 2 * kPage, n / 2, true, stack)) - base;
        munmap(plain, n * kPage);
        munmap(stack, kPainted);
        return taken;
      },
      at, pages);
}

void check_stacks(Cluster& cluster, Process& home, const Env& env, int32_t attribute,
                  uint64_t cache) {
  Process& peer = cluster.spawn("peer", env);
  Export made = export_segment(home, kPages * kPage, kAllRights, 0);
  if (attribute != 0) made.handle = seg_exp(home, made.seg, attribute);
  REQUIRE(made.handle.ok());
  const Import import = import_segment(peer, made);
  if (cache != 0) REQUIRE(set_cache(peer, import.seg, cache).ok());
  const Taken taken = taken_by(peer, import.at, kPages);
  for (const int64_t bytes : taken.bytes) CHECK(bytes <= 4096);
}

// Over each provider.
void check_stacks(int32_t attribute, uint64_t cache) {
  if (kSanitized) return skip("the sanitizers' own frames are counted as well");
  with_each_provider([&](Cluster& cluster, Process& home, const Env& env) {
    check_stacks(cluster, home, env, attribute, cache);
  });
}

TEST_SUITE("stacks") {
  TEST_CASE("a_fault_takes_at_most_4_KiB_of_the_stack_and_the_frame_of_the_signal") {
    check_stacks(0, 0);
  }
  TEST_CASE("a_fault_that_evicts_pages_takes_no_more_of_the_stack") { check_stacks(0, 256 << 10); }
  TEST_CASE("an_access_to_a_write_through_segment_takes_no_more_of_the_stack") {
    check_stacks(CMI_SEG_WRITE_THROUGH, 0);
  }
  TEST_CASE("a_thread_with_an_alternate_stack_is_served_there_and_keeps_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Import import = import_segment(peer, export_segment(home, kPages * kPage));
    const uint64_t right = peer.run(
        [](uint64_t view, uint64_t n) {
          static unsigned char alternate[65536];
          stack_t ours{}, old{}, found{};
          ours.ss_sp = alternate;
          ours.ss_size = sizeof alternate;
          std::memset(alternate, kPaint, sizeof alternate);
          sigaltstack(&ours, &old);
          uint64_t good = 0;
          for (uint64_t page = 0; page < n; ++page) {
            auto* word = reinterpret_cast<volatile uint64_t*>(view + page * kPage);
            *word = page;
            good += *word == page;
          }
          sigaltstack(nullptr, &found);
          const bool kept = found.ss_sp == alternate && found.ss_size == sizeof alternate &&
                            (found.ss_flags & SS_DISABLE) == 0;
          const bool used = std::any_of(alternate, alternate + sizeof alternate,
                                        [](auto b) { return b != kPaint; });
          sigaltstack(&old, nullptr);
          return kept && used ? good : 0;
        },
        import.at, kPages);
    CHECK(right == kPages);
  }
}

}  // namespace

}  // namespace cmi::test::small_stacks_nodes_test

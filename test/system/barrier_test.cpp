// The barrier macros as barriers of the compiler. This file is compiled with -O2 in every build.
#include <cmi/ofi/cmi_impl.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "system/one_process.hpp"

namespace cmi::one_process::barrier_test {

namespace {

// Not volatile, not atomic: without a barrier one of two stores is dead, and a load is repeated
// from a register.
int plain = 0;
int seen_in_barrier = 0;

// The library's trace runs inside the barrier.
void look(void* /*arg*/, const char* /*msg*/) {
  seen_in_barrier = *const_cast<const volatile int*>(&plain);
}

__attribute__((noinline)) int store_around_wmb() {
  plain = 1;
  const int result = cmi_wmb();
  plain = 2;
  return result;
}

__attribute__((noinline)) int store_around_mb() {
  plain = 3;
  const int result = cmi_mb();
  plain = 4;
  return result;
}

// Whether *word is seen to change while this thread calls nothing but the barrier.
__attribute__((noinline)) bool changes(const int* word) {
  const int first = *word;
  for (int i = 0; i < 10'000'000; ++i) {
    if (cmi_rmb() != 0 || *word != first) return true;
  }
  return false;
}

}  // namespace

TEST_SUITE_BEGIN("memory");

TEST_CASE_FIXTURE(Process, "the_barrier_macros_keep_the_compilers_order") {
  cmi_cbs cbs{};
  cbs.alert = cbs.log = look;
  cbs.trace_facilities = CMI_TRACE_FAC_MEM;
  cbs.trace_level = CMI_TRACE_LVL_HIGHEST;
  ini(CMI_VERNO, &cbs);
  CHECK(store_around_wmb() == 0);
  CHECK(seen_in_barrier == 1);
  CHECK(plain == 2);
  CHECK(store_around_mb() == 0);
  CHECK(seen_in_barrier == 3);
  CHECK(plain == 4);

  std::atomic<bool> stop{false};
  int word = 0;
  std::thread writer([&] {
    while (!stop.load()) __atomic_fetch_add(&word, 1, __ATOMIC_RELAXED);
  });
  // The writer may not run for a while; then the loop is tried again.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  bool seen = false;
  while (!seen && std::chrono::steady_clock::now() < deadline) seen = changes(&word);
  stop = true;
  writer.join();
  CHECK(seen);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::barrier_test

// The lock of a page under threads.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "core/memory/page/page.hpp"

namespace cmi::test::page_lock_test {
using namespace cmi::memory;

TEST_CASE("a_page_lock_keeps_two_threads_out_of_one_page") {
  constexpr int kThreads = 4, kRounds = 20000;
  Page page;
  // Plain on purpose: the thread sanitizer would see a lock that does not order them.
  long total = 0;
  int inside = 0, together = 0;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        page.lock();
        if (++inside != 1) ++together;
        ++total;
        ++page.generation;
        --inside;
        page.unlock();
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(together == 0);
  CHECK(total == long{kThreads} * kRounds);
  CHECK(page.generation == static_cast<uint32_t>(kThreads * kRounds));
}

TEST_CASE("a_thread_waits_for_a_locked_page_until_it_is_unlocked") {
  Page page;
  page.lock();
  std::atomic<bool> trying{false}, entered{false};
  bool stored = false;
  std::thread other([&] {
    trying.store(true);
    page.lock();
    entered.store(true);
    CHECK(stored);
    page.unlock();
  });
  while (!trying.load()) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  CHECK_FALSE(entered.load());
  stored = true;
  page.unlock();
  other.join();
  CHECK(entered.load());
}

TEST_CASE("threads_that_lock_ranges_of_pages_in_ascending_order_all_get_through") {
  constexpr size_t kPages = 8, kThreads = 3;
  constexpr int kRounds = 5000;
  std::array<Page, kPages> pages;
  std::array<long, kPages> counts{};
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        const size_t first = (static_cast<size_t>(i) + t) % (kPages - 3);
        for (size_t p = first; p < first + 4; ++p) pages[p].lock();
        for (size_t p = first; p < first + 4; ++p) ++counts[p];
        for (size_t p = first; p < first + 4; ++p) pages[p].unlock();
      }
    });
  }
  for (auto& t : threads) t.join();
  long sum = 0;
  for (long c : counts) sum += c;
  CHECK(sum == long{kThreads} * kRounds * 4);
}

}  // namespace cmi::test::page_lock_test

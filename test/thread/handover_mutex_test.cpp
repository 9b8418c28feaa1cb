// The mutex that is handed over between the parts of long work.
#include "core/base/handover_mutex.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace cmi::test::handover_mutex_test {

TEST_CASE("a_handover_mutex_keeps_two_threads_out") {
  constexpr int kThreads = 4, kRounds = 5000;
  HandoverMutex mutex;
  // Plain on purpose: the thread sanitizer would see a lock that does not order them.
  long total = 0;
  int inside = 0, together = 0;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const auto count = [&] {
        if (++inside != 1) ++together;
        ++total;
        --inside;
      };
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        mutex.lock();
        count();
        mutex.give_way([] {});
        count();
        mutex.unlock();
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(together == 0);
  CHECK(total == 2L * kThreads * kRounds);
}

TEST_CASE("a_thread_that_waits_for_a_handover_mutex_comes_before_its_owner") {
  for (int round = 0; round < 100; ++round) {
    HandoverMutex mutex;
    std::atomic<bool> came{false};
    mutex.lock();
    std::thread other([&] {
      mutex.lock();
      came = true;
      mutex.unlock();
    });
    // It waits: until then the owner has nobody to give way to.
    while (!mutex.awaited()) std::this_thread::yield();
    CHECK(!came);
    mutex.give_way([] {});
    CHECK(came);
    mutex.unlock();
    other.join();
  }
}

TEST_CASE("an_owner_of_a_handover_mutex_has_it_again_where_nobody_waits") {
  HandoverMutex mutex;
  mutex.lock();
  int meanwhile = 0;
  mutex.give_way([&] {
    ++meanwhile;
    CHECK(mutex.try_lock());
    mutex.unlock();
  });
  CHECK(meanwhile == 1);
  CHECK(!mutex.try_lock());
  mutex.unlock();
  CHECK(mutex.try_lock());
  mutex.unlock();
}

}  // namespace cmi::test::handover_mutex_test

// The pool of twins under threads that take, use, hand over and give.
#include "core/memory/page/twin_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <latch>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"

namespace cmi::test::twin_pool_test {
using namespace cmi::memory;

TEST_CASE("no_twin_is_ever_in_two_hands") {
  constexpr int kThreads = 4;
  constexpr uint64_t kRounds = 150000;
  TwinPool pool(8);
  std::atomic<int> corrupted{0}, exhausted{0};

  // Some twins are given back by another thread than the one that took them.
  struct Marked {
    uint32_t twin;
    uint64_t mark;
  };
  std::mutex handed_over_lock;
  std::deque<Marked> handed_over;

  // A twin is marked at both ends; a second owner would spoil the dirty intents.
  auto set_marks = [&](const Marked& m) {
    std::memcpy(pool.at(m.twin), &m.mark, sizeof m.mark);
    std::memcpy(pool.at(m.twin) + kPageSize - sizeof m.mark, &m.mark, sizeof m.mark);
  };
  auto check_and_give = [&](const Marked& m) {
    uint64_t low, high;
    std::memcpy(&low, pool.at(m.twin), sizeof low);
    std::memcpy(&high, pool.at(m.twin) + kPageSize - sizeof high, sizeof high);
    if (low != m.mark || high != m.mark) ++corrupted;
    pool.give(m.twin);
  };
  std::latch start(kThreads);
  const Deadline deadline = Deadline::in(30 * kSecond);
  auto work = [&](uint64_t self) {
    start.arrive_and_wait();
    std::mt19937_64 rng(self);
    std::vector<Marked> mine;
    // At least until the pool was found exhausted, which takes more than two threads at once.
    auto goes_on = [&](uint64_t round) {
      return round < kRounds || (exhausted.load() == 0 && !deadline.passed());
    };
    for (uint64_t round = 0; goes_on(round); ++round) {
      // Up to 800 twins a thread: together more than the pool has.
      if (mine.empty() || (mine.size() < 800 && rng() % 100 < 55)) {
        const uint32_t twin = pool.take();
        if (twin == 0) {
          ++exhausted;
        } else {
          mine.push_back({twin, self << 32 | round});
          set_marks(mine.back());
        }
      } else {
        std::swap(mine[rng() % mine.size()], mine.back());
        const Marked last = mine.back();
        mine.pop_back();
        if (rng() % 4 != 0) {
          check_and_give(last);
          continue;
        }
        Marked other{};
        {
          std::lock_guard g(handed_over_lock);
          handed_over.push_back(last);
          if (handed_over.size() > 16) {
            other = handed_over.front();
            handed_over.pop_front();
          }
        }
        if (other.twin != 0) check_and_give(other);
      }
    }
    for (const Marked& m : mine) check_and_give(m);
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= kThreads; ++t) threads.emplace_back(work, t);
  for (auto& t : threads) t.join();
  for (const Marked& m : handed_over) check_and_give(m);
  CHECK(corrupted.load() == 0);
  CHECK(exhausted.load() > 0);

  // All are back, each once.
  std::vector<bool> seen(8 * TwinPool::kChunkTwins + 1);
  size_t count = 0;
  while (const uint32_t twin = pool.take()) {
    REQUIRE(twin < seen.size());
    REQUIRE_FALSE(seen[twin]);
    seen[twin] = true;
    ++count;
  }
  CHECK(count == 8 * TwinPool::kChunkTwins);
}

}  // namespace cmi::test::twin_pool_test

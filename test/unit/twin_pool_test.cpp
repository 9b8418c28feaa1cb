// The pool of twins, seen by one thread.
#include "core/memory/page/twin_pool.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

namespace cmi::test::twin_pool_test {
using namespace cmi::memory;

TEST_CASE("taken_twins_are_aligned_and_do_not_overlap") {
  TwinPool pool;
  std::vector<uint32_t> taken;
  for (uint32_t i = 0; i < 3 * TwinPool::kChunkTwins + 1; ++i) {
    const uint32_t twin = pool.take();
    REQUIRE(twin != 0);
    REQUIRE(reinterpret_cast<uintptr_t>(pool.at(twin)) % kPageSize == 0);
    std::memset(pool.at(twin), static_cast<int>(i % 251), kPageSize);
    taken.push_back(twin);
  }
  CHECK(std::set(taken.begin(), taken.end()).size() == taken.size());
  for (uint32_t i = 0; i < taken.size(); ++i) {
    const std::vector<std::byte> wanted(kPageSize, static_cast<std::byte>(i % 251));
    REQUIRE(std::memcmp(pool.at(taken[i]), wanted.data(), kPageSize) == 0);
  }
}

TEST_CASE("twins_that_were_given_back_are_taken_again_before_the_pool_grows") {
  TwinPool pool(1);
  std::vector<uint32_t> taken;
  for (uint32_t i = 0; i < TwinPool::kChunkTwins; ++i) taken.push_back(pool.take());
  CHECK(pool.take() == 0);
  CHECK(pool.take() == 0);
  std::set<uint32_t> given;
  for (uint32_t i = 0; i < taken.size(); i += 3) {
    pool.give(taken[i]);
    given.insert(taken[i]);
  }
  while (!given.empty()) REQUIRE(given.erase(pool.take()) == 1);
  CHECK(pool.take() == 0);
}

TEST_CASE("twins_have_a_share_of_what_segments_may_take_and_some_in_any_case") {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  CHECK(TwinPool::chunks_of(4096 * kMiB) * TwinPool::kChunkSize == 1024 * kMiB);
  CHECK(TwinPool::chunks_of(1) == TwinPool::kLeastChunks);
  CHECK(TwinPool::chunks_of(UINT64_MAX) == TwinPool::kMaxChunks);
}

TEST_CASE("no_twin_is_no_address_and_may_be_given_back") {
  TwinPool pool;
  CHECK(pool.at(0) == nullptr);
  pool.give(0);
  CHECK(pool.take() != 0);
}

TEST_CASE("a_pool_without_memory_gives_no_twin") {
  TwinPool pool(0);
  CHECK(pool.take() == 0);
}

TEST_CASE("the_memory_of_a_twin_is_there_before_it_is_touched_and_gone_with_the_pool") {
  void* memory = nullptr;
  unsigned char resident = 0;
  {
    TwinPool pool;
    memory = pool.at(pool.take());
    // Some other twin of the chunk, that nobody has written to.
    std::byte* untouched = static_cast<std::byte*>(memory) + 100 * kPageSize;
    REQUIRE(mincore(untouched, kPageSize, &resident) == 0);
    CHECK((resident & 1) == 1);
  }
  CHECK(mincore(memory, kPageSize, &resident) == -1);
  CHECK(errno == ENOMEM);
}

}  // namespace cmi::test::twin_pool_test

// What a home remembers of one client's requests, so that each is executed once.
#include "fabric/reply_cache.hpp"

#include <doctest/doctest.h>

#include "fabric/request_window.hpp"

namespace cmi::test::reply_cache_test {
using namespace cmi::fabric;
using Verdict = ReplyCache::Verdict;

namespace {
void answer(ReplyCache& cache, uint64_t number, size_t bytes) {
  REQUIRE(cache.admit(number) == Verdict::kExecute);
  REQUIRE(cache.finish(number));
  cache.keep(number, std::vector<std::byte>(bytes, std::byte{7}));
}
}  // namespace

TEST_CASE("a_number_is_executed_once_and_answered_again") {
  ReplyCache cache;
  CHECK(cache.admit(1) == Verdict::kExecute);
  CHECK(!cache.none_open());
  CHECK(cache.admit(1) == Verdict::kUnderWay);
  CHECK(cache.finish(1));
  CHECK(!cache.finish(1));
  cache.keep(1, std::vector<std::byte>(3, std::byte{9}));
  CHECK(cache.none_open());
  CHECK(cache.admit(1) == Verdict::kAnswered);
  REQUIRE(cache.answer(1).size() == 3);
  CHECK(cache.answer(1)[2] == std::byte{9});
  CHECK(cache.answer(2).empty());
}

TEST_CASE("what_the_client_has_acknowledged_is_over_and_its_answer_goes") {
  ReplyCache cache;
  answer(cache, 1, 1);
  REQUIRE(cache.admit(2) == Verdict::kExecute);
  REQUIRE(cache.admit(3) == Verdict::kExecute);
  CHECK(cache.acknowledge(3));   // 2 was still open
  CHECK(!cache.acknowledge(3));  // no news
  CHECK(!cache.acknowledge(2));
  CHECK(cache.acked_below() == 3);
  CHECK(cache.admit(1) == Verdict::kOver);
  CHECK(cache.admit(2) == Verdict::kOver);
  CHECK(!cache.finish(2));
  CHECK(cache.admit(3) == Verdict::kUnderWay);
  cache.finish(3);
  cache.keep(3, {});
  CHECK(cache.answer(1).empty());
}

TEST_CASE("a_number_whose_answer_is_forgotten_is_not_executed_again") {
  ReplyCache cache;
  constexpr uint64_t kMost = 2 * RequestWindow::kMostUnderWay;
  for (uint64_t number = 1; number <= kMost + 2; ++number) answer(cache, number, 1);
  CHECK(cache.admit(1) == Verdict::kForgotten);
  CHECK(cache.admit(2) == Verdict::kForgotten);
  CHECK(cache.admit(3) == Verdict::kAnswered);
}

TEST_CASE("only_the_last_64_large_answers_are_kept_and_older_ones_are_read_anew") {
  ReplyCache cache;
  for (uint64_t number = 1; number <= 65; ++number) answer(cache, number, 257);
  CHECK(cache.admit(1) == Verdict::kExecute);
  CHECK(cache.admit(2) == Verdict::kAnswered);
}

TEST_CASE("a_client_that_has_more_open_than_a_link_sends_is_refused") {
  ReplyCache cache;
  constexpr uint64_t kMost = 2 * RequestWindow::kMostUnderWay;
  for (uint64_t number = 1; number <= kMost; ++number) {
    REQUIRE(cache.admit(number) == Verdict::kExecute);
  }
  CHECK(cache.admit(kMost + 1) == Verdict::kTooMany);
  cache.clear();
  CHECK(cache.none_open());
  CHECK(cache.admit(kMost + 1) == Verdict::kExecute);
}

}  // namespace cmi::test::reply_cache_test

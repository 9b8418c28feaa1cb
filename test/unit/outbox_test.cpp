// Invalidations that wait at the home until their sharer has answered earlier ones.
#include "core/memory/home/outbox.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace cmi;
using namespace cmi::memory;

namespace {
const SharerKey kOne{ContextId{1, 1}, 7, 1}, kOther{ContextId{2, 2}, 7, 1};
RoundPtr round_of_one() { return std::make_shared<InvalidationRound>(); }
bool same(const std::vector<PageRange>& a, const std::vector<PageRange>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const PageRange& x, const auto& y) {
    return x.first == y.first && x.count == y.count;
  });
}
}  // namespace

TEST_CASE("a_crowd_has_one_invalidation_of_each_sharer_under_way_and_a_few_have_four") {
  CHECK(Outbox::limit(1) == 4);
  CHECK(Outbox::limit(8) == 4);
  CHECK(Outbox::limit(9) == 1);
}

TEST_CASE("invalidations_wait_from_the_limit_on_for_each_sharer_apart") {
  Outbox outbox;
  CHECK(outbox.idle(kOne));
  for (int i = 0; i < 4; ++i) {
    CHECK(!outbox.must_wait(kOne, 4));
    outbox.sent(kOne, false);
  }
  CHECK(outbox.must_wait(kOne, 4));
  CHECK(!outbox.must_wait(kOther, 1));
  CHECK(outbox.over(kOne, false).pages.empty());
  CHECK(!outbox.must_wait(kOne, 4));
  CHECK(outbox.must_wait(kOne, 1));
  for (int i = 0; i < 3; ++i) CHECK(outbox.over(kOne, false).pages.empty());
  CHECK(outbox.idle(kOne));
}

TEST_CASE("what_waits_is_merged_and_goes_out_once_when_one_under_way_is_over") {
  Outbox outbox;
  outbox.sent(kOne, false);
  const RoundPtr first = round_of_one(), second = round_of_one();
  outbox.add(kOne, 1, {{4, 2}, {8, 1}}, first);
  outbox.add(kOne, 1, {{5, 3}}, second);
  CHECK(first->waiting == 1);
  CHECK(second->waiting == 1);
  const auto next = outbox.over(kOne, false);
  CHECK(next.to == kOne);
  CHECK(same(next.pages.all(), {{4, 5}}));
  CHECK(next.rounds == std::vector<RoundPtr>{first, second});
  CHECK(outbox.idle(kOne));
  CHECK(outbox.over(kOne, false).rounds.empty());
}

TEST_CASE("an_invalidation_that_asks_for_a_direct_ack_makes_none_wait_and_lets_none_go") {
  Outbox outbox;
  outbox.sent(kOne, true);
  CHECK(!outbox.idle(kOne));
  CHECK(!outbox.must_wait(kOne, 1));
  outbox.sent(kOne, false);
  outbox.add(kOne, 1, {{1, 1}}, round_of_one());
  CHECK(outbox.over(kOne, true).rounds.empty());
  CHECK(outbox.over(kOne, false).rounds.size() == 1);
}

TEST_CASE("nothing_overtakes_what_waits_when_the_limit_rises") {
  Outbox outbox;
  outbox.sent(kOne, false);
  outbox.add(kOne, 1, {{1, 1}}, round_of_one());
  CHECK(outbox.must_wait(kOne, 4));
}

TEST_CASE("what_waits_under_a_limit_that_has_sunk_goes_out_when_enough_are_over") {
  Outbox outbox;
  for (int i = 0; i < 3; ++i) outbox.sent(kOne, false);
  outbox.add(kOne, 1, {{1, 1}}, round_of_one());
  CHECK(outbox.over(kOne, false).rounds.empty());
  CHECK(outbox.over(kOne, false).rounds.empty());
  CHECK(outbox.over(kOne, false).rounds.size() == 1);
}

TEST_CASE("a_sharer_that_is_gone_gives_back_the_rounds_that_wait_for_it") {
  Outbox outbox;
  const SharerKey same_client{kOne.client, 8, 2};
  const RoundPtr a = round_of_one(), b = round_of_one(), c = round_of_one();
  for (const SharerKey& key : {kOne, kOther, same_client}) outbox.sent(key, false);
  outbox.add(kOne, 1, {{1, 1}}, a);
  outbox.add(kOther, 1, {{1, 1}}, b);
  outbox.add(same_client, 1, {{1, 1}}, c);
  SUBCASE("one_import") {
    CHECK(outbox.forget(kOne) == std::vector<RoundPtr>{a});
    CHECK(outbox.forget(kOne).empty());
    CHECK(outbox.over(kOne, false).rounds.empty());  // its notification ends after it
    CHECK(outbox.over(same_client, false).rounds.size() == 1);
  }
  SUBCASE("all_of_a_client") {
    CHECK(outbox.forget(kOne.client) == std::vector<RoundPtr>{a, c});
    CHECK(outbox.idle(kOne));
    CHECK(outbox.idle(same_client));
  }
  CHECK(outbox.over(kOther, false).rounds == std::vector<RoundPtr>{b});
}

TEST_CASE("all_that_waits_can_be_taken_at_once") {
  Outbox outbox;
  for (const SharerKey& key : {kOne, kOther}) {
    outbox.sent(key, false);
    outbox.add(key, 1, {{1, 1}}, round_of_one());
  }
  size_t seen = 0;
  outbox.for_each_round([&](const RoundPtr&) { ++seen; });
  CHECK(seen == 2);
  CHECK(outbox.take_all().size() == 2);
  CHECK(outbox.take_all().empty());
  CHECK(outbox.over(kOne, false).rounds.empty());
}

// Invalidations that wait at the home until their sharer has answered earlier ones.
#include "core/memory/home/outbox.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace cmi::test::outbox_test {
using namespace cmi::memory;

namespace {
const SharerKey kOne{ContextId{1, 1}, 7, 1}, kOther{ContextId{2, 2}, 7, 1};
const std::vector<PageRange> kSome{{40, 1}};
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
    CHECK(!outbox.must_wait(kOne, 4, kSome));
    outbox.sent(kOne, false);
  }
  CHECK(outbox.must_wait(kOne, 4, kSome));
  CHECK(!outbox.must_wait(kOther, 1, kSome));
  CHECK(outbox.over(kOne, false).pages.empty());
  CHECK(!outbox.must_wait(kOne, 4, kSome));
  CHECK(outbox.must_wait(kOne, 1, kSome));
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

TEST_CASE("an_invalidation_of_a_page_waits_while_one_that_may_release_it_is_under_way") {
  Outbox outbox;
  const std::vector<PageRange> few{{3, 2}, {9, 1}}, others{{5, 4}}, page{{4, 1}};
  const NamedPages named(few);
  outbox.sent(kOne, false, named);
  outbox.sent(kOne, false, NamedPages(others));
  CHECK(!outbox.must_wait(kOne, 4, kSome));
  CHECK(!outbox.must_wait(kOther, 4, page));
  REQUIRE(outbox.must_wait(kOne, 4, page));
  outbox.add(kOne, 4, page, round_of_one());
  CHECK(outbox.must_wait(kOne, 4, kSome));  // nothing overtakes it
  CHECK(outbox.over(kOne, false, NamedPages(others)).rounds.empty());
  CHECK(outbox.over(kOne, false, named).rounds.size() == 1);
  CHECK(outbox.idle(kOne));
}

TEST_CASE("of_many_pages_and_of_a_direct_ack_nothing_is_known_that_may_be_released") {
  const std::vector<PageRange> many{{0, 2}, {10, 3}}, page{{0, 1}};
  CHECK(NamedPages(many).count == 0);
  CHECK(NamedPages(page).count == 1);
  Outbox outbox;
  outbox.sent(kOne, false, NamedPages(many));
  outbox.sent(kOne, true, NamedPages(page));
  CHECK(!outbox.must_wait(kOne, 4, page));
  // Two at once, as after a list of pages in flux.
  outbox.sent(kOne, false, NamedPages(page));
  outbox.sent(kOne, false, NamedPages(page));
  CHECK(outbox.over(kOne, false, NamedPages(page)).rounds.empty());
  CHECK(outbox.must_wait(kOne, 4, page));
  CHECK(outbox.over(kOne, false, NamedPages(page)).rounds.empty());
  CHECK(!outbox.must_wait(kOne, 4, page));
}

TEST_CASE("an_invalidation_that_asks_for_a_direct_ack_makes_none_wait_and_lets_none_go") {
  Outbox outbox;
  outbox.sent(kOne, true);
  CHECK(!outbox.idle(kOne));
  CHECK(!outbox.must_wait(kOne, 1, kSome));
  outbox.sent(kOne, false);
  outbox.add(kOne, 1, {{1, 1}}, round_of_one());
  CHECK(outbox.over(kOne, true).rounds.empty());
  CHECK(outbox.over(kOne, false).rounds.size() == 1);
}

TEST_CASE("nothing_overtakes_what_waits_when_the_limit_rises") {
  Outbox outbox;
  outbox.sent(kOne, false);
  outbox.add(kOne, 1, {{1, 1}}, round_of_one());
  CHECK(outbox.must_wait(kOne, 4, kSome));
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

}  // namespace cmi::test::outbox_test

// When a page stays writable over its write-backs, the list of such pages, and what the timer does
// with pages that other nodes store to as well.
#include "core/memory/page/heat.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/base/cpu_share.hpp"
#include "core/memory/importer/contended_pages.hpp"
#include "core/memory/importer/hot_pages.hpp"

namespace cmi::test::heat_test {
using namespace cmi::memory;

namespace {

Heat hot() {
  Heat heat;
  heat.written_back(true);
  REQUIRE(heat.stored());
  return heat;
}

}  // namespace

TEST_CASE("a_page_becomes_hot_with_the_first_store_after_a_write_back_with_changes") {
  Heat heat;
  CHECK(!heat.stored());
  CHECK(!heat.hot());
  heat.written_back(false);
  CHECK(!heat.stored());
  heat.written_back(true);
  CHECK(!heat.hot());
  CHECK(heat.stored());
  CHECK(heat.hot());
}

TEST_CASE("a_hot_page_cools_after_31_comparisons_in_a_row_without_a_change") {
  Heat heat = hot();
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i < Heat::kQuiet; ++i) REQUIRE(!heat.compared(false));
    REQUIRE(!heat.compared(true));
  }
  for (int i = 1; i < Heat::kQuiet; ++i) REQUIRE(!heat.compared(false));
  CHECK(heat.compared(false));
  CHECK(heat.hot());  // until it is written back
  heat.written_back(false);
  CHECK(!heat.hot());
  CHECK(!heat.stored());
}

TEST_CASE("the_timer_takes_a_hot_page_at_the_second_tick_that_finds_it_changed") {
  Heat heat = hot();
  CHECK(!heat.is_due());
  CHECK(heat.is_due());
  CHECK(!heat.compared(true));  // sent
  CHECK(!heat.is_due());
  CHECK(!heat.compared(true));  // by a barrier in between
  CHECK(!heat.is_due());
  CHECK(heat.is_due());
  CHECK(heat.hot());
  heat.taken_away(true);
  CHECK(!heat.stored());
}

TEST_CASE("a_hot_page_that_is_taken_away_is_cold_and_contended_until_it_is_hot_again") {
  Heat heat = hot();
  heat.taken_away(true);
  CHECK(!heat.hot());
  CHECK(heat.contended());
  CHECK(!heat.stored());
  heat.taken_away(false);
  CHECK(heat.contended());
  heat.written_back(true);
  CHECK(heat.contended());
  CHECK(heat.stored());
  CHECK(!heat.contended());
  Heat clean;
  clean.written_back(true);
  clean.taken_away(false);
  CHECK(!clean.contended());
  CHECK(!clean.stored());
}

TEST_CASE("the_list_of_hot_pages_forgets_cooled_ones_and_keeps_what_is_added_meanwhile") {
  HotPages list;
  CHECK(list.empty());
  for (uint32_t page : {7u, 3u, 9u, 3u}) list.add(page);
  CHECK(list.size() == 4);
  std::set<uint32_t> asked;
  list.forget([&](uint32_t page) {
    if (page == 7) list.add(11);
    asked.insert(page);
    return page == 9;
  });
  CHECK(asked == std::set<uint32_t>{3, 7, 9});
  std::vector<uint32_t> all = list.all();
  std::sort(all.begin(), all.end());
  CHECK(all == std::vector<uint32_t>{3, 7, 11});
  CHECK(list.size() == 3);
}

TEST_CASE("pages_are_taken_in_turns_from_the_list_of_hot_pages") {
  HotPages list;
  CHECK(list.some(4).empty());
  for (uint32_t page = 0; page < 5; ++page) list.add(page);
  CHECK(list.some(2) == std::vector<uint32_t>{0, 1});
  CHECK(list.some(2) == std::vector<uint32_t>{2, 3});
  CHECK(list.some(2) == std::vector<uint32_t>{4, 0});
  CHECK(list.some(9).size() == 5);
}

TEST_CASE("the_list_of_hot_pages_is_bounded") {
  HotPages list;
  for (uint32_t page = 0; page < HotPages::kMost; ++page) {
    REQUIRE(list.has_room());
    list.add(page);
  }
  CHECK(!list.has_room());
}

TEST_CASE("a_page_was_taken_early_where_its_stores_are_not_home_or_the_timer_has_published_them") {
  Heat heat;
  CHECK(!heat.taken_early(false));
  CHECK(heat.taken_early(true));
  heat.written_back(true);  // by a barrier
  CHECK(!heat.taken_early(false));
  heat = {};
  heat.timer_takes();
  CHECK(!heat.taken_early(false));
  heat.written_back(false);  // it had no stores
  CHECK(!heat.taken_early(false));
  heat.timer_takes();
  heat.written_back(true);
  CHECK(heat.taken_early(false));
  heat.taken_away(false);
  CHECK(!heat.taken_early(false));
  // The stores after it are a barrier's.
  heat.timer_takes();
  CHECK(!heat.stored());
  heat.written_back(true);
  CHECK(!heat.taken_early(false));
  heat.timer_takes();
  CHECK(heat.stored());
  heat.timer_takes();
  CHECK(!heat.taken_early(false));
  CHECK(heat.hot());
  for (int i = 1; i < Heat::kQuiet; ++i) REQUIRE(!heat.compared(false));
}

TEST_CASE("a_contended_page_is_due_when_it_is_quiet_or_after_a_second") {
  ContendedPages pages;
  const auto due = [&](uint32_t page, uint32_t generation, uint64_t content, Nanos t) {
    pages.tick(1, static_cast<uint64_t>(t), t);
    return pages.due(
        page, generation, [content] { return content; }, t);
  };
  CHECK(!due(1, 5, 100, 0));
  CHECK(due(1, 5, 100, 10 * kMilli));   // quiet
  CHECK(!due(1, 5, 100, 20 * kMilli));  // forgotten
  for (Nanos t = 30 * kMilli; t < 20 * kMilli + kSecond; t += 10 * kMilli) {
    REQUIRE(!due(1, 5, static_cast<uint64_t>(t), t));
  }
  CHECK(due(1, 5, 1, 20 * kMilli + kSecond));
  // Another generation is another page.
  CHECK(!due(2, 1, 100, 0));
  CHECK(!due(2, 2, 100, 2 * kSecond));
  CHECK(due(2, 2, 100, 2 * kSecond + 1));
}

TEST_CASE("where_several_pages_are_taken_early_all_wait_until_the_process_rests") {
  ContendedPages pages;
  const auto same = [] { return uint64_t{1}; };
  uint64_t stored = 0;
  Nanos t = kSecond;
  const auto tick = [&](size_t dirty) { pages.tick(dirty, stored, t += 10 * kMilli); };
  for (uint32_t i = 0; i < ContendedPages::kSeveral; ++i) {
    CHECK(!pages.all());
    pages.taken_away();
    tick(30);
  }
  REQUIRE(pages.all());
  // It stores to a further page in each tick: what is quiet meanwhile waits.
  CHECK(!pages.due(7, 1, same, t));
  for (int i = 0; i < 20; ++i) {
    ++stored;
    tick(30);
    REQUIRE(!pages.due(7, 1, same, t));
  }
  // Then to none: after 20 ms and 1.25 ms for each dirty page the timer looks, finds no change, and
  // the next tick takes it.
  const auto ticks_until_due = [&](uint32_t page, size_t dirty) {
    int ticks = 0;
    do {
      tick(dirty);
    } while (!pages.due(page, 1, same, t) && ++ticks < 1000);
    return ticks;
  };
  CHECK(ticks_until_due(7, 30) == 6);
  CHECK(ticks_until_due(7, 30) == 1);  // it rests
  // It stores to pages that are dirty already, to one of them between two looks.
  uint64_t content = 0;
  const auto changing = [&] { return ++content; };
  CHECK(!pages.due(8, 1, changing, t));
  for (int i = 0; i < 40; ++i) {
    tick(30);
    REQUIRE(!pages.due(8, 1, changing, t));
    REQUIRE(!pages.due(7, 1, same, t));
  }
  // However much is dirty it is no longer than the most.
  ++stored;
  CHECK(ticks_until_due(9, 100000) == 11);
}

TEST_CASE("of_many_contended_pages_that_have_waited_for_long_one_goes_each_50_ms") {
  ContendedPages pages;
  const auto same = [] { return uint64_t{1}; };
  uint64_t stored = 0;
  Nanos t = kSecond;
  for (uint32_t i = 0; i < ContendedPages::kSeveral; ++i) pages.taken_away();
  size_t gone = 0;
  for (int round = 0; round < 200; ++round, t += 10 * kMilli) {
    pages.tick(100, ++stored, t);
    for (uint32_t page = 0; page < 100; ++page) gone += pages.due(page, 1, same, t) ? 1 : 0;
    if (t < 2 * kSecond) REQUIRE(gone == 0);
  }
  CHECK(gone >= 19);
  CHECK(gone <= 21);
}

TEST_CASE("the_timer_takes_few_pages_at_first_and_twice_as_many_while_none_is_taken_away") {
  ContendedPages pages;
  Nanos t = kSecond;
  const auto tick = [&](size_t took) {
    pages.took(took);
    pages.tick(1000, 0, t += 10 * kMilli);
    return pages.most();
  };
  CHECK(pages.most() == ContendedPages::kFew);
  CHECK(tick(ContendedPages::kFew - 1) == ContendedPages::kFew);
  CHECK(tick(ContendedPages::kFew) == 2 * ContendedPages::kFew);
  CHECK(tick(2 * ContendedPages::kFew) == 4 * ContendedPages::kFew);
  CHECK(tick(0) == 4 * ContendedPages::kFew);
  pages.taken_away();
  CHECK(tick(4 * ContendedPages::kFew) == ContendedPages::kFew);
  CHECK(tick(ContendedPages::kFew) == 2 * ContendedPages::kFew);
  // Once all are contended each of them is asked about.
  for (uint32_t i = 0; i < ContendedPages::kSeveral; ++i) pages.taken_away();
  CHECK(tick(0) > 1000);
}

TEST_CASE("an_import_is_contended_no_more_when_nothing_was_taken_for_long") {
  ContendedPages pages;
  for (uint32_t i = 0; i < 2 * ContendedPages::kSeveral; ++i) pages.taken_away();
  pages.tick(1, 0, kSecond);
  CHECK(pages.all());
  pages.tick(1, 0, 7 * kSecond);
  CHECK(pages.all());
  pages.tick(1, 0, 12 * kSecond);
  CHECK(!pages.all());
}

TEST_CASE("no_more_contended_pages_are_kept_than_there_is_room_for") {
  ContendedPages pages;
  const auto same = [] { return uint64_t{1}; };
  for (uint32_t page = 0; page < ContendedPages::kMost; ++page) {
    REQUIRE(!pages.due(page, 1, same, 0));
  }
  CHECK(pages.due(ContendedPages::kMost, 1, same, 0));
  CHECK(pages.due(0, 1, same, 1));
  CHECK(!pages.due(ContendedPages::kMost, 1, same, 1));
  pages.forget_all();
  CHECK(!pages.due(3, 1, same, 2));
}

TEST_CASE("a_share_of_a_processor_is_not_exceeded") {
  CpuShare share(20, 2 * kMilli);
  Nanos used = 0;
  for (Nanos t = 0; t < 10 * kSecond; t += 10 * kMilli) {
    share.begin(t, used);
    while (share.left(used)) used += 100 * kMicro;
    share.end(used);
  }
  CHECK(used <= 10 * kSecond / 20 + 2 * kMilli + 100 * kMicro);
  CHECK(used >= 10 * kSecond / 20 - 2 * kMilli);
  // One piece that takes long is paid before the next begins.
  share.begin(10 * kSecond, used);
  REQUIRE(share.left(used));
  used += 50 * kMilli;
  share.end(used);
  share.begin(10 * kSecond + 900 * kMilli, used);
  CHECK(!share.left(used));
  share.end(used);
  share.begin(10 * kSecond + 1100 * kMilli, used);
  CHECK(share.left(used));
}

}  // namespace cmi::test::heat_test

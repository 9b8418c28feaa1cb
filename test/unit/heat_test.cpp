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

using namespace cmi;
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

TEST_CASE("a_contended_page_is_due_when_it_is_quiet_or_after_a_second") {
  ContendedPages pages;
  CHECK(!pages.due(1, 5, 100, 0));
  CHECK(pages.due(1, 5, 100, 10 * kMilli));   // quiet
  CHECK(!pages.due(1, 5, 100, 20 * kMilli));  // forgotten
  for (Nanos t = 30 * kMilli; t < 20 * kMilli + kSecond; t += 10 * kMilli) {
    REQUIRE(!pages.due(1, 5, static_cast<uint64_t>(t), t));
  }
  CHECK(pages.due(1, 5, 1, 20 * kMilli + kSecond));
  // Another generation is another page.
  CHECK(!pages.due(2, 1, 100, 0));
  CHECK(!pages.due(2, 2, 100, 2 * kSecond));
  CHECK(pages.due(2, 2, 100, 2 * kSecond + 1));
}

TEST_CASE("no_more_contended_pages_are_kept_than_there_is_room_for") {
  ContendedPages pages;
  for (uint32_t page = 0; page < ContendedPages::kMost; ++page) {
    REQUIRE(!pages.due(page, 1, 1, 0));
  }
  CHECK(pages.due(ContendedPages::kMost, 1, 1, 0));
  CHECK(pages.due(0, 1, 1, 1));
  CHECK(!pages.due(ContendedPages::kMost, 1, 1, 1));
  pages.forget_all();
  CHECK(!pages.due(3, 1, 1, 2));
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

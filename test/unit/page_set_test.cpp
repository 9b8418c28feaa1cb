// The set of pages as ranges, against a set of pages one by one.
#include "core/memory/page/page_set.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>

namespace cmi::memory::page_set_test {

namespace {
std::set<uint32_t> one_by_one(const std::vector<PageRange>& ranges) {
  std::set<uint32_t> pages;
  for (const PageRange& r : ranges) {
    for (uint32_t i = 0; i < r.count; ++i) pages.insert(r.first + i);
  }
  return pages;
}
}  // namespace

TEST_CASE("page_set_joins_ranges_that_touch") {
  PageSet set;
  set.add({3, 2});
  set.add({7, 1});
  set.add({5, 2});
  REQUIRE(set.all().size() == 1);
  CHECK(set.all()[0].first == 3);
  CHECK(set.all()[0].count == 5);
}

TEST_CASE("page_set_tells_the_lowest_range_inside_another") {
  PageSet set;
  set.add({3, 4});
  set.add({9, 1});
  CHECK(set.first_in({0, 3}).count == 0);
  CHECK(set.first_in({0, 5}).first == 3);
  CHECK(set.first_in({0, 5}).count == 2);
  CHECK(set.first_in({5, 20}).first == 5);
  CHECK(set.first_in({5, 20}).count == 2);
  CHECK(set.first_in({7, 20}).first == 9);
  CHECK(set.first_in({10, 20}).count == 0);
  CHECK(set.first_in({4, 0}).count == 0);
}

TEST_CASE("ranges_that_name_a_page_twice_become_ranges_that_name_it_once") {
  const std::vector<PageRange> kept = each_once({{1, 2}, {3, 1}, {9, 1}});
  REQUIRE(kept.size() == 3);
  CHECK(kept[1].first == 3);
  CHECK(each_once({}).empty());
  CHECK(each_once(std::vector<PageRange>(2048, {0, 100})).size() == 1);
  std::mt19937 engine(21);
  for (int round = 0; round < 200; ++round) {
    std::vector<PageRange> ranges;
    for (auto n = engine() % 8; n > 0; --n) {
      ranges.push_back({static_cast<uint32_t>(engine() % 40), static_cast<uint32_t>(engine() % 9)});
    }
    const std::vector<PageRange> once = each_once(ranges);
    REQUIRE(one_by_one(once) == one_by_one(ranges));
    size_t pages = 0;
    for (const PageRange& r : once) pages += r.count;
    REQUIRE(pages == one_by_one(ranges).size());
  }
}

TEST_CASE("page_set_holds_what_a_plain_set_holds") {
  std::mt19937 engine(20);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  for (int round = 0; round < 50; ++round) {
    PageSet set;
    std::set<uint32_t> plain;
    for (int step = 0; step < 60; ++step) {
      const PageRange r{random() % 100, random() % 9};
      if (random() % 2 == 0) {
        set.add(r);
        for (uint32_t i = 0; i < r.count; ++i) plain.insert(r.first + i);
      } else {
        set.remove(r);
        for (uint32_t i = 0; i < r.count; ++i) plain.erase(r.first + i);
      }
      REQUIRE(one_by_one(set.all()) == plain);
      REQUIRE(set.empty() == plain.empty());
      const uint32_t page = random() % 110;
      REQUIRE(set.contains(page) == plain.contains(page));
      const PageRange within{random() % 100, random() % 30};
      std::set<uint32_t> inside, outside;
      for (uint32_t i = 0; i < within.count; ++i) {
        (plain.contains(within.first + i) ? inside : outside).insert(within.first + i);
      }
      REQUIRE(one_by_one(set.in(within)) == inside);
      REQUIRE(one_by_one(set.missing({within})) == outside);
    }
    const auto all = set.all();
    for (size_t i = 1; i < all.size(); ++i) {
      CHECK(all[i - 1].first + all[i - 1].count < all[i].first);
    }
  }
}

}  // namespace cmi::memory::page_set_test

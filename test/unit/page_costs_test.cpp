// What pages cost: the heaviest are kept in bounded memory, writers are told apart by the words
// that they have stored to, and what cmiadm says of them.
#include "core/memory/page/page_costs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "../tools/cmiadm/diagnosis.hpp"
#include "core/base/histogram.hpp"

namespace cmi::test::page_costs_test {
namespace {

using memory::PageCosts;
using memory::PageRange;
using memory::PageWriters;
using memory::StoredWords;
using memory::TopPages;

constexpr ContextId kOne{1, 1}, kTwo{2, 2}, kThree{3, 3};

node::HomeLine told(PageWriters& writers) {
  node::HomeLine line;
  writers.report(&line);
  return line;
}

StoredWords words(std::initializer_list<size_t> set) {
  StoredWords w;
  for (size_t i : set) w.set(i);
  return w;
}

void publish(PageWriters& to, uint32_t page, const ContextId& by, const StoredWords& stored) {
  const PageRange range{page, 1};
  to.count_words(page, by, stored);
  to.count_publication({&range, 1}, by);
}

TEST_CASE("top_pages_finds_the_heavy_pages_among_many_light_ones") {
  TopPages<uint64_t, 64> top;
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    // Five pages get a third of what is counted, 50,000 others the rest.
    const uint32_t page = round % 3 == 0 ? 1000 * (round / 3 % 5) : 7 + random() % 50000;
    ++top.add(page);
  }
  const auto all = top.all();
  CHECK(all.size() == 64);
  for (uint32_t heavy = 0; heavy < 5; ++heavy) {
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.page == 1000 * heavy; });
    REQUIRE(at != all.end());
    CHECK(at->cost <= 20000 / 3 / 5 + 20);  // no page is credited with what others have cost
    CHECK(at->cost >= 1000);
    CHECK(at - all.begin() < 5);
  }
}

TEST_CASE("a_page_that_takes_an_entry_begins_at_zero") {
  TopPages<uint64_t, 4> top;
  for (uint32_t page = 0; page < 5; ++page) ++top.add(page);
  CHECK(top.find(4) != nullptr);
  CHECK(*top.find(4) == 1);
  CHECK(top.all().size() == 4);
  CHECK(top.find(99) == nullptr);
}

TEST_CASE("costs_of_an_import_are_kept_by_page_and_by_region") {
  PageCosts costs;
  costs.count(513, PageCosts::Kind::kLoadMiss);
  costs.count(514, PageCosts::Kind::kLoadMiss);
  costs.count(514, PageCosts::Kind::kStoreMiss);
  costs.count(514, PageCosts::Kind::kFirstStore);
  const PageRange noticed[]{{514, 1}, {2000, 2}};
  costs.count_notice(noticed, false);
  costs.count_notice({noticed, 1}, true);
  node::ImportLine line;
  costs.report(&line);
  REQUIRE(line.pages.size() == 4);
  CHECK(line.pages[0].first == 514);
  CHECK(line.pages[0].cost.load_misses == 1);
  CHECK(line.pages[0].cost.store_misses == 1);
  CHECK(line.pages[0].cost.first_stores == 1);
  CHECK(line.pages[0].cost.notices == 2);
  CHECK(line.pages[0].cost.useless == 1);
  REQUIRE(line.regions.size() == 2);
  CHECK(line.regions[0].first == 512);
  CHECK(line.regions[0].cost.load_misses == 2);
  CHECK(line.regions[0].cost.notices == 2);
  CHECK(line.regions[1].first == 1536);
  CHECK(line.regions[1].cost.notices == 1);
}

TEST_CASE("a_notification_of_very_many_pages_counts_at_the_first_ones") {
  PageCosts costs;
  const PageRange all{0, 1u << 30};
  costs.count_notice({&all, 1}, false);
  node::ImportLine line;
  costs.report(&line);
  CHECK(line.pages.size() == 32);
}

TEST_CASE("two_writers_of_different_words_are_false_sharing") {
  PageWriters writers;
  const PageRange page{9, 1};
  for (int i = 0; i < 10; ++i) {
    publish(writers, 9, kOne, words({0}));
    writers.count_notice({&page, 1});
    publish(writers, 9, kTwo, words({1, 2, 100}));
  }
  const node::HomeLine line = told(writers);
  REQUIRE(line.pages.size() == 1);
  const node::PublishedPageLine& p = line.pages[0];
  CHECK(p.page == 9);
  CHECK(p.publications == 20);
  CHECK(p.bounces == 19);
  CHECK(p.notices == 10);
  CHECK_FALSE(p.more_writers);
  REQUIRE(p.writers.size() == 2);
  CHECK(p.writers[0].by == kOne);
  CHECK(p.writers[0].publications == 10);
  CHECK(adm::bytes_text(p.writers[0].words) == "0-7");
  CHECK(adm::bytes_text(p.writers[1].words) == "8-23, 800-807");
  CHECK(std::string(adm::diagnose(p).name) == "false sharing");
}

TEST_CASE("two_writers_of_one_word_write_after_each_other") {
  PageWriters writers;
  publish(writers, 3, kOne, words({7, 8}));
  publish(writers, 3, kTwo, words({8}));
  CHECK(std::string(adm::diagnose(told(writers).pages.at(0)).name) == "write after write");
}

TEST_CASE("one_writer_is_known_by_whether_others_have_the_page") {
  PageWriters writers;
  const PageRange page{3, 1};
  publish(writers, 3, kOne, words({7}));
  CHECK(std::string(adm::diagnose(told(writers).pages.at(0)).name) ==
        "written by one, had by nobody else");
  writers.count_notice({&page, 1});
  CHECK(std::string(adm::diagnose(told(writers).pages.at(0)).name) ==
        "read by others, written by one");
}

TEST_CASE("a_writer_that_does_not_tell_where_is_not_called_false_sharing") {
  PageWriters writers;
  const PageRange page{3, 1};
  publish(writers, 3, kOne, words({7}));
  writers.count_publication({&page, 1}, ContextId{});  // the home's own
  CHECK(std::string(adm::diagnose(told(writers).pages.at(0)).name) ==
        "written by several, not known where");
}

TEST_CASE("of_many_writers_the_busiest_are_told_apart") {
  PageWriters writers;
  for (int i = 0; i < 5; ++i) publish(writers, 1, kThree, words({0}));
  for (uint64_t other = 10; other < 20; ++other) publish(writers, 1, {other, 0}, words({other}));
  const node::HomeLine line = told(writers);
  REQUIRE(line.pages.size() == 1);
  CHECK(line.pages[0].more_writers);
  CHECK(line.pages[0].writers.size() == 4);
  CHECK(line.pages[0].writers[0].by == kThree);
  CHECK(line.pages[0].writers[0].publications == 5);
}

TEST_CASE("bytes_of_many_words_are_cut_short") {
  decltype(node::PageWriterLine::words) all{};
  all.fill(~uint64_t{0});
  CHECK(adm::bytes_text(all) == "0-4095");
  all.fill(0x5555555555555555);
  CHECK(adm::bytes_text(all) == "0-7, 16-23, 32-39, 48-55, ...");
  all.fill(0);
  CHECK(adm::bytes_text(all).empty());
}

TEST_CASE("buckets_of_a_histogram_follow_one_another") {
  CHECK(bucket_of(0) == 0);
  CHECK(bucket_of(255) == 0);
  CHECK(bucket_of(256) == 1);
  for (size_t i = 0; i + 1 < kHistogramBuckets; ++i) {
    CHECK(bucket_of(end_of_bucket(i) - 1) == i);
    CHECK(bucket_of(end_of_bucket(i)) == i + 1);
  }
  CHECK(bucket_of(UINT64_MAX) == kHistogramBuckets - 1);
}

TEST_CASE("quantiles_of_a_histogram_are_too_high_by_a_quarter_at_most") {
  Histogram h;
  CHECK(quantile(h.counts(), 0.5) == 0);
  for (uint64_t i = 1; i <= 1000; ++i) h.add(i * 1000);
  CHECK(h.sum() == 500500000);
  const uint64_t half = quantile(h.counts(), 0.5), most = quantile(h.counts(), 0.99);
  CHECK(half >= 500000);
  CHECK(half <= 625000);
  CHECK(most >= 990000);
  CHECK(most <= 1237500);
  h.add(UINT64_MAX / 2);
  CHECK(quantile(h.counts(), 1.0) == UINT64_MAX);
}

TEST_CASE("a_map_marks_each_cell_that_has_a_page_of_the_range") {
  node::MapLine small(true, 10);
  small.mark(3, 2, node::kMapHeld);
  CHECK(small.cells == std::vector<uint8_t>{0, 0, 0, 1, 1, 0, 0, 0, 0, 0});
  node::MapLine large(false, 10 * node::kMapCells - 5);
  CHECK(large.per_cell == 10);
  CHECK(large.cells.size() == node::kMapCells);
  large.mark(10 * node::kMapCells - 6, 1, node::kMapDirty);
  large.mark(9, 2, node::kMapHeld);
  large.mark(50, 0, node::kMapFlux);
  CHECK(large.cells.back() == node::kMapDirty);
  CHECK(large.cells[0] == node::kMapHeld);
  CHECK(large.cells[1] == node::kMapHeld);
  CHECK(large.cells[5] == 0);
}

}  // namespace
}  // namespace cmi::test::page_costs_test

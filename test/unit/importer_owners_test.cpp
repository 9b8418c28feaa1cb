// The small owners of an importer's data: what waits for an answer, for a report or for its thread,
// links, and reads under way.
#include <doctest/doctest.h>

#include <thread>

#include "core/memory/importer/import.hpp"
#include "core/memory/importer/links.hpp"
#include "core/memory/importer/loss_reporter.hpp"
#include "core/memory/importer/pending_answers.hpp"
#include "core/memory/importer/pending_stores.hpp"
#include "core/memory/importer/reads_under_way.hpp"

namespace cmi::test::importer_owners_test {
using namespace cmi::memory;

namespace {

constexpr ContextId kHome{1, 2}, kOther{3, 4};

// A link that nobody looks into: only which one it is counts.
struct NoLink {
  char place = 0;
  std::shared_ptr<fabric::Link> ptr() {
    return {std::shared_ptr<void>(), reinterpret_cast<fabric::Link*>(&place)};
  }
};

std::shared_ptr<Import> import_over(NoLink& link) {
  auto imp = std::make_shared<Import>();
  imp->link = link.ptr();
  return imp;
}

PendingAnswer answer(const ContextId& home, uint64_t number) { return {nullptr, home, 0, number}; }

}  // namespace

TEST_SUITE("pending_stores") {
  TEST_CASE("each_thread_finds_its_own_store_once") {
    PendingStores stores;
    PendingStore mine;
    mine.written = 3;
    stores.leave(std::move(mine));
    size_t seen_by_other = 99;
    std::thread([&] { seen_by_other = stores.take().written; }).join();
    CHECK(seen_by_other == 0);
    const PendingStore taken = stores.take();
    CHECK(taken.written == 3);
    CHECK(taken.tid == gettid());
    CHECK(stores.take().written == 0);
    CHECK(stores.size() == 0);
  }
  TEST_CASE("a_thread_has_one_store_and_the_last_counts") {
    PendingStores stores;
    for (size_t written : {1, 2}) {
      PendingStore store;
      store.written = written;
      stores.leave(std::move(store));
    }
    CHECK(stores.size() == 1);
    CHECK(stores.take().written == 2);
  }
  TEST_CASE("what_threads_left_that_have_ended_is_dropped") {
    PendingStores stores;
    std::thread([&] { stores.leave({}); }).join();
    CHECK(stores.size() == 1);
    // The kernel may know an ended thread for a moment.
    const Deadline deadline = Deadline::in(10 * kSecond);
    do {
      stores.leave({});
    } while (stores.size() != 1 && !deadline.passed());
    CHECK(stores.size() == 1);
    (void)stores.take();
    CHECK(stores.size() == 0);
  }
}

TEST_SUITE("pending_answers") {
  TEST_CASE("what_is_done_is_taken_in_order_and_the_rest_waits") {
    PendingAnswers answers;
    CHECK_FALSE(answers.any());
    for (uint64_t n : {1, 2, 3}) answers.add(answer(kHome, n));
    CHECK(answers.any());
    CHECK(answers.awaited(kHome, 2));
    CHECK_FALSE(answers.awaited(kOther, 2));
    const auto taken = answers.take([](PendingAnswer& a) { return a.number != 2; });
    REQUIRE(taken.size() == 2);
    CHECK(taken[0].number == 1);
    CHECK(taken[1].number == 3);
    CHECK(answers.awaited(kHome, 2));
    CHECK_FALSE(answers.awaited(kHome, 1));
    CHECK(answers.take([](PendingAnswer&) { return true; }).size() == 1);
    CHECK_FALSE(answers.any());
  }
  TEST_CASE("what_a_look_settles_is_kept") {
    PendingAnswers answers;
    PendingAnswer list = answer(kHome, 1);
    list.unsettled = {{0, 1}, {5, 1}};
    answers.add(std::move(list));
    const auto settle_one = [](PendingAnswer& a) {
      a.unsettled.pop_back();
      return a.unsettled.empty();
    };
    CHECK(answers.take(settle_one).empty());
    CHECK(answers.take(settle_one).size() == 1);
  }
  TEST_CASE("one_home_cannot_have_more_than_a_limit_wait") {
    PendingAnswers answers;
    for (ptrdiff_t n = 0; n < PendingAnswers::kMost + 5; ++n) {
      answers.add(answer(kHome, static_cast<uint64_t>(n)));
    }
    answers.add(answer(kOther, 7));
    CHECK_FALSE(answers.awaited(kHome, PendingAnswers::kMost));
    CHECK(answers.awaited(kOther, 7));
    CHECK(answers.take([](PendingAnswer&) { return true; }).size() == PendingAnswers::kMost + 1);
  }
}

TEST_SUITE("loss_reporter") {
  TEST_CASE("losses_of_a_segment_are_one_report_when_no_older_write_back_is_open") {
    NoLink link;
    const auto imp = import_over(link);
    LossReporter reporter;
    CHECK_FALSE(reporter.due());
    reporter.add(imp, {1, 2}, false, 5);
    reporter.add(imp, {3}, true, 8);
    CHECK(reporter.mark().seen == 1);
    CHECK(reporter.mark().seen_local == 1);
    CHECK(reporter.take({{imp.get(), link.ptr().get(), 7}}).stores.empty());
    CHECK(reporter.due());
    const auto reports = reporter.take({{imp.get(), link.ptr().get(), 8}});
    REQUIRE(reports.stores.size() == 1);
    CHECK(reports.stores[0].pages == std::vector<uint32_t>{1, 2, 3});
    CHECK(reports.stores[0].local);
    CHECK(reporter.due());
    reporter.reported(1);
    CHECK_FALSE(reporter.due());
  }
  TEST_CASE("a_home_is_reported_after_the_stores_that_were_lost_with_it") {
    NoLink link, other;
    const auto imp = import_over(link);
    const auto elsewhere = import_over(other);
    LossReporter reporter;
    reporter.add(imp, {1}, false, 5);
    reporter.add(link.ptr(), 3);
    const OpenWriteBack of_stores{imp.get(), link.ptr().get(), 4};
    CHECK(reporter.take({of_stores}).homes.empty());  // the stores wait, so the home does
    const auto reports = reporter.take({{elsewhere.get(), other.ptr().get(), 1}});
    CHECK(reports.stores.size() == 1);
    REQUIRE(reports.homes.size() == 1);
    CHECK(reports.homes[0].link == link.ptr());
  }
  TEST_CASE("a_home_waits_for_older_write_backs_to_it") {
    NoLink link;
    const auto imp = import_over(link);
    LossReporter reporter;
    reporter.add(link.ptr(), 3);
    CHECK(reporter.take({{imp.get(), link.ptr().get(), 2}}).homes.empty());
    CHECK(reporter.take({{imp.get(), link.ptr().get(), 3}}).homes.size() == 1);
  }
  TEST_CASE("what_could_not_be_sent_to_a_neighbour_waits_with_what_came_meanwhile") {
    LossReporter reporter;
    Loss loss;
    loss.pages = {4};
    reporter.add_of_neighbour(loss);
    auto taken = reporter.take_of_neighbours();
    REQUIRE(taken.size() == 1);
    CHECK(taken[0].pages == std::vector<uint32_t>{4});
    CHECK(reporter.take_of_neighbours().empty());
    reporter.add_of_neighbour(loss);
    CHECK(reporter.put_back(std::move(taken)) == 2);
    CHECK(reporter.take_of_neighbours().size() == 2);
  }
}

TEST_SUITE("links") {
  TEST_CASE("a_home_has_one_link_which_is_made_once") {
    NoLink a, b;
    Links links;
    CHECK(links.find(kHome) == nullptr);
    CHECK(links.find_or_make(kHome, [] { return Links::LinkPtr(); }) == nullptr);
    CHECK(links.find_or_make(kHome, [&] { return a.ptr(); }) == a.ptr());
    CHECK(links.find_or_make(kHome, [&] { return b.ptr(); }) == a.ptr());
    CHECK(links.find_or_make(kOther, [&] { return b.ptr(); }) == b.ptr());
    CHECK(links.find(kHome) == a.ptr());
    const auto not_a = [&](fabric::Link& l) { return &l != a.ptr().get(); };
    CHECK(links.those_that(not_a) == std::vector<Links::LinkPtr>{b.ptr()});
  }
  TEST_CASE("only_the_link_that_is_meant_is_erased") {
    NoLink a, b;
    Links links;
    (void)links.find_or_make(kHome, [&] { return a.ptr(); });
    links.erase(kHome, b.ptr());
    CHECK(links.find(kHome) == a.ptr());
    links.erase(kHome, a.ptr());
    CHECK(links.find(kHome) == nullptr);
  }
}

TEST_SUITE("reads_under_way") {
  TEST_CASE("a_page_is_found_in_the_read_that_brings_it") {
    ReadsUnderWay reads;
    const auto read = std::make_shared<ReadUnderWay>();
    read->pages = {10, 4};
    reads.add(read);
    CHECK(reads.find(9) == nullptr);
    CHECK(reads.find(10) == read);
    CHECK(reads.find(13) == read);
    CHECK(reads.find(14) == nullptr);
    reads.remove(read);
    CHECK(reads.find(10) == nullptr);
  }
}

}  // namespace cmi::test::importer_owners_test

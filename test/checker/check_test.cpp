// The checker against histories written by hand: those that the memory model allows pass, and each
// that it forbids is rejected, for the right reason.
#include "checker/check.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

namespace cmi::checker::check_test {

namespace {

// The same byte in each place, so that every byte of a value names its store.
constexpr uint64_t word(uint64_t number) { return number * 0x0101010101010101; }

constexpr uint32_t kX = 0, kY = 8, kByte = 16, kFar = 4096;

constexpr Cell kCells[] = {{kX, 8}, {kY, 8}, {kByte, 1}, {kFar, 8}};

// Events take place from one time to another; threads are made as they are named.
struct Story {
  History history;

  Story() { history.cells.assign(std::begin(kCells), std::end(kCells)); }

  // Threads 0 and 1 are process 0, 2 and 3 process 1, and so on.
  Story& add(uint32_t thread, const Event& event) {
    while (history.threads.size() <= thread) {
      history.threads.push_back({static_cast<uint32_t>(history.threads.size() / 2), {}});
    }
    history.threads[thread].events.push_back(event);
    return *this;
  }
  Story& store(uint32_t thread, uint32_t at, uint64_t number, Time begin, Time end) {
    return add(thread, {Kind::kStore, 8, at, word(number), 0, 0, begin, end});
  }
  Story& load(uint32_t thread, uint32_t at, uint64_t number, Time begin, Time end) {
    return add(thread, {Kind::kLoad, 8, at, word(number), 0, 0, begin, end});
  }
  Story& raw_load(uint32_t thread, uint32_t at, uint8_t width, uint64_t value, Time begin,
                  Time end) {
    return add(thread, {Kind::kLoad, width, at, value, 0, 0, begin, end});
  }
  Story& barrier(uint32_t thread, Time begin, Time end) {
    return add(thread, {Kind::kBarrier, 0, 0, 0, 0, 0, begin, end});
  }
  Story& flush(uint32_t thread, uint32_t at, Time begin, Time end) {
    return add(thread, {Kind::kLineFlush, 0, at, 0, 0, 0, begin, end});
  }
  Story& swap(uint32_t thread, uint32_t at, uint64_t compare, uint64_t desired, uint64_t found,
              Time begin, Time end) {
    return add(thread, {Kind::kSwap, 8, at, word(found), word(compare), word(desired), begin, end});
  }

  // Of process 0, which may be the home of a cell; the others have settled it at that time.
  Story& death(Time lived, Time settled) {
    history.deaths.push_back({0, lived, settled});
    return *this;
  }
  Story& home(uint32_t at, uint32_t process) {
    for (Cell& cell : history.cells) {
      if (cell.at == at) cell.home = process;
    }
    return *this;
  }

  Verdict verdict() const { return check(history); }
  Fault fault() const {
    const Verdict v = verdict();
    INFO(v.explanation);
    CHECK((v.fault == Fault::kNone) == v.explanation.empty());
    return v.fault;
  }
  // Rejected because the values of a cell have no order, with this in the explanation.
  void has_no_order(std::initializer_list<const char*> because) const {
    const Verdict v = verdict();
    INFO(v.explanation);
    CHECK(v.fault == Fault::kOrder);
    for (const char* reason : because) {
      CAPTURE(reason);
      CHECK(v.explanation.find(reason) != std::string::npos);
    }
  }
};

constexpr const char* kByThread = "one thread met them";
constexpr const char* kByProcess = "the threads of one process met them, or those at home";
constexpr const char* kByHome = "it was at home before";
constexpr const char* kByPublication = "it was published before";
constexpr const char* kBySettling = "whose death was settled before";
constexpr const char* kBySwap = "nothing comes between";
constexpr const char* kByBeginning = "it is the initial value";

TEST_SUITE("illegal") {
  TEST_CASE("a_load_of_what_nobody_stored_is_rejected") {
    CHECK(Story().store(0, kX, 1, 10, 11).load(2, kX, 2, 20, 21).fault() == Fault::kNeverStored);
  }

  TEST_CASE("a_load_of_what_was_stored_elsewhere_is_rejected") {
    CHECK(Story().store(0, kX, 1, 10, 11).load(2, kY, 1, 20, 21).fault() == Fault::kNeverStored);
  }

  TEST_CASE("a_byte_outside_of_all_cells_that_changed_is_rejected") {
    CHECK(Story().raw_load(0, kByte + 1, 1, 0, 10, 11).fault() == Fault::kNone);
    CHECK(Story().raw_load(0, kByte + 1, 1, 7, 10, 11).fault() == Fault::kNeverStored);
    CHECK(Story().raw_load(0, kByte, 2, 0x0700, 10, 11).fault() == Fault::kNeverStored);
  }

  TEST_CASE("a_load_of_bytes_of_two_stores_is_rejected") {
    const auto torn = [](uint64_t value) {
      return Story()
          .store(0, kX, 1, 10, 11)
          .store(2, kX, 2, 10, 11)
          .raw_load(4, kX, 8, value, 20, 21)
          .fault();
    };
    CHECK(torn(0x0101010102020202) == Fault::kMixed);
    CHECK(torn(0x0202020202020201) == Fault::kMixed);
    CHECK(torn(0x0000000001010101) == Fault::kMixed);
    CHECK(torn(word(1)) == Fault::kNone);
  }

  TEST_CASE("a_load_that_ends_before_the_store_begins_is_rejected") {
    CHECK(Story().load(2, kX, 1, 1, 9).store(0, kX, 1, 10, 11).fault() == Fault::kTooEarly);
    CHECK(Story().load(2, kX, 1, 1, 10).store(0, kX, 1, 10, 11).fault() == Fault::kNone);
  }

  TEST_CASE("a_load_after_the_writers_barrier_that_misses_the_store_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .barrier(0, 12, 20)
        .load(2, kX, 0, 21, 22)
        .has_no_order({kByPublication, kByBeginning});
  }

  TEST_CASE("a_load_of_the_value_before_the_published_one_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .store(0, kX, 2, 12, 13)
        .barrier(0, 14, 20)
        .load(2, kX, 1, 21, 22)
        .has_no_order({kByPublication, kByThread});
  }

  TEST_CASE("a_barrier_of_another_thread_of_the_writers_process_publishes_too") {
    Story()
        .store(0, kX, 1, 10, 11)
        .barrier(1, 12, 20)
        .load(2, kX, 0, 21, 22)
        .has_no_order({kByPublication});
  }

  TEST_CASE("a_line_flush_publishes_what_lies_in_its_line") {
    Story()
        .store(0, kX, 1, 10, 11)
        .flush(0, kX + 100, 12, 20)
        .load(2, kX, 0, 21, 22)
        .has_no_order({kByPublication});
  }

  TEST_CASE("a_swap_elsewhere_publishes_the_stores_before_it") {
    Story()
        .store(0, kX, 1, 10, 11)
        .swap(0, kY, 9, 8, 0, 12, 20)  // a failing one too
        .load(2, kX, 0, 21, 22)
        .has_no_order({kByPublication});
  }

  TEST_CASE("the_home_node_that_misses_a_published_store_is_no_exception") {
    Story()
        .store(2, kX, 1, 10, 11)
        .barrier(2, 12, 20)
        .load(0, kX, 0, 21, 22)
        .has_no_order({kByPublication});
  }

  TEST_CASE("a_thread_that_goes_back_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .load(2, kX, 1, 12, 13)
        .load(2, kX, 0, 14, 15)
        .has_no_order({kByThread, kByBeginning});
  }

  TEST_CASE("a_thread_that_loses_its_own_store_is_rejected") {
    Story().store(0, kX, 1, 10, 11).load(0, kX, 0, 12, 13).has_no_order({kByThread, kByBeginning});
  }

  TEST_CASE("another_thread_of_the_process_that_goes_back_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .load(2, kX, 1, 12, 13)
        .load(3, kX, 0, 14, 15)
        .has_no_order({kByProcess, kByBeginning});
  }

  TEST_CASE("two_readers_that_see_two_stores_in_different_orders_are_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .store(2, kX, 2, 10, 11)
        .load(4, kX, 1, 12, 13)
        .load(4, kX, 2, 14, 15)
        .load(6, kX, 2, 12, 13)
        .load(6, kX, 1, 14, 15)
        .has_no_order({kByThread});
  }

  TEST_CASE("a_store_that_began_after_a_published_one_and_lost_against_it_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .barrier(0, 12, 20)
        .store(2, kX, 2, 21, 22)
        .barrier(2, 23, 30)
        .load(4, kX, 1, 31, 32)
        .has_no_order({kByPublication});
  }

  TEST_CASE("a_store_over_a_value_that_was_read_and_comes_back_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .load(2, kX, 1, 12, 13)
        .store(2, kX, 2, 14, 15)
        .load(4, kX, 2, 16, 17)
        .load(4, kX, 1, 18, 19)
        .has_no_order({kByThread});
  }

  TEST_CASE("nodes_that_disagree_when_all_is_quiet_are_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .barrier(0, 20, 30)
        .store(2, kX, 2, 10, 11)
        .barrier(2, 20, 30)
        .load(4, kX, 1, 40, 41)
        .load(6, kX, 2, 40, 41)
        .has_no_order({kByPublication});
  }

  TEST_CASE("two_swaps_that_take_the_same_value_away_are_rejected") {
    Story().swap(0, kX, 0, 1, 0, 10, 30).swap(2, kX, 0, 2, 0, 10, 30).has_no_order({kBySwap});
  }

  TEST_CASE("a_swap_that_finds_what_a_finished_swap_has_taken_away_is_rejected") {
    Story()
        .swap(0, kX, 0, 1, 0, 10, 20)
        .swap(2, kX, 9, 8, 0, 21, 30)
        .has_no_order({kByPublication, kByBeginning});
  }

  // What another process has met is at home, and there everybody meets it who swaps or is there.
  TEST_CASE("a_swap_that_misses_what_another_process_has_met_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .swap(2, kX, 9, 8, 1, 12, 13)
        .swap(4, kX, 9, 7, 0, 20, 21)
        .has_no_order({kByHome});
    Story()
        .store(0, kX, 1, 10, 11)
        .load(2, kX, 1, 12, 13)
        .swap(4, kX, 9, 8, 0, 20, 21)
        .has_no_order({kByHome});
    CHECK(Story()
              .store(0, kX, 1, 10, 11)
              .load(2, kX, 1, 12, 20)
              .swap(4, kX, 9, 8, 0, 20, 21)
              .fault() == Fault::kNone);
    // What only threads of the process that stored it have met may be in its cache.
    CHECK(Story()
              .store(0, kX, 1, 10, 11)
              .load(1, kX, 1, 12, 13)
              .swap(4, kX, 9, 8, 0, 20, 21)
              .fault() == Fault::kNone);
  }

  TEST_CASE("a_home_that_goes_back_behind_what_another_process_has_met_is_rejected") {
    const auto story = [](uint32_t home) {
      return Story()
          .home(kX, home)
          .store(0, kX, 1, 10, 11)
          .load(2, kX, 1, 12, 13)
          .load(4, kX, 0, 20, 21);
    };
    story(2).has_no_order({kByHome});
    CHECK(story(3).fault() == Fault::kNone);
    // The home's own store is there at once for others of its process.
    Story()
        .home(kX, 0)
        .store(0, kX, 1, 10, 11)
        .load(1, kX, 1, 12, 13)
        .swap(4, kX, 9, 8, 0, 20, 21)
        .has_no_order({kByHome});
    CHECK(Story()
              .home(kX, 0)
              .store(0, kX, 1, 10, 11)
              .load(0, kX, 1, 12, 13)
              .swap(4, kX, 9, 8, 0, 20, 21)
              .fault() == Fault::kNone);
    // A home that has died has nothing.
    CHECK(Story(story(2)).home(kX, 0).death(15, 18).fault() == Fault::kNone);
  }

  TEST_CASE("a_value_between_the_two_of_a_swap_is_rejected") {
    Story()
        .swap(0, kX, 0, 1, 0, 10, 20)
        .store(2, kX, 2, 10, 11)
        .load(4, kX, 2, 12, 13)
        .load(4, kX, 1, 14, 15)
        .has_no_order({kBySwap, kByThread});
  }

  TEST_CASE("the_word_of_a_failed_swap_is_never_seen") {
    CHECK(Story().swap(0, kX, 9, 1, 0, 10, 20).load(2, kX, 1, 21, 22).fault() ==
          Fault::kNeverStored);
  }

  TEST_CASE("a_load_of_the_old_value_after_a_swap_has_returned_is_rejected") {
    Story()
        .swap(0, kX, 0, 1, 0, 10, 20)
        .load(2, kX, 0, 21, 22)
        .has_no_order({kByPublication, kByBeginning});
    Story().swap(0, kX, 0, 1, 0, 10, 20).load(1, kX, 0, 21, 22).has_no_order({kByPublication});
  }

  TEST_CASE("a_part_of_a_cell_that_is_old_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .barrier(0, 12, 20)
        .raw_load(2, kX + 6, 2, 0, 21, 22)
        .has_no_order({kByPublication});
  }

  TEST_CASE("one_old_cell_among_several_that_a_load_takes_is_rejected") {
    Story story;
    story.add(0, {Kind::kStore, 1, kByte, 5, 0, 0, 10, 11}).barrier(0, 12, 20);
    CHECK(Story(story).raw_load(2, kByte, 4, 5, 21, 22).fault() == Fault::kNone);
    Story(story).raw_load(2, kByte, 4, 0, 21, 22).has_no_order({kByPublication});
  }
}

TEST_SUITE("legal") {
  TEST_CASE("nothing_at_all_is_legal") { CHECK(Story().fault() == Fault::kNone); }

  TEST_CASE("a_store_that_no_barrier_published_may_be_missed") {
    CHECK(Story().store(0, kX, 1, 10, 11).load(2, kX, 0, 20, 21).fault() == Fault::kNone);
    CHECK(Story().store(0, kX, 1, 10, 11).load(2, kX, 1, 20, 21).fault() == Fault::kNone);
  }

  TEST_CASE("a_load_during_the_barrier_may_miss_the_store") {
    for (const Time begin : {12, 15, 20}) {
      CHECK(Story()
                .store(0, kX, 1, 10, 11)
                .barrier(0, 12, 20)
                .load(2, kX, 0, begin, begin + 10)
                .fault() == Fault::kNone);
    }
  }

  TEST_CASE("a_barrier_publishes_nothing_that_was_stored_while_it_ran") {
    CHECK(Story().barrier(1, 10, 20).store(0, kX, 1, 12, 13).load(2, kX, 0, 21, 22).fault() ==
          Fault::kNone);
  }

  TEST_CASE("a_barrier_publishes_no_other_process") {
    CHECK(Story().store(0, kX, 1, 10, 11).barrier(2, 12, 20).load(4, kX, 0, 21, 22).fault() ==
          Fault::kNone);
  }

  TEST_CASE("a_line_flush_publishes_no_other_line") {
    CHECK(Story().store(0, kFar, 1, 10, 11).flush(0, kX, 12, 20).load(2, kFar, 0, 21, 22).fault() ==
          Fault::kNone);
  }

  TEST_CASE("what_one_node_has_read_another_may_still_miss") {
    CHECK(Story()
              .store(0, kX, 1, 10, 11)
              .load(2, kX, 1, 12, 13)
              .barrier(2, 14, 20)
              .load(4, kX, 0, 21, 22)
              .fault() == Fault::kNone);
  }

  TEST_CASE("a_thread_sees_its_own_store_before_others_of_its_process_may") {
    CHECK(Story().store(0, kX, 1, 10, 11).load(0, kX, 1, 12, 13).load(1, kX, 0, 14, 15).fault() ==
          Fault::kNone);
  }

  TEST_CASE("racing_stores_may_be_seen_in_either_order_by_all") {
    for (const uint64_t first : {1, 2}) {
      CHECK(Story()
                .store(0, kX, 1, 10, 11)
                .store(2, kX, 2, 10, 11)
                .load(4, kX, first, 12, 13)
                .load(4, kX, 3 - first, 14, 15)
                .load(6, kX, first, 12, 13)
                .load(6, kX, 3 - first, 14, 15)
                .fault() == Fault::kNone);
    }
  }

  TEST_CASE("a_published_store_may_be_overwritten_by_a_newer_one") {
    CHECK(Story()
              .store(0, kX, 1, 10, 11)
              .barrier(0, 12, 20)
              .store(2, kX, 2, 21, 22)
              .load(4, kX, 2, 23, 24)
              .load(4, kX, 2, 25, 26)
              .fault() == Fault::kNone);
  }

  TEST_CASE("different_cells_may_be_seen_in_different_orders_without_barriers") {
    CHECK(Story()
              .store(0, kX, 1, 10, 11)
              .store(0, kY, 1, 12, 13)
              .load(2, kY, 1, 14, 15)
              .load(2, kX, 0, 16, 17)
              .fault() == Fault::kNone);
  }

  TEST_CASE("a_chain_of_swaps_is_legal_and_counted") {
    const Verdict verdict = Story()
                                .swap(0, kX, 0, 1, 0, 10, 20)
                                .swap(2, kX, 0, 9, 1, 15, 25)
                                .swap(2, kX, 1, 2, 1, 26, 30)
                                .swap(0, kX, 2, 3, 2, 31, 40)
                                .load(4, kX, 3, 41, 42)
                                .verdict();
    INFO(verdict.explanation);
    CHECK(verdict.legal());
    CHECK(verdict.swapped == 3);
  }

  TEST_CASE("a_store_may_release_what_a_swap_has_taken") {
    CHECK(Story()
              .swap(0, kX, 0, 1, 0, 10, 20)
              .store(0, kX, 2, 21, 22)
              .swap(2, kX, 2, 3, 2, 23, 40)
              .load(0, kX, 3, 41, 42)
              .fault() == Fault::kNone);
  }
}

// Process 0 dies: threads 0 and 1. An end of 0 is a store or a swap that it died in.
TEST_SUITE("deaths") {
  TEST_CASE("a_store_that_the_dead_had_flushed_is_never_lost") {
    const auto story = [](uint64_t seen) {
      return Story()
          .home(kX, 1)
          .store(0, kX, 1, 10, 11)
          .barrier(0, 12, 20)
          .death(25, 40)
          .load(2, kX, seen, 50, 51);
    };
    story(0).has_no_order({kByPublication, kByBeginning});
    CHECK(story(1).fault() == Fault::kNone);
    // Before the death was settled no less.
    Story()
        .store(0, kX, 1, 10, 11)
        .barrier(0, 12, 20)
        .death(25, 40)
        .load(2, kX, 0, 26, 27)
        .has_no_order({kByPublication});
  }

  TEST_CASE("a_store_that_the_dead_had_not_flushed_may_be_lost_or_arrive") {
    for (const uint64_t seen : {0, 1}) {
      CHECK(Story().store(0, kX, 1, 10, 11).death(25, 40).load(2, kX, seen, 50, 51).fault() ==
            Fault::kNone);
    }
  }

  TEST_CASE("a_barrier_that_the_dead_did_not_come_back_from_promises_nothing") {
    // It is not in the history; one of another process covers nothing of the dead.
    CHECK(Story()
              .store(0, kX, 1, 10, 11)
              .death(25, 40)
              .barrier(2, 26, 30)
              .load(4, kX, 0, 50, 51)
              .fault() == Fault::kNone);
  }

  TEST_CASE("a_store_that_the_dead_never_made_is_never_seen") {
    CHECK(Story().death(5, 40).load(2, kX, 1, 50, 51).fault() == Fault::kNeverStored);
  }

  TEST_CASE("a_store_that_somebody_died_in_may_be_seen_or_not_but_not_before_it_began") {
    for (const uint64_t seen : {0, 1}) {
      const Verdict verdict =
          Story().store(0, kX, 1, 10, 0).death(10, 40).load(2, kX, seen, 50, 51).verdict();
      INFO(verdict.explanation);
      CHECK(verdict.legal());
      CHECK(verdict.unfinished == 1);
      CHECK(verdict.outlived == seen);
    }
    CHECK(Story().load(2, kX, 1, 5, 9).store(0, kX, 1, 10, 0).death(10, 40).fault() ==
          Fault::kTooEarly);
    // No barrier covers it.
    CHECK(Story()
              .store(0, kX, 1, 10, 0)
              .barrier(1, 2, 5)
              .barrier(1, 11, 20)
              .flush(1, kX, 21, 30)
              .death(30, 40)
              .load(2, kX, 0, 50, 51)
              .fault() == Fault::kNone);
  }

  TEST_CASE("a_store_of_the_dead_that_arrives_in_part_is_rejected") {
    CHECK(Story()
              .store(0, kX, 1, 10, 0)
              .death(10, 40)
              .raw_load(2, kX, 8, 0x0000000001010101, 50, 51)
              .fault() == Fault::kMixed);
  }

  TEST_CASE("a_store_of_the_dead_that_was_seen_stays_for_all_once_the_death_is_settled") {
    const auto story = [](Time later, uint64_t seen) {
      return Story()
          .store(0, kX, 1, 10, 11)
          .death(25, 40)
          .load(2, kX, 1, 26, 27)
          .load(4, kX, seen, later, later + 1);
    };
    story(50, 0).has_no_order({kBySettling, kByBeginning});
    CHECK(story(50, 1).fault() == Fault::kNone);
    CHECK(story(30, 0).fault() == Fault::kNone);  // has not heard of it yet
  }

  TEST_CASE("a_store_of_the_dead_that_comes_home_after_the_death_was_settled_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .death(25, 40)
        .load(4, kX, 0, 50, 51)
        .load(2, kX, 1, 60, 61)
        .has_no_order({kBySettling, kByBeginning});
  }

  TEST_CASE("an_old_store_of_the_dead_that_comes_over_a_newer_published_one_is_rejected") {
    Story()
        .store(0, kX, 1, 10, 11)
        .load(2, kX, 1, 12, 13)
        .store(2, kX, 2, 14, 15)
        .barrier(2, 16, 20)
        .death(25, 40)
        .load(4, kX, 1, 50, 51)
        .has_no_order({kByPublication, kByThread});
  }

  TEST_CASE("a_swap_that_somebody_died_in_may_have_happened_or_not") {
    for (const uint64_t seen : {0, 1}) {
      CHECK(Story().swap(0, kX, 0, 1, 0, 10, 0).death(10, 40).load(2, kX, seen, 50, 51).fault() ==
            Fault::kNone);
    }
    // Another one took the same away: this one then never happened.
    CHECK(Story()
              .swap(0, kX, 0, 1, 0, 10, 0)
              .death(10, 40)
              .swap(2, kX, 0, 2, 0, 15, 30)
              .load(4, kX, 2, 50, 51)
              .fault() == Fault::kNone);
  }

  TEST_CASE("a_swap_that_somebody_died_in_and_that_counts_beside_another_one_is_rejected") {
    // Both took the initial value away: whatever is met in the end, one count is lost.
    Story()
        .swap(0, kX, 0, 1, 0, 10, 0)
        .death(10, 40)
        .swap(2, kX, 0, 2, 0, 15, 30)
        .load(4, kX, 1, 50, 51)
        .has_no_order({kBySwap});
    // A chain of two that nobody came back from, of which the last was met.
    Story()
        .swap(0, kX, 0, 1, 0, 10, 0)
        .swap(1, kX, 1, 2, 0, 12, 0)
        .death(12, 40)
        .swap(2, kX, 0, 3, 0, 15, 30)
        .load(4, kX, 2, 50, 51)
        .has_no_order({kBySwap});
  }

  TEST_CASE("a_swap_that_the_dead_came_back_from_is_never_lost") {
    Story()
        .swap(0, kX, 0, 1, 0, 10, 20)
        .death(20, 40)
        .load(2, kX, 0, 50, 51)
        .has_no_order({kByPublication});
  }

  TEST_CASE("what_the_dead_home_had_was_cached_goes_on_being_loaded_and_never_goes_back") {
    const auto story = [] {
      return Story().home(kX, 0).store(0, kX, 1, 10, 11).death(25, 40).load(2, kX, 1, 26, 27);
    };
    CHECK(story().load(4, kX, 0, 50, 51).fault() == Fault::kNone);
    Story(story()).load(2, kX, 0, 50, 51).has_no_order({kByThread});
  }

  TEST_CASE("what_was_published_while_the_home_lived_stays_so_after_its_death") {
    Story()
        .home(kX, 0)
        .store(2, kX, 1, 10, 11)
        .barrier(2, 12, 20)
        .death(20, 40)
        .load(4, kX, 0, 26, 27)
        .has_no_order({kByPublication, kByBeginning});
  }

  TEST_CASE("a_barrier_promises_nothing_where_the_home_has_died") {
    const auto story = [](uint32_t at) {
      return Story()
          .home(kX, 0)
          .home(kY, 2)
          .store(2, at, 1, 10, 11)
          .barrier(2, 12, 30)
          .death(20, 40)
          .load(4, at, 0, 31, 32);
    };
    CHECK(story(kX).fault() == Fault::kNone);
    story(kY).has_no_order({kByPublication});
  }
}

// Processes 0 and 1 are on one node, 2 on another.
TEST_SUITE("sharing") {
  Story on_two_nodes(Story story) {
    for (Thread& thread : story.history.threads) thread.node = thread.process / 2;
    return story;
  }

  TEST_CASE("processes_at_home_load_the_memory_itself_and_never_go_back") {
    const auto story = [](uint32_t home) {
      return on_two_nodes(Story()
                              .home(kX, home)
                              .store(4, kX, 1, 10, 11)
                              .load(0, kX, 1, 12, 13)
                              .load(2, kX, 0, 14, 15));
    };
    story(0).has_no_order({kByProcess, kByBeginning});
    story(1).has_no_order({kByProcess, kByBeginning});
    // Those that share an import have caches of their own.
    CHECK(story(2).fault() == Fault::kNone);
    CHECK(story(kNoProcess).fault() == Fault::kNone);
  }

  TEST_CASE("what_a_process_has_published_one_that_shares_its_import_never_misses") {
    CHECK(
        on_two_nodes(Story().home(kX, 2).store(0, kX, 1, 10, 11).load(2, kX, 0, 21, 22)).fault() ==
        Fault::kNone);
    on_two_nodes(
        Story().home(kX, 2).store(0, kX, 1, 10, 11).barrier(0, 12, 20).load(2, kX, 0, 21, 22))
        .has_no_order({kByPublication});
  }

  TEST_CASE("a_barrier_of_one_that_shares_the_import_publishes_nothing_of_the_other") {
    CHECK(on_two_nodes(
              Story().home(kX, 2).store(0, kX, 1, 10, 11).barrier(2, 12, 20).load(4, kX, 0, 21, 22))
              .fault() == Fault::kNone);
  }
}

TEST_SUITE("malformed") {
  TEST_CASE("values_that_share_a_byte_are_malformed") {
    CHECK(Story().store(0, kX, 1, 10, 11).store(2, kX, 1, 12, 13).fault() == Fault::kMalformed);
    CHECK(Story().store(0, kX, 0, 10, 11).fault() == Fault::kMalformed);
  }

  TEST_CASE("a_store_to_no_cell_is_malformed") {
    CHECK(Story().store(0, kX + 4, 1, 10, 11).fault() == Fault::kMalformed);
    CHECK(Story().store(0, 1000, 1, 10, 11).fault() == Fault::kMalformed);
  }

  TEST_CASE("times_that_go_back_are_malformed") {
    CHECK(Story().store(0, kX, 1, 10, 9).fault() == Fault::kMalformed);
    CHECK(Story().store(0, kX, 1, 10, 11).load(0, kX, 1, 5, 6).fault() == Fault::kMalformed);
  }

  TEST_CASE("only_stores_and_swaps_may_be_without_an_end_and_nothing_follows_them_there") {
    CHECK(Story().load(0, kX, 0, 10, 0).fault() == Fault::kMalformed);
    CHECK(Story().barrier(0, 10, 0).fault() == Fault::kMalformed);
    CHECK(Story().swap(0, kX, 0, 1, 0, 10, 0).load(0, kX, 1, 12, 13).fault() == Fault::kMalformed);
    CHECK(Story().swap(0, kX, 0, 1, 0, 10, 0).load(0, kY, 0, 12, 13).fault() == Fault::kNone);
  }

  TEST_CASE("cells_that_overlap_are_malformed") {
    Story story;
    story.history.cells = {{0, 8}, {4, 4}};
    CHECK(story.fault() == Fault::kMalformed);
  }
}

TEST_SUITE("counts") {
  TEST_CASE("first_meetings_with_values_of_other_processes_are_counted") {
    const Verdict verdict = Story()
                                .store(0, kX, 1, 10, 11)
                                .barrier(0, 12, 13)
                                .load(0, kX, 1, 14, 15)  // its own
                                .load(1, kX, 1, 14, 15)  // its process's
                                .load(2, kX, 1, 14, 15)  // counts
                                .load(2, kX, 1, 16, 17)  // met before
                                .load(3, kX, 1, 16, 17)  // counts: another thread
                                .load(3, kY, 0, 18, 19)  // nobody's
                                .verdict();
    CHECK(verdict.legal());
    CHECK(verdict.accesses == 7);
    CHECK(verdict.crossings == 2);
    CHECK(verdict.bound == 3);
  }
}

}  // namespace

}  // namespace cmi::checker::check_test

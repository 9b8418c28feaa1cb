// The owners of one import's data: the session key, the list of dirty pages, pages in flux, the use
// of the cache, the rounds of quiescence, the turn to write behind, waiting for changes, intents of
// swaps that were given up, the file of the cache, the lease.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "core/memory/importer/cache_file.hpp"
#include "core/memory/importer/change_wait.hpp"
#include "core/memory/importer/dirty_list.hpp"
#include "core/memory/importer/flux_pages.hpp"
#include "core/memory/importer/import.hpp"
#include "core/memory/importer/late_intents.hpp"
#include "core/memory/importer/quiesce_rounds.hpp"
#include "core/memory/importer/session_key.hpp"
#include "core/memory/importer/write_behind_turn.hpp"

namespace cmi::test::import_owners_test {
using namespace cmi::memory;

using Pages = std::vector<uint32_t>;

namespace {
const auto kAllowed = [] { return true; };
}  // namespace

TEST_SUITE("session_key") {
  // As it may be read while another key is set, and then be asked for in the same generation.
  TEST_CASE("a_key_with_the_number_of_one_and_the_base_of_another_is_not_used") {
    SessionKey key;
    key.set({.key = 2, .base = 0x2000});
    key.open(5);
    CHECK(key.begin_use(5, {.key = 2, .base = 0x2000}, kAllowed));
    key.end_use();
    CHECK_FALSE(key.begin_use(5, {.key = 2, .base = 0x1000}, kAllowed));
    CHECK_FALSE(key.begin_use(5, {.key = 1, .base = 0x2000}, kAllowed));
    CHECK_FALSE(key.begin_use(4, {.key = 2, .base = 0x2000}, kAllowed));
    CHECK_FALSE(key.in_use());
  }
  TEST_CASE("what_is_refused_is_not_counted_as_a_use") {
    SessionKey key;
    const fabric::RemoteKey granted{5, 100}, former{4, 100};
    key.set(granted);
    CHECK_FALSE(key.begin_use(1, granted, kAllowed));  // not opened yet
    key.open(1);
    CHECK_FALSE(key.begin_use(2, granted, kAllowed));
    CHECK_FALSE(key.begin_use(1, former, kAllowed));
    CHECK_FALSE(key.begin_use(1, granted, [] { return false; }));
    CHECK_FALSE(key.in_use());
    CHECK(key.begin_use(1, granted, kAllowed));
    CHECK(key.in_use());
  }
  TEST_CASE("a_closed_key_begins_nothing_and_is_in_use_until_the_last_use_ends") {
    SessionKey key;
    const fabric::RemoteKey granted{5, 100};
    key.set(granted);
    key.open(3);
    REQUIRE(key.begin_use(3, granted, kAllowed));
    REQUIRE(key.begin_use(3, granted, kAllowed));
    key.close();
    CHECK_FALSE(key.begin_use(3, granted, kAllowed));
    key.end_use();
    CHECK(key.in_use());
    key.end_use();
    CHECK_FALSE(key.in_use());
  }
  TEST_CASE("what_allows_a_use_is_looked_at_when_the_use_is_counted") {
    // A revocation changes it first and looks for uses after: it must find this one.
    SessionKey key;
    const fabric::RemoteKey granted{5, 100};
    key.set(granted);
    key.open(1);
    bool counted = false;
    CHECK(key.begin_use(1, granted, [&] { return counted = key.in_use(); }));
    CHECK(counted);
  }
}

TEST_SUITE("dirty_list") {
  TEST_CASE("pages_are_taken_in_the_order_of_their_first_stores") {
    DirtyList list;
    for (uint32_t page : {7, 3, 5}) list.add(page);
    Pages taken{1};
    list.take_all(&taken);
    CHECK(taken == Pages{1, 7, 3, 5});
    CHECK(list.empty());
  }
  TEST_CASE("only_pages_that_were_there_a_tick_ago_have_aged") {
    DirtyList list;
    for (uint32_t page : {1, 2}) list.add(page);
    CHECK(list.tick() == 0);
    list.add(3);
    CHECK(list.tick() == 2);
    Pages taken;
    list.take_aged(2, &taken);
    CHECK(taken == Pages{1, 2});
    CHECK(list.tick() == 1);  // by now page 3 has
  }
  TEST_CASE("what_a_barrier_takes_has_aged_no_more") {
    DirtyList list;
    for (uint32_t page : {1, 2, 3}) list.add(page);
    CHECK(list.tick() == 0);
    Pages taken;
    list.take_all(&taken);
    list.add(9);
    CHECK(list.tick() == 0);
  }
  TEST_CASE("what_is_written_behind_is_taken_from_the_aged_ones") {
    DirtyList list;
    for (uint32_t page : {1, 2, 3}) list.add(page);
    CHECK(list.tick() == 0);
    list.add(4);
    Pages taken;
    CHECK_FALSE(list.take_oldest(2, 5, &taken));
    CHECK(taken.empty());
    CHECK(list.take_oldest(2, 4, &taken));
    CHECK(taken == Pages{1, 2});
    CHECK(list.tick() == 1);  // page 3; page 4 came after the tick
  }
  TEST_CASE("taking_more_than_has_aged_leaves_none_aged") {
    DirtyList list;
    list.add(1);
    CHECK(list.tick() == 0);
    for (uint32_t page : {2, 3, 4}) list.add(page);
    Pages taken;
    CHECK(list.take_oldest(3, 4, &taken));
    CHECK(list.tick() == 0);
    CHECK(list.size() == 1);
  }
  TEST_CASE("all_or_none_is_taken_below_a_limit") {
    DirtyList list;
    for (uint32_t page : {1, 2}) list.add(page);
    Pages taken;
    CHECK_FALSE(list.take_fewer_than(2, &taken));
    CHECK(taken.empty());
    CHECK(list.size() == 2);
    CHECK(list.take_fewer_than(3, &taken));
    CHECK(taken == Pages{1, 2});
    list.put_back(taken);
    CHECK(list.size() == 2);
  }
}

TEST_SUITE("flux_pages") {
  TEST_CASE("a_page_is_listed_until_the_home_says_that_it_has_recovered") {
    FluxPages flux;
    CHECK_FALSE(flux.contains(4));
    flux.add(std::vector<PageRange>{{4, 2}});
    CHECK(flux.contains(4));
    CHECK(flux.contains(5));
    flux.recovered(4, flux.lists());
    CHECK_FALSE(flux.contains(4));
    CHECK(flux.contains(5));
    flux.recovered(5, flux.lists());
    CHECK_FALSE(flux.contains(5));
  }
  TEST_CASE("an_answer_that_is_older_than_a_list_takes_nothing_from_it") {
    FluxPages flux;
    flux.add(std::vector<PageRange>{{4, 1}});
    const uint64_t asked = flux.lists();
    SUBCASE("of the home") { flux.add(std::vector<PageRange>{{4, 1}}); }
    SUBCASE("of broken memory") { flux.doubt(Pages{4}); }
    flux.recovered(4, asked);
    CHECK(flux.contains(4));
  }
}

TEST_SUITE("cache_use") {
  TEST_CASE("room_is_what_the_limit_leaves") {
    CacheUse use;
    CHECK(use.has_room(UINT32_MAX));
    use.set_size(3 * kPageSize, 3);
    for (int i = 0; i < 2; ++i) use.back_one();
    CHECK(use.has_room(1));
    CHECK_FALSE(use.has_room(2));
    CHECK_FALSE(use.has_room(UINT32_MAX));  // and does not wrap
    use.gave_back(1);
    CHECK(use.has_room(2));
  }
  TEST_CASE("a_size_beyond_all_pages_is_no_limit") {
    CacheUse use;
    use.set_size(SIZE_MAX, SIZE_MAX / kPageSize);
    CHECK(use.limit() == CacheUse::kNoLimit);
    CHECK(use.size() == SIZE_MAX);
  }
}

TEST_SUITE("quiesce_rounds") {
  TEST_CASE("only_the_newest_round_counts") {
    QuiesceRounds rounds;
    CHECK_FALSE(rounds.end());
    CHECK(rounds.take(1, true));
    CHECK(rounds.on());
    CHECK_FALSE(rounds.take(1, true));
    CHECK(rounds.take(2, true));
    CHECK_FALSE(rounds.take(1, false));  // late
    CHECK(rounds.take(3, false));
    CHECK_FALSE(rounds.on());
    CHECK(rounds.take(4, true));
    CHECK(rounds.end());
    CHECK_FALSE(rounds.on());
  }
  TEST_CASE("a_resume_alone_changes_nothing") {
    QuiesceRounds rounds;
    CHECK_FALSE(rounds.take(4, false));
    CHECK_FALSE(rounds.take(3, true));  // which it overtook
    CHECK(rounds.take(5, true));
  }
}

TEST_SUITE("write_behind_turn") {
  TEST_CASE("one_thread_at_a_time_has_the_turn") {
    WriteBehindTurn turn;
    {
      const WriteBehindTurn::Taken first(turn);
      CHECK(first.mine());
      const WriteBehindTurn::Taken second(turn);
      CHECK_FALSE(second.mine());
    }
    CHECK(WriteBehindTurn::Taken(turn).mine());
  }
  TEST_CASE("a_thread_without_a_turn_does_not_end_that_of_another") {
    WriteBehindTurn turn;
    const WriteBehindTurn::Taken first(turn);
    { const WriteBehindTurn::Taken second(turn); }
    CHECK_FALSE(WriteBehindTurn::Taken(turn).mine());
  }
  TEST_CASE("none_tries_before_there_may_be_room") {
    WriteBehindTurn turn;
    CHECK(turn.may_try(1));
    turn.no_room_before(50);
    CHECK_FALSE(turn.may_try(49));
    CHECK(turn.may_try(50));
  }
}

TEST_SUITE("change_wait") {
  TEST_CASE("a_change_before_the_wait_is_not_waited_for") {
    ChangeWait changes;
    const uint32_t seen = changes.seen();
    changes.notify();
    const Nanos before = now();
    changes.wait(seen, 60 * kSecond);
    CHECK(now() - before < 30 * kSecond);
    CHECK(changes.seen() != seen);
  }
  TEST_CASE("a_change_wakes_all_that_wait") {
    ChangeWait changes;
    std::atomic<int> awake{0};
    std::vector<std::thread> waiters;
    const uint32_t seen = changes.seen();
    for (int i = 0; i < 3; ++i) {
      waiters.emplace_back([&] {
        const Deadline deadline = Deadline::in(60 * kSecond);
        while (changes.seen() == seen && !deadline.passed()) changes.wait(seen, 60 * kSecond);
        if (changes.seen() != seen) awake.fetch_add(1);
      });
    }
    const Nanos before = now();
    changes.notify();
    for (auto& waiter : waiters) waiter.join();
    CHECK(awake.load() == 3);
    CHECK(now() - before < 30 * kSecond);
  }
}

TEST_SUITE("late_intents") {
  TEST_CASE("a_page_has_the_epoch_of_the_swap_that_was_given_up_last_until_it_is_given_back") {
    LateIntents late;
    CHECK(late.epoch(3) == 0);
    late.add(3, 7);
    late.add(4, 9);
    CHECK(late.epoch(3) == 7);
    CHECK(late.epoch(5) == 0);
    late.add(3, 8);
    CHECK(late.epoch(3) == 8);
    late.remove(3);
    late.remove(3);
    CHECK(late.epoch(3) == 0);
    CHECK(late.epoch(4) == 9);
  }
}

TEST_SUITE("cache_file") {
  TEST_CASE("pages_have_their_place_in_the_table_and_in_the_file") {
    constexpr size_t kPages = 3;
    const auto memory = [](size_t bytes) {
      void* const at =
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      REQUIRE(at != MAP_FAILED);
      return Mapping(at, bytes);
    };
    CacheFile cache;
    CHECK_FALSE(cache.ready());
    cache.fill(Fd(), memory(kPages * kPageSize), memory(kPages * sizeof(Page)));
    CHECK(cache.ready());
    for (uint32_t i = 0; i < kPages; ++i) {
      CHECK(cache.page(i).state == PageState::kAbsent);
      CHECK(cache.index_of(cache.page(i)) == i);
      CHECK(cache.data(i) == cache.data(0) + i * kPageSize);
    }
  }
}

TEST_SUITE("lease") {
  TEST_CASE("a_lease_is_over_by_the_clock_or_once_it_is_noted") {
    Lease lease;
    CHECK_FALSE(lease.is_over());  // there is no lifeline
    lease.set_end(100);
    CHECK_FALSE(lease.is_over_at(99));
    CHECK(lease.is_over_at(100));
    lease.set_end(200);
    lease.set_expired(true);
    CHECK(lease.is_over_at(0));
    lease.set_expired(false);
    CHECK_FALSE(lease.is_over_at(199));
  }
}

}  // namespace cmi::test::import_owners_test

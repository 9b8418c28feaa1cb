// What nodes that work on the same pages cost each other, counted on simulated nodes: rows of the
// bench in small, the same in each run. CMI_SIM_SEED: the first of the seeds.
#include <cmi.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "sim/crew.hpp"

namespace cmi::test::sharing_test {

namespace {

constexpr size_t kNobody = Crew::kNobody;
constexpr size_t kPage = 4096, kWordsOfPage = kPage / 8;

uint32_t first_seed() {
  const char* const text = std::getenv("CMI_SIM_SEED");
  return text == nullptr ? 1 : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

// Each member stores some of its words of all pages, in random order, and calls a barrier.
CrewCounts scatter(uint32_t seed, size_t members, const std::string& faults = "") {
  constexpr size_t kPages = 256, kOfPage = 8;
  constexpr Nanos kBetween = 200 * kMicro;  // a tick of the timer sees 50 stores of a member
  Crew crew(seed, members, kPages, faults);
  crew.all([&](size_t member, uint64_t* view, NodeCalls&) {
    std::vector<size_t> words;
    for (size_t page = 0; page < kPages; ++page) {
      for (size_t i = 0; i < kOfPage; ++i) {
        words.push_back(page * kWordsOfPage + i * members + member);
      }
    }
    std::shuffle(words.begin(), words.end(), std::minstd_rand(static_cast<unsigned>(member) + 1));
    for (const size_t word : words) {
      const_cast<volatile uint64_t*>(view)[word] = word + 1;
      for (const Nanos next = now() + kBetween; now() < next;) {
        crew.simulation().idle(20 * kMicro);
      }
    }
  });
  const CrewCounts counts = crew.counts();
  crew.all([](size_t, uint64_t*, NodeCalls& calls) { REQUIRE(calls.wmb() == 0); });
  size_t wrong = 0;
  for (size_t page = 0; page < kPages; ++page) {
    for (size_t i = 0; i < kOfPage * members; ++i) {
      const size_t word = page * kWordsOfPage + i;
      wrong += crew.home()[word] == word + 1 ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  return counts;
}

constexpr size_t kOperations = 400;  // of each member, counted

// A table with a lock in each bucket, which is a cache line: what bench/crew_work.cpp does.
CrewCounts table(uint32_t seed, size_t members, const std::string& faults = "",
                 Node::Swaps swaps = Node::Swaps::kByHome) {
  constexpr size_t kPages = 16, kBuckets = kPages * kPage / 64;
  Crew crew(seed, members, kPages + members, faults, kNobody, swaps);
  uint64_t alone = 0;  // swaps that took no stores along
  std::vector<uint64_t> done(members);
  uint64_t halves = 0;
  const auto operations = [&](size_t times, unsigned salt) {
    crew.all([&, times, salt](size_t member, uint64_t* view, NodeCalls& calls) {
      std::minstd_rand random(static_cast<unsigned>(member) + 1 + salt);
      for (size_t i = 0; i < times; ++i) {
        volatile uint64_t* const at = view + random() % kBuckets * 8;
        const bool put = random() % 2 == 0;
        const auto swap = [&](uint64_t expected, uint64_t desired) {
          uint64_t found = 0;
          const uint64_t before = crew.node(member).stats().publications;
          REQUIRE(calls.cas(at, expected, desired, &found) == 0);
          alone += before == crew.node(member).stats().publications ? 1 : 0;
          return found;
        };
        while (swap(0, member + 1) != 0) continue;
        if (put) {
          at[1] = member << 48 | i;
          at[2] = ~at[1];
        } else {
          halves += at[1] + at[2] + 1 == 0 || (at[1] == 0 && at[2] == 0) ? 0 : 1;
        }
        const_cast<volatile uint64_t*>(view)[(kPages + member) * kWordsOfPage] = ++done[member];
        REQUIRE(swap(member + 1, 0) == member + 1);
      }
    });
  };
  operations(100, 0);  // each comes to have had most pages
  const CrewCounts before = crew.counts();
  alone = 0;
  operations(kOperations, 100);
  CHECK(halves == 0);
  for (size_t m = 0; m < members; ++m) {
    CHECK(crew.home()[(kPages + m) * kWordsOfPage] == done[m]);
  }
  CrewCounts counts = crew.counts() - before;
  counts.requests += alone;
  return counts;
}

// Member 0 swaps a word of a page that it has lost, which brings the page; member 1 stores to it
// then. Whether member 0 sees that.
bool sees_behind_a_swap(const std::string& faults, uint64_t* brought) {
  constexpr size_t kWord = 16;
  Crew crew(first_seed(), 2, 16, faults);
  uint64_t last = 0;
  const auto store = [&](int times) {
    for (int i = 0; i < times; ++i) {
      crew.one(1, [&](size_t, uint64_t* view, NodeCalls& calls) {
        const_cast<volatile uint64_t*>(view)[kWord] = ++last;
        REQUIRE(calls.wmb() == 0);
        // What is released behind a direct ack is heard of.
        for (const Nanos until = now() + 50 * kMilli; now() < until;)
          crew.simulation().idle(kMilli);
      });
    }
  };
  uint64_t seen = 0;
  const auto look = [&](size_t, uint64_t* view, NodeCalls&) {
    seen = const_cast<volatile uint64_t*>(view)[kWord];
  };
  const auto swap = [&](uint64_t expected) {
    crew.one(0, [&](size_t, uint64_t* view, NodeCalls& calls) {
      uint64_t found = 1;
      REQUIRE(calls.cas(view, expected, expected + 1, &found) == 0);
      CHECK(found == expected);
    });
  };
  crew.one(0, [](size_t, uint64_t* view, NodeCalls&) {
    (void)const_cast<volatile uint64_t*>(view)[kWordsOfPage];  // so the region stays in use
  });
  crew.one(0, look);
  store(2);  // the first takes the page away, and the second finds that
  swap(0);
  crew.one(0, look);  // missed: the next swap asks for the page
  store(2);
  const uint64_t before = crew.counts().brought;
  swap(1);
  *brought = crew.counts().brought - before;
  const uint64_t misses = crew.counts().misses;
  crew.one(0, look);
  CHECK(crew.counts().misses == misses);
  CHECK(seen == last);
  store(1);
  crew.one(0, look);
  return seen == last;
}

// Member 0 has one page and hears of another one beside it; whether it then hears of its own.
bool hears_of_its_page(const std::string& faults) {
  Crew crew(first_seed(), 2, 16, faults);
  uint64_t seen = 0;
  const auto look = [&](size_t member, uint64_t* view, NodeCalls&) {
    if (member == 0) seen = *const_cast<volatile uint64_t*>(view);
  };
  crew.all(look);
  for (const size_t page : {5, 0}) {
    crew.all([&crew, page](size_t member, uint64_t* view, NodeCalls& calls) {
      if (member == 0) return;
      const_cast<volatile uint64_t*>(view)[page * kWordsOfPage] = 1;
      REQUIRE(calls.wmb() == 0);
      // The home hears of what is released behind the direct ack.
      for (const Nanos until = now() + 50 * kMilli; now() < until;) crew.simulation().idle(kMilli);
    });
  }
  crew.all(look);
  return seen == 1;
}

// Member 0 loads the first page of a region, to which member 1 stores then. Whether member 0 sees
// it.
bool sees_behind_a_claim(const std::string& faults) {
  Crew crew(first_seed(), 2, 16, faults);
  uint64_t seen = 0;
  const auto look = [&](size_t, uint64_t* view, NodeCalls&) {
    seen = *const_cast<volatile uint64_t*>(view);
  };
  crew.one(0, look);
  crew.one(1, [](size_t, uint64_t* view, NodeCalls& calls) {
    *const_cast<volatile uint64_t*>(view) = 1;
    REQUIRE(calls.wmb() == 0);
  });
  crew.one(0, look);
  return seen == 1;
}

// How often a store asks for its intent that comes so long after a swap which has brought it.
uint64_t intents_asked_after(Nanos wait) {
  Crew crew(first_seed(), 1, 16);
  uint64_t asked = 0;
  crew.one(0, [&](size_t, uint64_t* view, NodeCalls& calls) {
    volatile uint64_t* const beside = view + 8;
    uint64_t found = 1;
    REQUIRE(calls.cas(view, 0, 1, &found) == 0);
    *beside = 1;  // from which the next swap learns
    REQUIRE(calls.wmb() == 0);
    REQUIRE(calls.cas(view, 1, 2, &found) == 0);
    for (const Nanos until = now() + wait; now() < until;) crew.simulation().idle(kMilli);
    const uint64_t before = crew.node(0).stats().intents_asked;
    *beside = 2;
    asked = crew.node(0).stats().intents_asked - before;
    REQUIRE(calls.wmb() == 0);
  });
  CHECK(crew.home()[8] == 2);
  return asked;
}

TEST_SUITE("sharing") {
  TEST_CASE("stores_scattered_by_several_nodes_cost_little_more_than_without_the_timer") {
    for (const size_t members : {2, 4}) {
      CAPTURE(members);
      uint64_t messages = 0, least = 0;
      for (uint32_t seed = first_seed(); seed < first_seed() + 2; ++seed) {
        CAPTURE(seed);
        const CrewCounts without = scatter(seed, members, "no_aging=fail");
        const CrewCounts with = scatter(seed, members);
        CHECK(without.misses == members * 256);
        CHECK(with.misses * 10 <= without.misses * 12);
        messages += with.messages();
        least += without.messages();
      }
      // Of so few pages those by which the timer learns are a larger part than in the bench.
      CHECK(messages * 10 <= least * 13);
    }
  }

  TEST_CASE("the_timer_takes_a_twentieth_of_a_processor_however_much_is_dirty") {
    constexpr Nanos kSpan = 3 * kSecond, kOfPage = 100 * kMicro;  // with the fault point
    constexpr size_t kPages = 1024;
    const auto pages_sent = [](const std::string& faults) {
      Crew crew(first_seed(), 1, kPages, "timer_pages_are_dear=fail;" + faults);
      crew.all([&](size_t, uint64_t* view, NodeCalls&) {
        uint64_t value = 0;
        for (const Nanos until = now() + kSpan; now() < until;) {
          ++value;
          for (size_t page = 0; page < kPages; ++page) {
            const_cast<volatile uint64_t*>(view)[page * kWordsOfPage] = value;
          }
          for (const Nanos next = now() + 50 * kMilli; now() < next;)
            crew.simulation().idle(kMilli);
        }
      });
      return crew.counts().pages_written_back;
    };
    const uint64_t paced = pages_sent("");
    // And 128 that are taken at once, and what is saved up.
    CHECK(paced <= kSpan / 20 / kOfPage + 128 + 20);
    CHECK(paced >= kSpan / 20 / kOfPage / 4);
    CHECK(pages_sent("mutate_timer_unpaced=fail") > 2 * kSpan / 20 / kOfPage);
  }

  TEST_CASE("notifications_of_a_table_that_several_nodes_work_on_find_their_pages") {
    CrewCounts sum;
    for (uint32_t seed = first_seed(); seed < first_seed() + 3; ++seed) {
      const CrewCounts counts = table(seed, 3);
      sum.notifications += counts.notifications;
      sum.useless += counts.useless;
    }
    REQUIRE(sum.notifications > 1000);
    CHECK(sum.useless * 100 < sum.notifications);
  }

  TEST_CASE("a_lock_an_update_beside_it_and_an_unlock_take_two_messages_and_few_more") {
    constexpr double kMost[] = {2.05, 2.15, 2.3};
    for (const size_t members : {1, 2, 3}) {
      CAPTURE(members);
      const CrewCounts counts = table(first_seed(), members);
      const auto operations = static_cast<double>(kOperations * members);
      CHECK(static_cast<double>(counts.requests) / operations <= kMost[members - 1]);
      CHECK((counts.brought > 0) == (members > 1));
    }
    const CrewCounts without = table(first_seed(), 3, "no_swap_fetch=fail");
    CHECK(static_cast<double>(without.requests) / (3 * kOperations) > 2.6);
    CHECK(without.brought == 0);
  }

  // The swap and its announcement; the page and its intent come beside the announcement.
  TEST_CASE("where_the_network_swaps_the_page_is_fetched_while_the_swap_is_announced") {
    const auto table_of = [](const std::string& faults) {
      return table(first_seed(), 3, faults, Node::Swaps::kByNetwork);
    };
    const CrewCounts with = table_of(""), without = table_of("no_swap_fetch=fail");
    CHECK(with.brought > 0);
    CHECK(without.brought == 0);
    CHECK((with.misses - with.brought) * 3 < without.misses);
  }

  TEST_CASE("an_intent_that_a_swap_has_brought_goes_back_when_no_store_uses_it") {
    CHECK(intents_asked_after(50 * kMilli) == 0);
    CHECK(intents_asked_after(400 * kMilli) == 1);
  }

  TEST_CASE("a_word_that_is_only_counted_brings_no_page") {
    constexpr uint64_t kTimes = 100;
    Crew crew(first_seed(), 2, 16);
    crew.all([](size_t, uint64_t* view, NodeCalls& calls) {
      (void)const_cast<volatile uint64_t*>(view)[kWordsOfPage];  // so the region is held
      for (uint64_t seen = 0, n = 0; n < kTimes;) {
        uint64_t found = 0;
        REQUIRE(calls.cas(view, seen, seen + 1, &found) == 0);
        n += found == seen ? 1 : 0;
        seen = found == seen ? seen + 1 : found;
      }
    });
    CHECK(crew.home()[0] == 2 * kTimes);
    CHECK(crew.counts().brought == 0);
    CHECK(crew.counts().misses == 2);
  }

  TEST_CASE("a_page_that_a_swap_has_brought_is_told_of_stores_by_others") {
    uint64_t brought = 0;
    CHECK(sees_behind_a_swap("", &brought));
    CHECK(brought == 1);
    CHECK_FALSE(sees_behind_a_swap("mutate_swapped_page_not_entered=fail", &brought));
    CHECK(brought == 1);
  }

  TEST_CASE("a_page_that_comes_with_its_region_is_told_of_stores_by_others") {
    CHECK(sees_behind_a_claim(""));
    CHECK_FALSE(sees_behind_a_claim("mutate_region_not_held=fail"));
  }

  // A sharer that does not answer keeps a swap waiting; it keeps no thread from the page.
  TEST_CASE("a_page_that_a_swap_is_to_bring_can_be_loaded_while_the_swap_waits") {
    Crew crew(first_seed(), 3, 16, "", 2);
    uint64_t found = 1;
    const auto look = [&](size_t, uint64_t* view, NodeCalls&) {
      (void)const_cast<volatile uint64_t*>(view)[8];
    };
    const auto store = [](size_t, uint64_t* view, NodeCalls& calls) {
      volatile uint64_t* const word = view + 16;
      *word = *word + 1;
      REQUIRE(calls.wmb() == 0);
    };
    const auto swap = [&](size_t, uint64_t* view, NodeCalls& calls) {
      const uint64_t expected = found == 0 ? 1 : 0;
      REQUIRE(calls.cas(view, expected, expected + 1, &found) == 0);
    };
    crew.one(0, look);
    crew.one(1, store);
    crew.one(0, swap);
    crew.one(0, look);
    crew.one(1, store);
    crew.one(2, look);
    bool swapped = false, loaded = false;
    const uint64_t misses = crew.counts().misses;
    crew.spawn(0, [&](size_t m, uint64_t* view, NodeCalls& calls) {
      swap(m, view, calls);
      swapped = true;
    });
    crew.spawn(0, [&](size_t, uint64_t* view, NodeCalls&) {
      crew.simulation().idle(kMilli);  // behind the swap
      CHECK(const_cast<volatile uint64_t*>(view)[16] == 2);
      CHECK_FALSE(swapped);
      loaded = true;
    });
    crew.one(2, [&](size_t, uint64_t*, NodeCalls&) {
      while (!loaded) crew.simulation().idle(kMilli);
      while (!swapped) crew.node(2).serve_once(), crew.simulation().idle(kMilli);
    });
    CHECK(found == 1);
    CHECK(crew.counts().brought == 0);
    CHECK(crew.counts().misses == misses + 1);
    uint64_t word = 0;
    crew.one(0, [&](size_t, uint64_t* view, NodeCalls&) {
      word = *const_cast<volatile uint64_t*>(view);
    });
    CHECK(word == 2);
  }

  TEST_CASE("who_has_one_page_of_a_region_is_told_of_few_others_that_are_stored_to_in_order") {
    constexpr size_t kPages = 256;
    Crew crew(first_seed(), 2, kPages);
    uint64_t seen = 0;
    crew.all([&](size_t member, uint64_t* view, NodeCalls&) {
      if (member == 0) seen = const_cast<volatile uint64_t*>(view)[0];
    });
    CHECK(seen == 0);
    crew.all([](size_t member, uint64_t* view, NodeCalls& calls) {
      for (size_t page = 1; member == 1 && page < kPages; ++page) {
        const_cast<volatile uint64_t*>(view)[page * kWordsOfPage] = page;
        REQUIRE(calls.wmb() == 0);
      }
    });
    const CrewCounts counts = crew.counts();
    CHECK(counts.notifications >= kPages / 16);
    CHECK(counts.notifications <= kPages / 16 + 8);
    // What was released comes as it is at home.
    crew.all([](size_t member, uint64_t* view, NodeCalls&) {
      for (size_t page = 1; member == 0 && page < kPages; ++page) {
        CHECK(const_cast<volatile uint64_t*>(view)[page * kWordsOfPage] == page);
      }
    });
  }

  TEST_CASE("pages_that_are_asked_for_come_in_large_reads_whatever_the_order_of_the_loads") {
    constexpr size_t kPages = 512;
    Crew crew(first_seed(), 2, kPages);
    const auto load_all = [&](uint64_t round, bool asks) {
      const CrewCounts before = crew.counts();
      const uint64_t fetched = crew.fetched();
      uint64_t wrong = 0;
      crew.all([&](size_t member, uint64_t* view, NodeCalls&) {
        if (member != 0) return;
        if (asks) crew.prefetch(member, {0, kPages});
        for (size_t i = 0; i < kPages; ++i) {  // no two neighbours one after the other
          wrong += const_cast<volatile uint64_t*>(view)[i * 37 % kPages * kWordsOfPage] != round;
        }
      });
      CHECK(wrong == 0);
      CHECK(crew.fetched() - fetched == kPages);
      return crew.counts() - before;
    };
    const auto store_all = [&](uint64_t round) {
      crew.all([&](size_t member, uint64_t* view, NodeCalls& calls) {
        for (size_t page = 0; member == 1 && page < kPages; ++page) {
          const_cast<volatile uint64_t*>(view)[page * kWordsOfPage] = round;
        }
        REQUIRE(calls.wmb() == 0);
      });
    };
    CHECK(load_all(0, true).misses == 0);
    // Again after each barrier of another node: what was dropped is asked for as what never came.
    store_all(1);
    const uint64_t fetched = crew.fetched();
    CHECK(fetched >= kPages);
    CHECK(load_all(1, true).misses == 0);
    store_all(2);
    CHECK(load_all(2, false).misses > kPages / 2);
    // What is cached is not asked for again, nor what lies behind the end.
    const uint64_t all = crew.fetched();
    crew.all([&](size_t member, uint64_t*, NodeCalls&) {
      if (member == 0) crew.prefetch(member, {kPages / 2, kPages});
    });
    CHECK(crew.fetched() == all);
  }

  TEST_CASE("a_page_that_is_released_beside_another_though_it_is_cached_is_seen") {
    CHECK(hears_of_its_page(""));
    CHECK_FALSE(hears_of_its_page("mutate_beside_any_state=fail"));
  }
}

}  // namespace

}  // namespace cmi::test::sharing_test

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

// A table with a lock in each bucket, which is a cache line: what bench/crew_work.cpp does.
CrewCounts table(uint32_t seed, size_t members) {
  constexpr size_t kPages = 16, kBuckets = kPages * kPage / 64;
  Crew crew(seed, members, kPages + members);
  std::vector<uint64_t> done(members);
  uint64_t halves = 0;
  const auto operations = [&](size_t times, unsigned salt) {
    crew.all([&, times, salt](size_t member, uint64_t* view, NodeCalls& calls) {
      std::minstd_rand random(static_cast<unsigned>(member) + 1 + salt);
      for (size_t i = 0; i < times; ++i) {
        volatile uint64_t* const at = view + random() % kBuckets * 8;
        const bool put = random() % 2 == 0;
        uint64_t found = 1;
        while (found != 0) REQUIRE(calls.cas(at, 0, member + 1, &found) == 0);
        if (put) {
          at[1] = member << 48 | i;
          at[2] = ~at[1];
        } else {
          halves += at[1] + at[2] + 1 == 0 || (at[1] == 0 && at[2] == 0) ? 0 : 1;
        }
        const_cast<volatile uint64_t*>(view)[(kPages + member) * kWordsOfPage] = ++done[member];
        REQUIRE(calls.cas(at, member + 1, 0, &found) == 0);
        REQUIRE(found == member + 1);
      }
    });
  };
  operations(100, 0);  // each comes to have had most pages
  const CrewCounts before = crew.counts();
  operations(400, 100);
  CHECK(halves == 0);
  for (size_t m = 0; m < members; ++m) {
    CHECK(crew.home()[(kPages + m) * kWordsOfPage] == done[m]);
  }
  return crew.counts() - before;
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

TEST_SUITE("sharing") {
  TEST_CASE("stores_scattered_by_several_nodes_cost_little_more_than_without_the_timer") {
    for (const size_t members : {2, 4}) {
      for (uint32_t seed = first_seed(); seed < first_seed() + 2; ++seed) {
        CAPTURE(members);
        CAPTURE(seed);
        const CrewCounts without = scatter(seed, members, "no_aging=fail");
        const CrewCounts with = scatter(seed, members);
        CHECK(without.misses == members * 256);
        CHECK(with.misses * 10 <= without.misses * 12);
        // Of so few pages those by which the timer learns are a larger part than in the bench.
        CHECK(with.messages() * 10 <= without.messages() * 13);
      }
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
    CHECK(counts.notifications <= kPages / 16 + 4);
    // What was released comes as it is at home.
    crew.all([](size_t member, uint64_t* view, NodeCalls&) {
      for (size_t page = 1; member == 0 && page < kPages; ++page) {
        CHECK(const_cast<volatile uint64_t*>(view)[page * kWordsOfPage] == page);
      }
    });
  }

  TEST_CASE("a_page_that_is_released_beside_another_though_it_is_cached_is_seen") {
    CHECK(hears_of_its_page(""));
    CHECK_FALSE(hears_of_its_page("mutate_beside_any_state=fail"));
  }
}

}  // namespace

}  // namespace cmi::test::sharing_test

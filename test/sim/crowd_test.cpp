// A home that many importers want something of at once: how many messages a barrier costs, that
// nobody waits much longer than the others, and that what the home cannot take in waits at its
// senders. Counted, in the simulation's time. CMI_SIM_SEED: the first of the seeds.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/intake.hpp"
#include "fabric/request_window.hpp"
#include "sim/crew.hpp"

namespace cmi::test::crowd_test {

namespace {

constexpr size_t kWordsOfPage = kPageSize / 8;

uint32_t first_seed() {
  const char* const text = std::getenv("CMI_SIM_SEED");
  return text == nullptr ? 1 : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

// Some of its words of 8 pages, as bench/crew_work.cpp has it.
constexpr size_t kPages = 8;
void store(const Crew& crew, uint64_t* view, size_t member, uint64_t value) {
  for (size_t page = 0; page < kPages; ++page) {
    for (size_t word = member; word < kWordsOfPage; word += 4 * crew.members()) {
      const_cast<volatile uint64_t*>(view)[page * kWordsOfPage + word] = value;
    }
  }
}

size_t wrong_words(const Crew& crew, uint64_t value) {
  size_t wrong = 0;
  for (size_t page = 0; page < kPages; ++page) {
    for (size_t member = 0; member < crew.members(); ++member) {
      wrong += crew.home()[page * kWordsOfPage + member] == value ? 0 : 1;
    }
  }
  return wrong;
}

// One member after the other stores and calls a barrier; messages that all barriers cost.
uint64_t messages_in_turns(size_t members, size_t rounds) {
  Crew crew(first_seed(), members, kPages);
  const auto each_in_turn = [&](uint64_t value) {
    size_t turn = 0;
    crew.all([&](size_t member, uint64_t* view, NodeCalls& calls) {
      while (turn != member) crew.simulation().idle(kMilli);
      store(crew, view, member, value);
      REQUIRE(calls.wmb() == 0);
      ++turn;
    });
  };
  each_in_turn(1);
  const CrewCounts before = crew.counts();
  for (size_t round = 0; round < rounds; ++round) each_in_turn(2 + round);
  CHECK(wrong_words(crew, 1 + rounds) == 0);
  const CrewCounts counts = crew.counts() - before;
  return counts.publications + counts.notifications;
}

// All of them at once, again and again.
struct AtOnce {
  std::vector<Nanos> waits;  // of each, for its barriers
  uint64_t messages = 0;
};
AtOnce at_once(uint32_t seed, size_t members, size_t rounds) {
  Crew crew(seed, members, kPages);
  std::vector<Nanos> waits(members);
  crew.all([&](size_t member, uint64_t* view, NodeCalls& calls) {
    for (size_t round = 1; round <= rounds; ++round) {
      store(crew, view, member, round);
      const Nanos begun = now();
      REQUIRE(calls.wmb() == 0);
      waits[member] += now() - begun;
    }
  });
  CHECK(wrong_words(crew, rounds) == 0);
  const CrewCounts counts = crew.counts();
  return {std::move(waits), counts.publications + counts.notifications};
}

struct Flood {
  uint64_t held_back = 0;
  size_t least_allowed = SIZE_MAX, wrong = 0;
  bool bounded_at_the_end = false;
};

// Each member stores to every second word of many pages of its own, which is more than the home
// takes in at once.
Flood flood(uint32_t seed, size_t members, const std::string& faults) {
  constexpr size_t kOfMember = 320;
  Flood seen;
  Crew crew(seed, members, members * kOfMember, faults);
  const auto look = [&](size_t member) {
    seen.least_allowed = std::min(seen.least_allowed, crew.link_of(member)->allowed());
  };
  crew.all([&](size_t member, uint64_t* view, NodeCalls& calls) {
    volatile uint64_t* const own = view + member * kOfMember * kWordsOfPage;
    for (size_t word = 0; word < kOfMember * kWordsOfPage; word += 2) own[word] = word + 1;
    REQUIRE(calls.wmb() == 0);
    look(member);
  });
  for (size_t word = 0; word < members * kOfMember * kWordsOfPage; word += 2) {
    const size_t of_member = word % (kOfMember * kWordsOfPage);
    seen.wrong += crew.home()[word] == of_member + 1 ? 0 : 1;
  }
  seen.held_back = crew.counts().held_back;
  // When the home has been idle for a while, the next answer gives all the room that there is.
  crew.all([&](size_t member, uint64_t* view, NodeCalls& calls) {
    for (const Nanos until = now() + 2 * fabric::Intake::kStays; now() < until;) {
      crew.simulation().idle(kMilli);
    }
    const_cast<volatile uint64_t*>(view)[member * kOfMember * kWordsOfPage] = 7;
    REQUIRE(calls.wmb() == 0);
    if (crew.link_of(member)->allowed() < 64) seen.bounded_at_the_end = true;
  });
  return seen;
}

// All members have been idle, then call barriers at once that take many messages. How many of these
// go before the home has answered any.
uint64_t first_burst(size_t members, const std::string& faults) {
  constexpr size_t kOfMember = 320;
  constexpr uint64_t kAllBytes = 0x0101010101010101;  // of a word change, so twelve pages a message
  Crew crew(first_seed(), members, members * kOfMember, faults);
  const auto idle = [&](Nanos span) {
    for (const Nanos until = now() + span; now() < until;) crew.simulation().idle(kMilli);
  };
  crew.all([&](size_t member, uint64_t* view, NodeCalls&) {
    volatile uint64_t* const own = view + member * kOfMember * kWordsOfPage;
    for (size_t word = 0; word < kOfMember * kWordsOfPage; word += 2) {
      own[word] = (word % 250 + 1) * kAllBytes;
    }
    idle(2 * fabric::RequestWindow::kIdle);
  });
  crew.simulation().spawn(-1, [&] {
    crew.home_node().hold(true);
    idle(10 * kMilli);  // until it has done what it is at
  });
  crew.simulation().run();
  uint64_t burst = 0;
  const uint64_t before = crew.net().traffic().messages;
  crew.simulation().spawn(-1, [&] {
    idle(fabric::RequestWindow::kAskAgain / 10);  // nothing is sent again so soon
    burst = crew.net().traffic().messages - before;
    crew.home_node().hold(false);
  });
  crew.all([&](size_t, uint64_t*, NodeCalls& calls) { REQUIRE(calls.wmb() == 0); });
  size_t wrong = 0;
  for (size_t word = 0; word < members * kOfMember * kWordsOfPage; word += 2) {
    const size_t of_member = word % (kOfMember * kWordsOfPage);
    wrong += crew.home()[word] == (of_member % 250 + 1) * kAllBytes ? 0 : 1;
  }
  CHECK(wrong == 0);
  return burst;
}

TEST_SUITE("crowds") {
  TEST_CASE("a_barrier_costs_as_few_messages_with_64_importers_of_its_pages_as_with_4") {
    constexpr size_t kRounds = 1;
    for (const size_t members : {4, 16, 64}) {
      CAPTURE(members);
      CHECK(messages_in_turns(members, kRounds) <= 8 * members * kRounds);
    }
  }

  TEST_CASE("the_slowest_of_equal_importers_waits_at_most_three_times_the_median") {
    for (const size_t members : {4, 16, 64}) {
      CAPTURE(members);
      const size_t rounds = std::max<size_t>(128 / members, 4);
      AtOnce all = at_once(first_seed(), members, rounds);
      std::sort(all.waits.begin(), all.waits.end());
      MESSAGE("least ", all.waits.front(), ", median ", all.waits[members / 2], ", most ",
              all.waits.back(), ", messages ", all.messages);
      CHECK(all.waits.back() <= 3 * all.waits[members / 2]);
      CHECK(all.messages <= 20 * members * rounds);  // not 2 * members for each barrier
    }
  }

  TEST_CASE("what_a_home_cannot_take_in_waits_at_its_senders") {
    constexpr char kSoon[] = "home_behind_soon=fail";
    uint64_t held_back = 0, least_allowed = UINT64_MAX;
    // Whether the home comes to be behind is the schedule's affair.
    for (uint32_t seed = first_seed(); seed < first_seed() + 8 && held_back == 0; ++seed) {
      CAPTURE(seed);
      const Flood bounded = flood(seed, 4, kSoon);
      CHECK(bounded.wrong == 0);
      CHECK(bounded.least_allowed >= fabric::Intake::kLeast);
      CHECK_FALSE(bounded.bounded_at_the_end);
      held_back += bounded.held_back;
      least_allowed = std::min<uint64_t>(least_allowed, bounded.least_allowed);
    }
    CHECK(held_back > 0);
    CHECK(least_allowed < 16);
    const Flood ignored =
        flood(first_seed(), 4, std::string(kSoon) + ";mutate_credit_ignored=fail");
    CHECK(ignored.wrong == 0);
    CHECK(ignored.held_back == 0);
  }

  TEST_CASE("before_a_homes_first_answer_each_of_a_crowd_sends_it_few_requests") {
    constexpr size_t kMembers = 8;
    const std::string kept = "no_aging=fail";
    const uint64_t burst = first_burst(kMembers, kept);
    CHECK(burst >= kMembers * fabric::RequestWindow::kAtFirst / 2);
    CHECK(burst <= kMembers * fabric::RequestWindow::kAtFirst);
    CHECK(first_burst(kMembers, kept + ";mutate_first_burst_unbounded=fail") >
          kMembers * fabric::RequestWindow::kAtFirst);
  }
}

}  // namespace

}  // namespace cmi::test::crowd_test

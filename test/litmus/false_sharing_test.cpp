// Four nodes store to interleaved bytes of one page; no byte is ever lost, and each barrier shows
// them all to everybody.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>

#include <array>
#include <random>

#include "litmus/lab.hpp"
#include "support/long_run.hpp"

namespace cmi::test::false_sharing_test {

namespace {

constexpr int kNodes = 4;
using Bytes4096 = std::array<uint8_t, kPage>;

// What the owner of byte `at` stores in a round; the same in all processes. 0: nothing.
uint8_t stored(uint32_t round, uint32_t at) {
  std::minstd_rand random(round * 65599 + at);
  random.discard(2);
  return random() % 3 == 0 ? static_cast<uint8_t>(1 + random() % 255) : 0;
}

constexpr uint64_t kFailed = 1000000000;

// The bytes of node `me` are those whose number leaves it as rest: in each round it stores to some
// of them, with barriers in between, and then looks at all. The number of wrong ones, and kFailed
// for each call that failed.
uint64_t share(uint64_t view, uint32_t me, uint32_t rounds) {
  auto* page = reinterpret_cast<volatile uint8_t*>(view);
  Bytes4096 expected{};
  uint64_t wrong = 0;
  std::minstd_rand random(me + 1);
  for (uint32_t round = 1; round <= rounds; ++round) {
    for (uint32_t at = 0; at < kPage; ++at) {
      const uint8_t value = stored(round, at);
      if (value == 0) continue;
      expected[at] = value;
      if (at % kNodes != me) continue;
      page[at] = value;
      if (random() % 512 == 0) wrong += cmi_wmb() != 0 ? kFailed : 0;
    }
    wrong += cmi_wmb() != 0 ? kFailed : 0;
    if (!meet_all(kNodes)) return wrong + kFailed;
    for (uint32_t at = 0; at < kPage; ++at) wrong += page[at] != expected[at];
    if (!meet_all(kNodes)) return wrong + kFailed;
  }
  return wrong;
}

uint64_t wrong_bytes(int home, const std::string& faults = "") {
  Lab lab({kNodes + 1, {home}}, faults);
  std::vector<Pending<uint64_t>> running;
  for (uint32_t i = 0; i < kNodes; ++i) {
    running.push_back(lab.process(static_cast<int>(i))
                          .start([](uint64_t view,
                                    uint32_t me) { return share(view, me, long_run() ? 150 : 50); },
                                 lab.base(static_cast<int>(i)), i));
  }
  uint64_t wrong = 0;
  for (auto& pending : running) wrong += pending.get(60);
  return wrong;
}

// The same over many pages in order: those ahead become writable before they are stored to, while
// others store to them.
uint64_t share_in_order(uint64_t view, uint32_t me, uint32_t rounds) {
  constexpr uint32_t kMany = 60;
  auto* pages = reinterpret_cast<volatile uint8_t*>(view);
  uint64_t wrong = 0;
  for (uint32_t round = 1; round <= rounds; ++round) {
    const uint32_t at = round * 67 % (kPage / kNodes) * kNodes;
    // Not all begin at once, and some have a barrier in between.
    const uint32_t barrier = (round + me) % 3 == 0 ? (round * 7 + me * 13) % kMany : kMany;
    for (uint32_t p = 0; p < kMany; ++p) {
      pages[p * kPage + at + me] = static_cast<uint8_t>(round + p + me);
      if (p == barrier) wrong += cmi_wmb() != 0 ? kFailed : 0;
    }
    wrong += cmi_wmb() != 0 ? kFailed : 0;
    if (!meet_all(kNodes)) return wrong + kFailed;
    for (uint32_t p = 0; p < kMany; ++p) {
      for (uint32_t n = 0; n < kNodes; ++n) {
        wrong += pages[p * kPage + at + n] != static_cast<uint8_t>(round + p + n);
      }
    }
    if (!meet_all(kNodes)) return wrong + kFailed;
  }
  return wrong;
}

uint64_t wrong_bytes_in_order(int home) {
  Lab lab({kNodes + 1, {home}});
  std::vector<Pending<uint64_t>> running;
  for (uint32_t i = 0; i < kNodes; ++i) {
    running.push_back(
        lab.process(static_cast<int>(i))
            .start([](uint64_t view,
                      uint32_t me) { return share_in_order(view, me, long_run() ? 60 : 20); },
                   lab.base(static_cast<int>(i)), i));
  }
  uint64_t wrong = 0;
  for (auto& pending : running) wrong += pending.get(60);
  return wrong;
}

TEST_SUITE("false_sharing") {
  TEST_CASE("four_nodes_store_to_every_fourth_byte_of_a_page_and_lose_none") {
    CHECK(wrong_bytes(0) == 0);
    CHECK(wrong_bytes(4) == 0);
  }

  TEST_CASE("four_nodes_store_in_order_to_their_bytes_of_many_pages_and_lose_none") {
    CHECK(wrong_bytes_in_order(0) == 0);
    CHECK(wrong_bytes_in_order(4) == 0);
  }

  TEST_CASE("four_nodes_lose_bytes_of_a_page_when_whole_blocks_travel") {
    for (const int home : {0, 4}) {
      CAPTURE(home);
      const uint64_t wrong = wrong_bytes(home, "mutate_gaps_merged=fail");
      CHECK(wrong > 0);
      CHECK(wrong < kFailed);  // bytes, and no call
    }
  }
}

}  // namespace

}  // namespace cmi::test::false_sharing_test

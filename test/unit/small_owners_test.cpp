// Small owners of data, each alone: pending swaps of a thread, the time for a home to answer,
// claims of regions, the token of an import, sizes of caches.
#include <doctest/doctest.h>

#include <array>

#include "core/context/chosen_sizes.hpp"
#include "core/memory/importer/pending_swaps.hpp"
#include "core/memory/importer/reconf_timeout.hpp"
#include "core/memory/importer/region_claims.hpp"
#include "core/memory/importer/token_in_use.hpp"
#include "unit/deaf_home.hpp"

namespace cmi::test::small_owners_test {
using namespace cmi::memory;

namespace {

// Frames of calls, the outermost at the highest address as on a stack.
struct Frames {
  std::array<char, 16> stack{};
  const void* at(size_t depth) const { return &stack.at(stack.size() - 1 - depth); }
};

void send(PendingSwap& swap, const std::shared_ptr<Import>& to) {
  swap.import = to;
  swap.request = std::make_shared<fabric::Request>();
}

}  // namespace

TEST_SUITE("pending_swaps") {
  TEST_CASE("a_call_that_tries_again_finds_what_it_has_sent") {
    PendingSwaps swaps;
    const Frames frames;
    const auto import = std::make_shared<Import>(), other = std::make_shared<Import>();
    send(swaps.of(frames.at(1), false), import);
    const PendingSwap& again = swaps.of(frames.at(1), true);
    CHECK(again.is_sent(import));
    CHECK_FALSE(again.is_sent(other));
    CHECK_FALSE(again.is_over(import));
  }

  TEST_CASE("a_new_call_with_the_same_frame_has_sent_nothing") {
    PendingSwaps swaps;
    const Frames frames;
    const auto import = std::make_shared<Import>();
    send(swaps.of(frames.at(1), false), import);
    CHECK_FALSE(swaps.of(frames.at(1), false).is_sent(import));
  }

  TEST_CASE("a_call_of_a_handler_leaves_that_of_the_interrupted_call_as_it_was") {
    PendingSwaps swaps;
    const Frames frames;
    const auto import = std::make_shared<Import>();
    send(swaps.of(frames.at(1), false), import);
    CHECK_FALSE(swaps.of(frames.at(5), false).is_sent(import));
    CHECK(swaps.of(frames.at(1), true).is_sent(import));
  }

  // No more than eight are kept: those of deeper frames were left by a jump.
  TEST_CASE("calls_that_were_left_by_a_jump_make_room_for_a_new_one") {
    PendingSwaps swaps;
    const Frames frames;
    const auto import = std::make_shared<Import>();
    for (size_t depth = 2; depth < 10; ++depth) send(swaps.of(frames.at(depth), false), import);
    send(swaps.of(frames.at(4), true), import);
    send(swaps.of(frames.at(1), false), import);
    CHECK(swaps.of(frames.at(1), true).is_sent(import));
    for (size_t depth = 2; depth < 10; ++depth) {
      CHECK_FALSE(swaps.of(frames.at(depth), true).is_sent(import));
    }
  }

  TEST_CASE("the_oldest_makes_room_where_no_frame_is_deeper") {
    PendingSwaps swaps;
    const Frames frames;
    const auto import = std::make_shared<Import>();
    for (size_t depth = 0; depth < 8; ++depth) send(swaps.of(frames.at(depth), false), import);
    send(swaps.of(frames.at(9), false), import);
    CHECK(swaps.of(frames.at(1), true).is_sent(import));
    CHECK(swaps.of(frames.at(9), true).is_sent(import));
    CHECK_FALSE(swaps.of(frames.at(0), true).is_sent(import));
  }
}

TEST_SUITE("reconf_timeout") {
  TEST_CASE("until_the_client_sets_one_it_is_the_time_of_death") {
    test::NoWatch watch;
    ReconfTimeout timeout(watch);
    CHECK_FALSE(timeout.is_set());
    CHECK(timeout.get() == watch.dead_after());
    timeout.set(3 * kMilli);
    CHECK(timeout.is_set());
    CHECK(timeout.get() == 3 * kMilli);
  }
}

TEST_SUITE("region_claims") {
  TEST_CASE("what_is_asked_for_is_shared_once_it_is_granted_and_released_when_no_page_is_entered") {
    RegionClaims claims;
    claims.known = ImportRegions(4);
    Guard g(claims.mu);
    const uint32_t epoch = claims.begin(1, 2);
    CHECK(epoch != 0);
    CHECK_FALSE(claims.all_shared(1, 1));
    uint32_t released = 0;
    CHECK_FALSE(claims.known.release(1, &released));  // the answer is on its way
    claims.end(1, 2, true);
    CHECK(claims.all_shared(1, 2));
    CHECK_FALSE(claims.all_shared(0, 2));
    CHECK_FALSE(claims.all_shared(1, 3));
    REQUIRE(claims.known.release(1, &released));
    CHECK(released == epoch);
    CHECK_FALSE(claims.all_shared(1, 2));
    CHECK(claims.all_shared(2, 2));
  }

  TEST_CASE("what_is_not_granted_is_not_shared_and_each_claim_has_an_epoch_of_its_own") {
    RegionClaims claims;
    claims.known = ImportRegions(1);
    Guard g(claims.mu);
    const uint32_t first = claims.begin(0, 0);
    claims.end(0, 0, false);
    CHECK_FALSE(claims.all_shared(0, 0));
    const uint32_t second = claims.begin(0, 0);
    claims.end(0, 0, true);
    CHECK(second != first);
    uint32_t released = 0;
    REQUIRE(claims.known.release(0, &released));
    CHECK(released == second);
  }
}

TEST_SUITE("token_in_use") {
  TEST_CASE("a_token_is_presented_once_a_session") {
    TokenInUse token;
    Guard g(token.mu);
    CHECK_FALSE(token.presented_in(1));
    token.present_in(1);
    CHECK(token.presented_in(1));
    CHECK_FALSE(token.presented_in(2));
    token.present_in(2);
    CHECK_FALSE(token.presented_in(1));
  }

  TEST_CASE("what_the_home_took_last_and_what_was_adopted_last_are_apart") {
    TokenInUse token;
    CHECK(token.taken() == 0);
    token.set_taken(7);
    Guard g(token.adopt_mu);
    CHECK_FALSE(token.has_adopted(1));
    token.set_adopted(2);
    CHECK(token.has_adopted(2));
    CHECK_FALSE(token.has_adopted(1));
    CHECK(token.taken() == 7);
  }
}

TEST_SUITE("chosen_sizes") {
  using context::ChosenSizes;
  TEST_CASE("a_segment_has_its_own_size_or_that_of_all_or_no_limit") {
    ChosenSizes sizes;
    CHECK(sizes.of_new() == 0);
    CHECK(sizes.of(1, 900) == 900);
    sizes.set(1, 100);
    CHECK(sizes.of(1, 900) == 100);
    CHECK(sizes.of(2, 900) == 900);
    CHECK(sizes.of_new() == 0);
    sizes.forget(1);
    CHECK(sizes.of(1, 900) == 900);
  }

  TEST_CASE("a_size_for_all_replaces_what_was_said_of_single_ones") {
    ChosenSizes sizes;
    sizes.set(1, 100);
    sizes.set_all(50);
    CHECK(sizes.of_new() == 50);
    CHECK(sizes.of(1, 900) == 50);
    sizes.set(1, 200);
    CHECK(sizes.of(1, 900) == 200);
    CHECK(sizes.of(2, 900) == 50);
    sizes.forget(1);
    CHECK(sizes.of(1, 900) == 50);
  }
}

}  // namespace cmi::test::small_owners_test

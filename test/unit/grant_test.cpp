// What an import may do: rights, pages, and tokens that end against tokens that come.
#include "core/memory/importer/grant.hpp"

#include <doctest/doctest.h>

namespace cmi::test::grant_test {
using namespace cmi::memory;

namespace {

constexpr uint32_t kPages = 16;

access::TokenInfo token_of(uint64_t id, uint32_t rights, uint64_t first = 0, uint64_t pages = 0) {
  access::TokenInfo token;
  token.id = id;
  token.rights = rights;
  token.part.offset = first * kPageSize;
  token.part.size = pages * kPageSize;
  return token;
}

}  // namespace

TEST_SUITE("grant") {
  TEST_CASE("without_a_token_nothing_is_allowed") {
    const Grant grant;
    CHECK(grant.state() == ImportState::kNoToken);
    CHECK_FALSE(grant.allows(0));
    CHECK_FALSE(grant.has(1));
  }

  TEST_CASE("a_token_allows_its_part_and_its_rights") {
    Grant grant;
    SessionKey key;
    key.open(7);
    REQUIRE(grant.begin(token_of(5, 3, 4, 2), kPages, key));
    CHECK(grant.state() == ImportState::kUsable);
    CHECK(key.generation() == 0);  // it has to be presented
    CHECK(grant.token_id() == 5);
    CHECK_FALSE(grant.allows(3));
    CHECK(grant.allows(4));
    CHECK(grant.allows(5));
    CHECK_FALSE(grant.allows(6));
    CHECK(grant.has(1));
    CHECK(grant.has(3));
    CHECK_FALSE(grant.has(4));
    CHECK_FALSE(grant.has(5));
    grant.set_rights(1);
    CHECK_FALSE(grant.has(3));
  }

  TEST_CASE("a_token_without_a_part_is_for_all_pages") {
    Grant grant;
    SessionKey key;
    REQUIRE(grant.begin(token_of(5, 3), kPages, key));
    CHECK(grant.end_page() == kPages);
    CHECK(grant.allows(0));
    CHECK_FALSE(grant.allows(kPages));
  }

  TEST_CASE("no_token_begins_while_pages_of_a_former_one_are_taken") {
    Grant grant;
    SessionKey key;
    {
      const auto sweep = grant.begin(token_of(5, 3), kPages, key);
      REQUIRE(sweep);
      CHECK(grant.is_swept());
      key.open(9);
      CHECK_FALSE(grant.begin(token_of(6, 1), kPages, key));
      CHECK(grant.token_id() == 5);
      CHECK(grant.has(3));
      CHECK(key.generation() == 9);
    }
    CHECK_FALSE(grant.is_swept());
    {
      const auto end = grant.end(ImportState::kRevoked, 5);
      REQUIRE(end);
      CHECK(grant.state() == ImportState::kRevoked);
      CHECK_FALSE(grant.begin(token_of(6, 1), kPages, key));
    }
    CHECK(grant.begin(token_of(6, 1), kPages, key));
    CHECK(grant.state() == ImportState::kUsable);
  }

  TEST_CASE("two_sweeps_end_one_after_the_other") {
    Grant grant;
    auto first = grant.end(ImportState::kRemoved, 0);
    auto second = grant.end(ImportState::kGone, 0);
    first.reset();
    CHECK(grant.is_swept());
    second.reset();
    CHECK_FALSE(grant.is_swept());
  }

  TEST_CASE("what_is_said_of_another_token_ends_nothing") {
    Grant grant;
    SessionKey key;
    REQUIRE(grant.begin(token_of(6, 3), kPages, key));
    CHECK_FALSE(grant.end(ImportState::kRevoked, 5));
    CHECK(grant.state() == ImportState::kUsable);
    CHECK_FALSE(grant.is_swept());
    CHECK(grant.end(ImportState::kRemoved, 5));  // the segment's end is every token's
    CHECK(grant.state() == ImportState::kRemoved);
  }

  TEST_CASE("the_state_rises_only_and_no_token_brings_back_what_is_removed_or_gone") {
    Grant grant;
    SessionKey key;
    REQUIRE(grant.begin(token_of(6, 3), kPages, key));
    REQUIRE(grant.end(ImportState::kRemoved, 0));
    REQUIRE(grant.end(ImportState::kRevoked, 6));
    CHECK(grant.state() == ImportState::kRemoved);
    REQUIRE(grant.begin(token_of(7, 3), kPages, key));
    CHECK(grant.state() == ImportState::kRemoved);
    REQUIRE(grant.end(ImportState::kGone, 0));
    REQUIRE(grant.end(ImportState::kRemoved, 0));
    REQUIRE(grant.begin(token_of(8, 3), kPages, key));
    CHECK(grant.state() == ImportState::kGone);
  }

  TEST_CASE("a_token_of_the_node_is_outdated_until_the_newest_one_is_taken") {
    Grant grant;
    CHECK_FALSE(grant.is_outdated());
    grant.notify_of_token();
    const uint32_t seen = grant.notified();
    CHECK(grant.is_outdated());
    grant.notify_of_token();
    grant.took(seen);
    CHECK(grant.is_outdated());
    grant.took(grant.notified());
    CHECK_FALSE(grant.is_outdated());
  }
}

}  // namespace cmi::test::grant_test

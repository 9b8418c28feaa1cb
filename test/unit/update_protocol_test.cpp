// Who follows a page, what of an update may be taken in, and which words travel.
#include "core/memory/page/update_protocol.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <ostream>
#include <random>
#include <vector>

#include "core/memory/page/diff.hpp"

namespace cmi::test::update_protocol_test {
using namespace cmi::memory;

namespace {

using Content = std::array<std::byte, kPageSize>;
using Match = UpdateMatch;

// Dropped and fetched until it is followed; the epoch.
uint32_t subscribe(SubscribedPages& pages, uint32_t page, uint32_t generation) {
  for (int i = 0; i < 100; ++i) {
    pages.dropped(page);
    if (const uint32_t epoch = pages.fetched(page, generation); epoch != 0) return epoch;
  }
  FAIL("never followed");
  return 0;
}

struct Diff {
  alignas(8) Content page;
  std::vector<std::byte> wire;
};

Diff diff_of(std::mt19937_64& rng, size_t bytes) {
  Diff d;
  Content twin{};
  d.page = twin;
  for (size_t i = 0; i < bytes; ++i) d.page[rng() % kPageSize] = std::byte{1};
  std::vector<std::byte> room(kMaxDiffSize);
  Writer out(room);
  REQUIRE(encode_diff(d.page.data(), twin.data(), out) != kDiffNoRoom);
  d.wire.assign(room.begin(), room.begin() + static_cast<ptrdiff_t>(out.size()));
  return d;
}

}  // namespace

TEST_SUITE("subscribe") {
  TEST_CASE("a_page_is_subscribed_to_when_it_was_dropped_and_fetched_again_twice") {
    SubscribedPages pages;
    CHECK_FALSE(pages.any());
    CHECK(pages.fetched(7, 1) == 0);
    pages.dropped(7);
    CHECK(pages.any());
    CHECK(pages.fetched(7, 2) == 0);
    CHECK(pages.fetched(8, 2) == 0);
    pages.dropped(7);
    const uint32_t epoch = pages.fetched(7, 3);
    CHECK(epoch != 0);
    // From then on each time it is fetched, under another epoch.
    pages.dropped(7);
    const uint32_t next = pages.fetched(7, 4);
    CHECK(next != 0);
    CHECK(next != epoch);
  }

  TEST_CASE("updates_are_taken_in_in_order_and_once_and_into_the_page_that_was_fetched") {
    SubscribedPages pages;
    const uint32_t epoch = subscribe(pages, 7, 10);
    CHECK(pages.match(7, epoch, 1, 10) == Match::kUnknown);  // one is missing
    CHECK(pages.match(7, epoch + 1, 0, 10) == Match::kUnknown);
    CHECK(pages.match(7, 0, 0, 10) == Match::kUnknown);
    CHECK(pages.match(7 + kSubscriptionSlots, epoch, 0, 10) == Match::kUnknown);
    CHECK(pages.match(7, epoch, 0, 10) == Match::kNext);
    pages.applied(7, 11);
    CHECK(pages.match(7, epoch, 0, 11) == Match::kRepeated);
    CHECK(pages.match(7, epoch, 1, 11) == Match::kNext);
    pages.applied(7, 12);
    CHECK(pages.match(7, epoch, 2, 13) == Match::kChanged);  // not the page that was fetched
    pages.stored_to(7);
    CHECK(pages.match(7, epoch, 2, 12) == Match::kUnknown);  // and that was its end
    const uint32_t next = subscribe(pages, 7, 20);
    pages.dropped(7);
    CHECK(pages.match(7, next, 0, 20) == Match::kUnknown);
  }

  TEST_CASE("a_page_that_is_stored_to_here_is_not_subscribed_to_for_a_while") {
    SubscribedPages pages;
    const uint32_t epoch = subscribe(pages, 7, 10);
    pages.stored_to(7);
    CHECK(pages.match(7, epoch, 0, 10) == Match::kUnknown);
    for (int i = 0; i < 4; ++i) {
      pages.dropped(7);
      CHECK(pages.fetched(7, 10) == 0);
    }
    CHECK(subscribe(pages, 7, 10) != 0);
  }

  TEST_CASE("a_store_to_a_page_that_is_not_subscribed_to_yet_is_not_in_the_way") {
    SubscribedPages pages;
    pages.dropped(7);
    CHECK(pages.fetched(7, 1) == 0);
    pages.stored_to(7);
    pages.dropped(7);
    CHECK(pages.fetched(7, 2) != 0);
  }

  TEST_CASE("of_two_pages_of_a_slot_the_one_that_is_dropped_more_often_is_subscribed_to") {
    SubscribedPages pages;
    const uint32_t other = 7 + kSubscriptionSlots;
    REQUIRE(subscribe(pages, 7, 10) != 0);
    pages.dropped(other);
    CHECK(pages.fetched(other, 1) == 0);
    CHECK(pages.fetched(7, 11) != 0);
    CHECK(subscribe(pages, other, 1) != 0);
    CHECK(pages.fetched(7, 12) == 0);
  }

  TEST_CASE("a_home_sends_so_many_updates_of_an_epoch_and_then_none") {
    SharerSubscriptions subscribed;
    CHECK_FALSE(subscribed.has(7));
    subscribed.subscribe(7, 5);
    CHECK_FALSE(subscribed.has(7 + kSubscriptionSlots));
    for (uint32_t i = 0; i < kSubscribeFor; ++i) {
      SharerSubscriptions::Slot* const slot = subscribed.find(7);
      REQUIRE(slot != nullptr);
      CHECK(slot->epoch == 5);
      CHECK(slot->number++ == i);
    }
    CHECK_FALSE(subscribed.has(7));
    subscribed.subscribe(7, 6);
    REQUIRE(subscribed.has(7));
    CHECK(subscribed.find(7)->number == 0);
    subscribed.subscribe(7 + kSubscriptionSlots, 7);
    CHECK_FALSE(subscribed.has(7));
  }

  TEST_CASE("who_asks_twice_under_one_epoch_is_sent_the_next_number") {
    SharerSubscriptions subscribed;
    subscribed.subscribe(7, 3);
    REQUIRE(subscribed.find(7) != nullptr);
    subscribed.find(7)->number = 5;
    subscribed.subscribe(7, 3);
    CHECK(subscribed.find(7)->number == 5);
    subscribed.subscribe(7, 4);
    CHECK(subscribed.find(7)->number == 0);
  }

  TEST_CASE("a_page_that_comes_twice_has_one_entry_with_the_words_of_both") {
    std::mt19937_64 rng(3);
    std::vector<StoredPage> stored;
    StoredWords both;
    for (int i = 0; i < 2; ++i) {
      const Diff d = diff_of(rng, i == 0 ? 3 : 3000);  // runs, and a bit for each byte
      REQUIRE(words_of(Reader(d.wire), words_in(9, &stored)));
      REQUIRE(words_of(Reader(d.wire), words_in(8, &stored)));
      REQUIRE(words_of(Reader(d.wire), &both));
    }
    REQUIRE(stored.size() == 2);
    for (const StoredPage& p : stored) CHECK(p.words == both);
  }

  TEST_CASE("what_travels_is_every_word_that_was_stored_to_and_no_other") {
    std::mt19937_64 rng(1);
    for (const size_t bytes : {1, 2, 30, 700, 3000}) {
      CAPTURE(bytes);
      const Diff d = diff_of(rng, bytes);
      StoredWords words;
      REQUIRE(words_of(Reader(d.wire), &words));
      StoredWords expected;
      for (size_t i = 0; i < kPageSize; ++i)
        expected[i / 8] = expected[i / 8] || d.page[i] != std::byte{0};
      CHECK(words == expected);

      // The home's page by then: everything else in those words goes along.
      alignas(8) Content at_home;
      for (auto& b : at_home) b = static_cast<std::byte>(rng());
      std::vector<std::byte> room(kMaxWordsSize);
      Writer out(room);
      encode_words(at_home.data(), words, out);
      REQUIRE(out.ok());
      alignas(8) Content cached{};
      Reader in(out.done());
      REQUIRE(apply_diff(in, cached.data()));
      CHECK(in.done());
      for (size_t i = 0; i < kPageSize; ++i) {
        if (cached[i] != (words[i / 8] ? at_home[i] : std::byte{0})) FAIL("byte ", i);
      }
    }
  }

  TEST_CASE("no_choice_of_words_takes_more_than_is_said") {
    alignas(8) const Content page{};
    StoredWords all, every_other;
    all.set();
    for (size_t i = 0; i < every_other.size(); i += 2) every_other.set(i);
    for (const StoredWords& words : {all, every_other, StoredWords()}) {
      std::vector<std::byte> room(kMaxWordsSize);
      Writer out(room);
      encode_words(page.data(), words, out);
      CHECK(out.ok());
    }
  }

  TEST_CASE("a_malformed_diff_names_no_words") {
    std::mt19937_64 rng(2);
    Diff d = diff_of(rng, 40);
    d.wire.pop_back();
    StoredWords words;
    CHECK_FALSE(words_of(Reader(d.wire), &words));
    std::vector<std::byte> room(16);
    Writer out(room);
    out.put<uint16_t>(1);
    out.put<uint16_t>(4095);
    out.put<uint16_t>(2);
    out.put<uint16_t>(0);
    CHECK_FALSE(words_of(Reader(out.done()), &words));
    CHECK_FALSE(words_of(Reader(Bytes()), &words));
  }
}

}  // namespace cmi::test::update_protocol_test

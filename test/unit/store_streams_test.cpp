// Who stores in order, recognised by first stores.
#include "core/memory/importer/store_streams.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace cmi::memory::store_streams_test {

namespace {

// The windows of a stream that begins at a page, until it has come to another.
uint32_t faults_from(StoreStreams& streams, uint32_t page, uint32_t end) {
  uint32_t faults = 0;
  while (page < end) {
    page += streams.store(page);
    ++faults;
  }
  return faults;
}

TEST_SUITE("store_streams") {
  TEST_CASE("stores_in_a_row_are_taken_one_by_one_before_the_window_doubles_up_to_its_limit") {
    StoreStreams streams;
    uint32_t at = 100;
    for (uint32_t i = 1; i < StoreStreams::kFrom; ++i) CHECK(streams.store(at++) == 1);
    for (uint32_t want = 2; want <= StoreStreams::kLongWindow; want *= 2) {
      CHECK(streams.store(at) == want);
      at += want;
    }
    // Of a long stream it is a part.
    for (uint32_t window = 0; window < StoreStreams::kMaxWindow; at += window) {
      const uint32_t length = at - 100, before = window;
      window = streams.store(at);
      CHECK(window >= std::max(StoreStreams::kLongWindow, before));
      CHECK(window <= std::max(StoreStreams::kLongWindow, length / StoreStreams::kPartOfStream));
    }
    CHECK(at - 100 <= 2 * StoreStreams::kPartOfStream * StoreStreams::kMaxWindow);
    CHECK(streams.store(at) == StoreStreams::kMaxWindow);
  }

  TEST_CASE("no_window_is_wider_than_what_was_stored_to_in_order_before") {
    for (const uint32_t most : {1u, 2u, 5u, 1000u}) {
      CAPTURE(most);
      StoreStreams streams;
      for (uint32_t at = 0, last = 1; at < 1000; at += last) {
        const uint32_t window = streams.store(at);
        CHECK(window <= std::max(at, 1u));
        CHECK(window <= 2 * last);
        last = std::min(window, most);
        streams.taken(at, at + last);
      }
    }
  }

  TEST_CASE("stores_out_of_order_are_taken_one_by_one") {
    StoreStreams streams;
    for (uint32_t i = 0; i < 1000; ++i) CHECK(streams.store(i * 7 % 1000 * 2) == 1);
    for (uint32_t i = 1000; i > 0; --i) CHECK(streams.store(5000 + i) == 1);
  }

  TEST_CASE("a_store_within_what_was_made_writable_begins_anew") {
    StoreStreams streams;
    uint32_t at = 0;
    while (at < 100) at += streams.store(at);
    // Protected again by a barrier: the last window reaches from before to behind.
    const uint32_t inside = at - 1;
    CHECK(streams.store(inside) == 1);
    for (uint32_t i = 1; i + 1 < StoreStreams::kFrom; ++i) CHECK(streams.store(inside + i) == 1);
    CHECK(streams.store(inside + StoreStreams::kFrom - 1) == 2);
  }

  TEST_CASE("a_barrier_after_each_page_makes_few_pages_writable_in_vain") {
    StoreStreams streams;
    constexpr uint32_t kPages = 800;
    uint32_t taken = 0;
    for (uint32_t at = 0; at < kPages; ++at) taken += streams.store(at);
    CHECK(taken == kPages + kPages / StoreStreams::kFrom);
  }

  TEST_CASE("what_could_not_be_taken_is_where_the_stream_goes_on") {
    StoreStreams streams;
    uint32_t at = 0;
    while (at < 2000) at += streams.store(at);
    const uint32_t window = streams.store(at);
    REQUIRE(window == StoreStreams::kMaxWindow);
    streams.taken(at, at + 3);
    CHECK(streams.store(at + 3) == 6);
  }

  TEST_CASE("a_stream_goes_on_where_an_older_one_has_been") {
    StoreStreams streams;
    uint32_t at = 0;
    while (at < 100) at += streams.store(at);
    StoreStreams fresh;
    const uint32_t want = faults_from(fresh, 1000, 1200);
    // The last window of the first pass lies in the middle of the second, which begins elsewhere.
    uint32_t second = 20;
    for (uint32_t i = 0; i < StoreStreams::kFrom; ++i) second += streams.store(second);
    CHECK(second > 20 + StoreStreams::kFrom);
    CHECK(faults_from(streams, second, second + 200) < want);
  }

  TEST_CASE("several_streams_do_not_disturb_each_other") {
    StoreStreams streams;
    StoreStreams alone;
    const uint32_t want = faults_from(alone, 0, 500);
    uint32_t at[3] = {0, 10000, 20000}, faults[3] = {};
    for (bool any = true; any;) {
      any = false;
      for (uint32_t i = 0; i < 3; ++i) {
        if (at[i] >= i * 10000 + 500) continue;
        at[i] += streams.store(at[i]);
        ++faults[i];
        any = true;
      }
    }
    for (const uint32_t f : faults) CHECK(f == want);
  }
}

}  // namespace

}  // namespace cmi::memory::store_streams_test

// Readers in order, recognised by their misses.
#include "core/memory/importer/read_streams.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace cmi::memory::read_streams_test {

namespace {

TEST_SUITE("streams") {
  TEST_CASE("misses_in_a_row_double_the_window_up_to_its_limit") {
    Streams streams;
    CHECK(streams.miss(99) == 1);
    streams.taken(99, 100);
    uint32_t at = 100;
    for (uint32_t want = 1; want <= Streams::kMaxWindow; want *= 2) {
      CHECK(streams.miss(at) == want);
      at += want;
      streams.taken(at - want, at);
    }
    CHECK(streams.miss(at) == Streams::kMaxWindow);
  }

  TEST_CASE("a_miss_elsewhere_begins_anew") {
    Streams streams;
    CHECK(streams.miss(1) == 1);
    streams.taken(1, 2);
    CHECK(streams.miss(2) == 1);
    streams.taken(2, 3);
    CHECK(streams.miss(3) == 2);
    streams.taken(3, 5);
    CHECK(streams.miss(3) == 1);
    CHECK(streams.miss(17) == 1);
  }

  TEST_CASE("several_readers_do_not_disturb_each_other") {
    Streams streams;
    uint32_t at[3] = {0, 10000, 20000};
    for (uint32_t& a : at) {
      CHECK(streams.miss(a) == 1);
      streams.taken(a, a + 1);
      ++a;
    }
    for (uint32_t want = 1; want <= 64; want *= 2) {
      for (uint32_t& a : at) {
        CHECK(streams.miss(a) == want);
        a += want;
        streams.taken(a - want, a);
      }
    }
  }

  TEST_CASE("a_short_reader_is_not_fetched_for_ahead") {
    Streams streams;
    CHECK(streams.miss(0) == 1);
    streams.taken(0, 1);
    CHECK(streams.miss(1) == 1);
    streams.taken(1, 2);
    CHECK(streams.miss(2) == 2);
    streams.taken(2, 4);
    CHECK(streams.ahead(2, 10000).count == 0);
  }

  TEST_CASE("a_long_reader_has_a_bounded_distance_asked_for_without_gaps") {
    constexpr uint32_t kPages = 3000;
    Streams streams;
    REQUIRE(streams.miss(0) == 1);
    streams.taken(0, 1);
    uint32_t at = 1;
    for (uint32_t want = 1; want <= Streams::kAheadFrom; want *= 2) {
      REQUIRE(streams.miss(at) == want);
      streams.taken(at, at + want);
      at += want;
    }
    uint32_t reader = at - Streams::kAheadFrom;
    for (; reader < kPages; reader += 50) {
      for (PageRange r = streams.ahead(reader, kPages); r.count != 0;
           r = streams.ahead(reader, kPages)) {
        CHECK(r.first == at);
        CHECK(r.count <= Streams::kMaxWindow);
        at += r.count;
        REQUIRE(at <= kPages);
      }
      CHECK(at == std::min(kPages, reader + Streams::kDepth));
    }
    CHECK(streams.ahead(kPages - 1, kPages).count == 0);
  }
}

}  // namespace

}  // namespace cmi::memory::read_streams_test

// Who is told of a invalidation round: those who hold its regions, and nobody else.
#include <doctest/doctest.h>

#include "core/base/clock.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::directory_nodes_test {

namespace {

constexpr uint64_t kRegion = 512 * kPage;

uint64_t told(Process& process) {
  return process.run([] { return stats().invalidations_received; });
}
uint64_t told_in_vain(Process& process) {
  return process.run([] { return stats().invalidations_useless; });
}

// A reader that has the first page of a region, and a writer; their home beside them.
struct Shelf {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process& writer = cluster.spawn("writer");
  Process& reader = cluster.spawn("reader");
  const Export exported = export_segment(home, 2 * kRegion, kAllRights, CMI_SEG_CLIENT_CONSIST);
  const Import mine = import_segment(writer, exported);
  const Import his = import_segment(reader, exported);
  Shelf() { REQUIRE(load(reader, his.at).value == 0); }

  uint64_t seen(uint64_t page) { return load(reader, his.at + page * kPage).value; }
  bool put(uint64_t page, uint64_t value) { return publish(writer, mine.at + page * kPage, value); }
  bool put_at_home(uint64_t page, uint64_t value) {
    return publish(home, exported.at + page * kPage, value);
  }
  // Until the home does not tell the reader of the page any more.
  void release(uint64_t page) {
    const Deadline deadline = Deadline::in(20 * kSecond);
    for (uint64_t value = 1;; ++value) {
      const uint64_t before = told(reader);
      REQUIRE(put(page, value));
      if (told(reader) == before) return;
      REQUIRE_FALSE(deadline.passed());
    }
  }
  // What others store there from now on is seen.
  void check_told_of(uint64_t page) {
    for (uint64_t value = 1000; value < 1006; ++value) {
      CAPTURE(value);
      REQUIRE((value % 2 == 0 ? put(page, value) : put_at_home(page, value)));
      CHECK(seen(page) == value);
    }
  }
};

TEST_SUITE("directory") {
  TEST_CASE("a_round_notifies_the_sharers_of_its_region_alone") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& writer = cluster.spawn("writer");
    Process& reader = cluster.spawn("reader");
    const Export exported = export_segment(home, 4 * kRegion);
    const Import mine = import_segment(writer, exported);
    const Import his = import_segment(reader, exported);
    REQUIRE(load(reader, his.at).value == 0);
    const uint64_t before = told(reader);
    // Another region, by an importer and by the home itself.
    REQUIRE(publish(writer, mine.at + 3 * kRegion, 1));
    REQUIRE(publish(home, exported.at + 2 * kRegion, 2));
    CHECK(told(reader) == before);
    // His own region, a page that he has not.
    REQUIRE(publish(writer, mine.at + 9 * kPage, 3));
    CHECK(told(reader) > before);  // once, or again where the answer was slow to come
    CHECK(load(reader, his.at + 9 * kPage).value == 3);
    CHECK(load(reader, his.at + 3 * kRegion).value == 1);
    CHECK(load(reader, his.at + 2 * kRegion).value == 2);
  }

  TEST_CASE("a_notification_that_finds_nothing_cached_is_the_last_one") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& writer = cluster.spawn("writer");
    Process& reader = cluster.spawn("reader");
    const Export exported = export_segment(home, 2 * kRegion);
    const Import mine = import_segment(writer, exported);
    const Import his = import_segment(reader, exported);
    REQUIRE(load(reader, his.at).value == 0);
    REQUIRE(publish(writer, mine.at, 1));  // takes the only page that he has
    const uint64_t before = told(reader);
    REQUIRE(publish(writer, mine.at, 2));  // finds nothing, where the page is not released yet
    const uint64_t last = told(reader);
    CHECK(last <= before + 1);
    for (uint64_t value = 3; value < 20; ++value) REQUIRE(publish(writer, mine.at, value));
    CHECK(told(reader) == last);
    // He comes back and is told again.
    CHECK(load(reader, his.at).value == 19);
    REQUIRE(publish(writer, mine.at, 20));
    CHECK(told(reader) == last + 1);
    CHECK(load(reader, his.at).value == 20);
    REQUIRE(publish(home, exported.at, 21));
    CHECK(load(reader, his.at).value == 21);
    CHECK(load(writer, mine.at).value == 21);
  }

  TEST_CASE("what_the_home_stored_while_nobody_held_it_is_not_published_to_who_comes_after") {
    if (!kernel_notes_stores()) return skip("what the library notes itself is published once");
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& reader = cluster.spawn("reader");
    const Export exported = export_segment(home, 2 * kRegion);
    const Import his = import_segment(reader, exported);
    REQUIRE(load(reader, his.at + kRegion).value == 0);  // views are armed, region 0 is nobody's
    for (uint64_t page = 0; page < 64; ++page) {
      REQUIRE(store(home, exported.at + page * kPage, page + 1).cause() == Fault::kNone);
    }
    REQUIRE(load(reader, his.at).value == 1);
    const uint64_t before = told(reader);
    REQUIRE(wmb(home).ok());
    CHECK(told(reader) == before);
    REQUIRE(store(home, exported.at + 5 * kPage, 77).cause() == Fault::kNone);
    REQUIRE(wmb(home).ok());
    CHECK(told(reader) == before + 1);
    CHECK(load(reader, his.at + 5 * kPage).value == 77);
  }

  TEST_CASE("a_page_that_a_sharer_has_not_is_notified_a_few_times_and_no_more") {
    for (const bool at_home : {false, true}) {
      CAPTURE(at_home);
      Shelf s;
      CHECK(s.seen(2) == 0);
      const uint64_t before = told(s.reader), in_vain = told_in_vain(s.reader);
      for (uint64_t value = 1; value <= 1000; ++value) {
        REQUIRE((at_home ? s.put_at_home(2, value) : s.put(2, value)));
      }
      // Where the answer that releases it comes late, or is repeated, more than one is in vain.
      CHECK(told(s.reader) - before <= 10);
      CHECK(told_in_vain(s.reader) - in_vain <= told(s.reader) - before);
      CHECK(s.seen(2) == 1000);
      s.check_told_of(2);
      s.check_told_of(0);
    }
  }

  TEST_CASE("a_released_page_that_is_stored_to_is_notified_again") {
    for (const int flags : {0, CMI_SEG_CLIENT_CONSIST}) {
      CAPTURE(flags);
      Cluster cluster;
      Process& home = cluster.spawn("home");
      Process& writer = cluster.spawn("writer");
      Process& other = cluster.spawn("other");
      const Export exported = export_segment(home, 2 * kRegion, kAllRights, flags);
      const Import mine = import_segment(writer, exported);
      const Import his = import_segment(other, exported);
      REQUIRE(load(other, his.at).value == 0);
      for (uint64_t value = 1; value < 20; ++value)
        REQUIRE(publish(writer, mine.at + kPage, value));
      REQUIRE(publish(other, his.at + kPage + 8, 77));
      CHECK(load(writer, mine.at + kPage + 8).value == 77);
      for (uint64_t value = 20; value < 24; ++value) {
        REQUIRE(publish(writer, mine.at + kPage, value));
        CHECK(load(other, his.at + kPage).value == value);
      }
      CHECK(load(home, exported.at + kPage + 8).value == 77);
    }
  }

  TEST_CASE("a_region_that_is_released_and_acquired_again_has_its_released_pages") {
    Shelf s;
    s.release(2);
    s.release(0);  // with it the region: the only page that he had
    REQUIRE(s.put(2, 900));
    CHECK(s.seen(2) == 900);
    s.check_told_of(2);
    s.check_told_of(0);
    s.check_told_of(3);
  }

  TEST_CASE("released_pages_are_read_in_order") {
    Shelf s;
    constexpr uint64_t kFirst = 20, kLast = 28;
    for (uint64_t page = kFirst; page < kLast; page += 2) s.release(page);
    for (uint64_t page = kFirst; page < kLast; ++page) REQUIRE(s.put(page, 100 + page));
    for (uint64_t page = 1; page < 200; ++page) {
      CAPTURE(page);
      CHECK(s.seen(page) == (page >= kFirst && page < kLast ? 100 + page : 0));
    }
    for (uint64_t page = kFirst; page < kLast; ++page) s.check_told_of(page);
  }

  TEST_CASE("the_death_of_a_publisher_leaves_released_pages_right") {
    Shelf s;
    s.release(2);
    REQUIRE(s.put(2, 500));
    s.writer.kill();
    const Deadline deadline = Deadline::in(60 * kSecond);
    REQUIRE(s.put_at_home(0, 1));  // over when the dead one is fenced
    while (s.seen(0) != 1) REQUIRE_FALSE(deadline.passed());
    CHECK(s.seen(2) == 500);
    for (uint64_t value = 501; value < 505; ++value) {
      REQUIRE(s.put_at_home(2, value));
      CHECK(s.seen(2) == value);
    }
  }
}

}  // namespace

}  // namespace cmi::test::directory_nodes_test

// Who is told of a invalidation round: those who hold its regions, and nobody else.
#include <doctest/doctest.h>

#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test {

namespace {

constexpr uint64_t kRegion = 512 * kPage;

uint64_t told(Process& process) {
  return process.run([] { return stats().invalidations_received; });
}

TEST_SUITE("directory") {
  TEST_CASE("a_publication_is_told_to_those_who_hold_its_region_alone") {
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

  TEST_CASE("a_notice_that_finds_nothing_cached_is_the_last_one") {
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
    REQUIRE(publish(writer, mine.at, 2));  // finds nothing
    CHECK(told(reader) == before + 1);
    for (uint64_t value = 3; value < 20; ++value) REQUIRE(publish(writer, mine.at, value));
    CHECK(told(reader) == before + 1);
    // He comes back and is told again.
    CHECK(load(reader, his.at).value == 19);
    REQUIRE(publish(writer, mine.at, 20));
    CHECK(told(reader) == before + 2);
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
}

}  // namespace

}  // namespace cmi::test

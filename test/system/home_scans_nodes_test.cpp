// The scans of the timer at a home whose importers hold much: how much it looks at, counted in
// pages and ticks, and that it finds everything in the end.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <string>

#include "core/base/clock.hpp"
#include "system/calls.hpp"
#include "system/kernel_work.hpp"

namespace cmi::test::home_scans_nodes_test {

namespace {

constexpr uint64_t kRegion = 512 * kPage;  // of the directory
constexpr uint64_t kTicks = 20;

// Each scan then counts as a millisecond, so that eight regions are much.
constexpr char kSlowScans[] = "scan_takes_a_millisecond=fail";
constexpr uint64_t kFewRegions = 8;

// An importer has a page of each region of a home's segment.
struct Scene {
  Scene(uint64_t regions, const std::string& points)
      : home(cluster.spawn("home", {{"CMI_FAULT_POINT", points}})),
        exported(export_segment(home, regions * kRegion, kAllRights, CMI_SEG_NORESERVE)),
        import(import_segment(reader, exported)) {
    REQUIRE(reader.run(
        [](uint64_t at, uint64_t n) {
          while (n-- > 0) {
            if (load64(at + n * kRegion).cause() != Fault::kNone) return false;
          }
          return true;
        },
        import.at, regions));
  }
  uint64_t held() const { return exported.size / kPage; }
  Cluster cluster;
  Process& reader = cluster.spawn("reader");
  Process& home;
  const Export exported;
  const Import import;
};

// So many ticks, or a few more; 0: the timer does not run.
struct Looked {
  uint64_t pages = 0, ticks = 0;
};
Looked look(Process& home, uint64_t ticks) {
  return home.run(
      [](uint64_t wanted) {
        const uint64_t pages = kernel_work().scanned_pages, begun = stats().ticks;
        Looked looked;
        for (const Deadline end = Deadline::in(20 * kSecond); !end.passed(); ::usleep(1000)) {
          looked = {kernel_work().scanned_pages - pages, stats().ticks - begun};
          if (looked.ticks >= wanted) return looked;
        }
        return Looked{};
      },
      ticks);
}

// Whether a store at home to the page of a region is seen by the reader within so many ticks.
bool is_seen(Scene& s, uint64_t region, uint64_t value, uint64_t ticks) {
  REQUIRE(load(s.reader, s.import.at + region * kRegion).cause() == Fault::kNone);
  REQUIRE(store(s.home, s.exported.at + region * kRegion, value).cause() == Fault::kNone);
  for (uint64_t passed = 0; passed < ticks;) {
    const uint64_t more = look(s.home, 10).ticks;
    REQUIRE(more != 0);
    if (load(s.reader, s.import.at + region * kRegion).value == value) return true;
    passed += more;
  }
  return false;
}

TEST_SUITE("home_scans") {
  TEST_CASE("a_tick_at_home_looks_at_a_part_of_much_that_is_held") {
    if (!kernel_notes_stores()) return;
    Scene s(512, "");
    // 1 % of a processor, once nothing was found for a second: a tenth of a millisecond for a tick.
    Looked looked;
    for (const Deadline end = Deadline::in(20 * kSecond); !end.passed();) {
      looked = look(s.home, kTicks);
      REQUIRE(looked.ticks != 0);
      if (looked.pages <= looked.ticks * s.held() / 2) break;
    }
    CHECK(looked.pages <= looked.ticks * s.held() / 2);
    // It goes on, and finds what is stored anywhere.
    for (const uint64_t region : {511, 0, 300}) {
      const uint64_t at = region * kRegion;
      REQUIRE(store(s.home, s.exported.at + at, region + 1).cause() == Fault::kNone);
      CHECK(load_until(s.reader, s.import.at + at, region + 1) == region + 1);
    }
  }

  TEST_CASE("a_tick_at_home_looks_at_all_that_is_held_when_it_is_not_paced") {
    if (!kernel_notes_stores()) return;
    Scene s(512, "mutate_scan_unpaced=fail");
    const Looked looked = look(s.home, kTicks);
    CHECK(looked.ticks >= kTicks);
    CHECK(looked.pages >= (looked.ticks - 1) * s.held());
  }

  TEST_CASE("scans_of_an_idle_home_take_a_hundredth_of_a_processor") {
    if (!kernel_notes_stores()) return;
    Scene s(kFewRegions, kSlowScans);
    // What is saved up at first is two parts.
    (void)look(s.home, 50);
    const Looked looked = look(s.home, 100);
    REQUIRE(looked.ticks >= 100);
    // One region in ten ticks of 10 ms, where they come in time.
    CHECK(looked.pages >= (looked.ticks / 10 - 1) * 512);
    CHECK(looked.pages <= looked.ticks * s.held() / 4);
  }

  TEST_CASE("a_store_at_home_without_a_barrier_is_seen_in_the_end_while_much_is_held") {
    Scene s(kFewRegions, kSlowScans);
    uint64_t value = 0;
    for (const uint64_t region : {7, 3, 0, 7}) {
      CAPTURE(region);
      CHECK(is_seen(s, region, ++value, 1000));
    }
    // Others keep what they have: the reader has missed what was stored to alone.
    const uint64_t missed = s.reader.run([] { return stats().load_misses; });
    for (uint64_t region = 0; region < kFewRegions; ++region) {
      CHECK(load(s.reader, s.import.at + region * kRegion).cause() == Fault::kNone);
    }
    CHECK(s.reader.run([] { return stats().load_misses; }) == missed);
  }

  TEST_CASE("a_store_at_home_is_never_seen_while_much_is_held_when_each_scan_starts_over") {
    if (!kernel_notes_stores()) return;
    Scene s(kFewRegions, std::string(kSlowScans) + ";mutate_scan_starts_over=fail");
    CHECK(is_seen(s, 0, 1, 1000));
    CHECK_FALSE(is_seen(s, 7, 2, 200));
  }
}

}  // namespace

}  // namespace cmi::test::home_scans_nodes_test

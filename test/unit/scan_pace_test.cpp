// What the timer's scans at home take of a processor, with clocks and costs that the test makes.
#include "core/memory/home/scan_pace.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace cmi::test::scan_pace_test {
using namespace cmi::memory;

namespace {

constexpr Nanos kTick = 10 * kMilli;
constexpr uint32_t kPagesOfGiB = 1 << 18;

// A home whose importers hold so many pages, and whose kernel takes so long for each of them.
struct Machine {
  uint32_t held;
  double look = 4.5, found = 50;  // ns a page: that was not, or was stored to

  ScanPace pace{};
  Nanos t = 1000 * kSecond;
  uint32_t at = 0, passes = 0, parts = 0;
  Nanos used = 0, longest = 0;

  // Each tick goes through all that is held once, where the share allows. `stored`: all of it was.
  void run(Nanos span, bool stored = false) {
    for (const Nanos end = t + span; t < end; t += kTick) {
      pace.begin(t);
      const uint32_t begun_passes = passes, begun = at;
      while (pace.left() && (passes == begun_passes || at < begun)) part(stored);
    }
  }
  void part(bool stored) {
    const uint32_t pages = std::min(pace.part(), held - at);
    const auto took = static_cast<Nanos>(pages * (stored ? look + found : look)) + 3 * kMicro;
    pace.looked(pages, stored, took);
    used += took;
    longest = std::max(longest, took);
    ++parts;
    at += pages;
    if (at < held) return;
    at = 0;
    ++passes;
  }
  void forget() { used = longest = passes = parts = 0; }
};

}  // namespace

TEST_CASE("scans_that_find_nothing_take_one_percent_however_much_is_held") {
  for (const uint32_t gib : {1U, 8U, 64U, 1024U}) {
    Machine machine{gib * kPagesOfGiB};
    machine.run(100 * kSecond);
    CAPTURE(gib);
    CHECK(machine.used <= 100 * kSecond / 100 + ScanPace::kMostSaved + ScanPace::kLongest);
    CHECK(machine.used >= 100 * kSecond / 100 * 9 / 10);
    // And all of it is looked at in turn.
    CHECK(machine.passes >= (gib == 1024 ? 0 : 1));
    CHECK(machine.longest <= ScanPace::kLongest);
  }
}

TEST_CASE("scans_take_five_percent_for_a_second_after_something_was_found") {
  Machine machine{64 * kPagesOfGiB};
  machine.run(10 * kSecond);
  machine.part(true);
  machine.forget();
  machine.run(kSecond);
  CHECK(machine.used <= kSecond / 20 + ScanPace::kMostSaved + ScanPace::kLongest);
  CHECK(machine.used >= kSecond / 20 * 9 / 10);
  machine.forget();
  machine.run(10 * kSecond);
  CHECK(machine.used <= 10 * kSecond / 100 + ScanPace::kMostSaved + ScanPace::kLongest);
}

TEST_CASE("little_that_is_held_is_looked_at_by_each_tick") {
  Machine machine{2 * kRegionPages};
  machine.run(10 * kSecond);
  CHECK(machine.passes == 1000);
}

TEST_CASE("what_was_found_is_not_paid_from_the_share_for_looking") {
  Machine quiet{kPagesOfGiB}, busy{kPagesOfGiB};
  quiet.run(10 * kSecond);
  busy.run(10 * kSecond);  // knows what looking costs
  busy.forget();
  busy.run(10 * kSecond, true);
  // As many pages as in 5 % of a processor where nothing is found, and the work for them beyond.
  const double pages = static_cast<double>(busy.passes) * kPagesOfGiB;
  const double share = 10.0 * kSecond / 20 / busy.look;
  CHECK(pages >= share * 0.8);
  CHECK(busy.used > 10 * kSecond / 20 * 5);
}

TEST_CASE("a_part_becomes_as_short_as_pages_cost") {
  Machine machine{8 * kPagesOfGiB};
  machine.run(kSecond);
  CHECK(machine.pace.part() >= 16 * kRegionPages);
  machine.look *= 10;  // many views of it
  machine.run(kTick);
  machine.longest = 0;
  machine.run(kSecond);
  CHECK(machine.longest <= ScanPace::kLongest);
  CHECK(machine.pace.part() < 16 * kRegionPages);
  CHECK(machine.pace.part() % kRegionPages == 0);
  machine.look *= 100;  // a region alone takes longer
  machine.run(kSecond);
  CHECK(machine.pace.part() == ScanPace::kLeast);
  machine.look /= 10000;
  machine.run(20 * kSecond);
  CHECK(machine.pace.part() == ScanPace::kMost);
}

}  // namespace cmi::test::scan_pace_test

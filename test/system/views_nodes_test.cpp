// Views that other processes of its node have of a home's segment: what the home knows of them when
// their processes were killed, or could not tell it of their end.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test::views_nodes_test {

namespace {

// Far from where the kernel places anything by itself.
constexpr uint64_t kSpot = uint64_t{0x2000'0000'0000};

// Page tables that it has open: its own, and one for each view of a neighbour.
size_t page_maps_of(const Process& process) {
  size_t n = 0;
  const std::string folder = "/proc/" + std::to_string(process.pid()) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code closed_meanwhile;
    n += std::filesystem::read_symlink(entry, closed_meanwhile).filename() == "pagemap";
  }
  return n;
}

TEST_SUITE("views") {
  // It sits in the place of the one that was killed, and its view is where that one's was.
  TEST_CASE("what_the_successor_of_a_killed_neighbour_stores_is_published") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    Process& killed = cluster.spawn("home");
    REQUIRE(seg_at(killed, exported.seg, kSpot).at() == kSpot);
    killed.kill();
    Process& next = cluster.spawn("home");
    REQUIRE(seg_at(next, exported.seg, kSpot).at() == kSpot);
    const Import import = import_segment(peer, exported);
    // More often than the home can take the dead one's end for its stores.
    for (uint64_t value = 1; value <= 20; ++value) {
      CAPTURE(value);
      REQUIRE(publish(next, kSpot, value));
      CHECK(load(peer, import.at).value == value);
    }
  }

  TEST_CASE("a_home_keeps_nothing_of_neighbours_that_were_killed") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    const auto attached = [&]() -> Process& {
      Process& neighbour = cluster.spawn("home");
      REQUIRE(seg_at(neighbour, exported.seg).ok());
      return neighbour;
    };
    attached().kill();
    (void)attached();
    const size_t before = page_maps_of(home);
    REQUIRE(before > 0);
    for (int i = 0; i < 5; ++i) attached().kill();
    (void)attached();
    CHECK(page_maps_of(home) == before + 1);  // the last one's
  }

  // While the home looks for stores at the addresses of a view that is gone, nothing else lies
  // there.
  TEST_CASE("a_view_that_its_home_does_not_hear_of_the_end_of_is_in_nobodys_way") {
    Cluster cluster;
    Process& home = cluster.spawn("home", {{"CMI_DEAD_AFTER", "60000"}});
    Process& neighbour = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_DEAD_AFTER", "60000"}});
    const Export far = export_segment(home, kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
    const Export own = export_segment(neighbour, kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
    const Import held = import_segment(peer, far), import = import_segment(peer, own);
    REQUIRE(load(peer, held.at).value == 0);
    home.stop();
    CHECK(seg_at(neighbour, far.seg, kSpot).failed(CMI_ERR_RECONFIG));
    CHECK(seg_at(neighbour, own.seg, kSpot).failed(CMI_ERR_NOMEM));
    home.signal(SIGCONT);
    const Deadline deadline = Deadline::in(20 * kSecond);
    while (!seg_at(neighbour, own.seg, kSpot).ok()) REQUIRE_FALSE(deadline.passed());
    for (uint64_t value = 1; value <= 20; ++value) {
      CAPTURE(value);
      REQUIRE(publish(neighbour, kSpot, value));
      REQUIRE(publish(home, far.at, value));  // the home looks
      CHECK(load(peer, import.at).value == value);
      CHECK(load(peer, held.at).value == value);
    }
  }
}

}  // namespace

}  // namespace cmi::test::views_nodes_test

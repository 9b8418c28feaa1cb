// The fences (rule 19): whatever a home has decided about an importer, nothing that it sent before
// is applied any more once the decision is carried out, also the rest of a long write that was in
// mid-payload then. Closing its registration does not stop that one; closing its connection does.
#include <doctest/doctest.h>

#include "fault/patience.hpp"
#include "fault/stale_writer.hpp"
#include "system/happenings.hpp"

namespace cmi::test {

namespace {

constexpr uint64_t kNewer = 0x5555555555555555;

struct Scene {
  explicit Scene(const char* dead_after = "1000")
      : home(cluster.spawn("home", {{"CMI_DEAD_AFTER", dead_after}})),
        stale(cluster.spawn_bare("stale")),
        exported(export_consistent(home, kLateBytes)),
        board(cluster) {}

  // Until the write has stopped in mid-payload.
  Pending<LateReport> write_half(bool comes_back) {
    LateOrder order;
    order.handle = exported.handle;
    order.token = exported.token;
    order.board = board.name();
    order.comes_back = comes_back;
    auto writing = stale.start([](LateOrder o) { return write_late(o); }, order);
    REQUIRE(board.reaches(kEntered, 1));
    auto watching = home.start(
        [](Board::Name name, uint64_t at) {
          Board::Word* words = Board::open(name);
          const auto* first = reinterpret_cast<const volatile uint64_t*>(at);
          words[kMaySend] = 1;
          const Deadline deadline = Deadline::in(20 * kSecond);
          while (*first == 0 && !deadline.passed()) sched_yield();
          words[kHasArrived] = 1;
          return *first;
        },
        board.name(), exported.at);
    REQUIRE(watching.get() == kLateWord);
    REQUIRE(board.reaches(kPaused, 1));
    // Most of it has not been sent.
    REQUIRE(load(home, exported.at + kLateBytes - 8).value == 0);
    return writing;
  }
  // All of the segment is stored to at home, then the rest of the write is let go.
  void overwrite(Pending<LateReport>& writing, LateReport* report) {
    home.run(
        [](uint64_t at) {
          auto* words = reinterpret_cast<uint64_t*>(at);
          for (size_t i = 0; i < kLateBytes / 8; ++i) words[i] = kNewer;
        },
        exported.at);
    board[kMayGoOn] = 1;
    *report = writing.get();
  }
  // What else is in the sockets is in the home's memory once a message that came later is answered.
  uint64_t older_words() {
    Process& late = cluster.spawn("late");
    CHECK(load(late, import_segment(late, exported).at).value == kNewer);
    return home.run(
        [](uint64_t at) {
          const auto* words = reinterpret_cast<const uint64_t*>(at);
          uint64_t older = 0;
          for (size_t i = 0; i < kLateBytes / 8; ++i) older += words[i] != kNewer;
          return older;
        },
        exported.at);
  }

  Cluster cluster;
  Process &home, &stale;
  const Export exported;
  Board board;
};

TEST_SUITE("fence") {
  TEST_CASE("a_write_in_mid_payload_stops_when_its_importer_is_declared_dead") {
    Scene scene;
    auto writing = scene.write_half(false);
    // It owes an answer to this, and never gives it.
    CHECK(publish(scene.home, scene.exported.at + kPage, kNewer));
    CHECK(await_happening(scene.home).type == CMI_EVENT_RCTXT_DOWN);
    LateReport report;
    scene.overwrite(writing, &report);
    CHECK(report.entered);
    CHECK_FALSE(report.arrived);
    CHECK(report.cut);
    CHECK(scene.older_words() == 0);
  }

  TEST_CASE("a_write_in_mid_payload_stops_when_its_importer_comes_over_a_new_link") {
    Scene scene("20000");
    auto writing = scene.write_half(true);
    REQUIRE(scene.board.reaches(kCameBack, 1));
    LateReport report;
    scene.overwrite(writing, &report);
    CHECK(report.came_back);
    CHECK_FALSE(report.arrived);
    CHECK(report.cut);
    CHECK(scene.older_words() == 0);
  }

  TEST_CASE("a_write_in_mid_payload_stops_when_its_token_is_revoked") {
    Scene scene("20000");
    auto writing = scene.write_half(false);
    CHECK(tok_del(scene.home, scene.exported.token).ok());
    const Flat token = tok_new(scene.home, scene.exported.seg, kAllRights);
    LateReport report;
    scene.overwrite(writing, &report);
    CHECK_FALSE(report.arrived);
    CHECK(report.cut);
    Process& late = scene.cluster.spawn("late");
    Export anew = scene.exported;
    anew.token = token;
    CHECK(load(late, import_segment(late, anew).at).value == kNewer);
    CHECK(scene.home.run(
              [](uint64_t at) {
                const auto* words = reinterpret_cast<const uint64_t*>(at);
                uint64_t older = 0;
                for (size_t i = 0; i < kLateBytes / 8; ++i) older += words[i] != kNewer;
                return older;
              },
              scene.exported.at) == 0);
  }
}

}  // namespace

}  // namespace cmi::test

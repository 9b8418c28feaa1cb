// The fences (rule 19): whatever a home has decided about an importer, nothing that it sent before
// is applied any more once the decision is carried out, also the rest of a long write that was in
// mid-payload then. Closing its registration does not stop that one; closing its connection does.
// Each scene is played with the fence and without it.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>

#include "fault/patience.hpp"
#include "fault/stale_writer.hpp"
#include "system/happenings.hpp"

namespace cmi::test::fence_test {

namespace {

constexpr uint64_t kNewer = 0x5555555555555555;

struct Scene {
  // `broken`: a mutation of the home, or nothing.
  Scene(const char* dead_after, const std::string& broken)
      : home(cluster.spawn("home", {{"CMI_DEAD_AFTER", dead_after},
                                    {"CMI_FAULT_POINT", broken.empty() ? "" : broken + "=fail"}})),
        stale(cluster.spawn_bare("stale")),
        exported(export_consistent(home, kLateBytes)),
        board(cluster) {}

  // Until the write has stopped in mid-payload.
  Pending<LateReport> write_half(bool comes_back, bool answers = false) {
    LateOrder order;
    order.handle = exported.handle;
    order.token = exported.token;
    order.board = board.name();
    order.comes_back = comes_back;
    order.answers = answers;
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
  // All of the segment is stored to at home, then the rest of the write is let go: with the fence
  // none of it arrives, without it some does. What else is in the sockets is in the home's memory
  // once a message that came later is answered.
  void judge(Pending<LateReport>& writing, const Flat& token, bool fenced) {
    home.run(
        [](uint64_t at) {
          auto* words = reinterpret_cast<uint64_t*>(at);
          for (size_t i = 0; i < kLateBytes / 8; ++i) words[i] = kNewer;
        },
        exported.at);
    board[kMayGoOn] = 1;
    const LateReport report = writing.get();
    CHECK(report.entered);
    Export anew = exported;
    anew.token = token;
    Process& late = cluster.spawn("late");
    const uint64_t first = load(late, import_segment(late, anew).at).value;
    const uint64_t older = home.run(
        [](uint64_t at) {
          const auto* words = reinterpret_cast<const uint64_t*>(at);
          uint64_t count = 0;
          for (size_t i = 0; i < kLateBytes / 8; ++i) count += words[i] != kNewer;
          return count;
        },
        exported.at);
    if (!fenced) {
      CHECK((report.arrived || older > 0));
      return;
    }
    CHECK(first == kNewer);
    CHECK(older == 0);
    CHECK_FALSE(report.arrived);
    CHECK(report.cut);
  }

  Cluster cluster;
  Process &home, &stale;
  const Export exported;
  Board board;
};

void end_by_verdict(const std::string& broken) {
  Scene scene("1000", broken);
  auto writing = scene.write_half(false);
  // It owes an answer to this, and never gives it.
  CHECK(publish(scene.home, scene.exported.at + kPage, kNewer));
  CHECK(await_happening(scene.home).type == CMI_EVENT_RCTXT_DOWN);
  scene.judge(writing, scene.exported.token, broken.empty());
}

void come_back(const std::string& broken) {
  Scene scene("20000", broken);
  auto writing = scene.write_half(true);
  REQUIRE(scene.board.reaches(kCameBack, 1));
  scene.judge(writing, scene.exported.token, broken.empty());
}

void end_by_revocation(const std::string& broken) {
  Scene scene("20000", broken);
  auto writing = scene.write_half(false);
  // What may be written has ended; what is cached may be read on, for as long as the lease.
  CHECK(tok_del(scene.home, scene.exported.token).failed(CMI_ERR_RECONFIG));
  scene.judge(writing, tok_new(scene.home, scene.exported.seg, kAllRights), broken.empty());
}

// The segment is removed, and the writer says that it uses it no more. What the process maps after
// that, all places of this size among them, is its own.
void end_by_removal(const std::string& broken) {
  Scene scene("20000", broken);
  auto writing = scene.write_half(false, true);
  // What the sockets still hold comes first: else it would meet the moment in which nothing is
  // there.
  scene.home.run(
      [](uint64_t at) {
        const auto arrived = [at] {
          const auto* words = reinterpret_cast<const volatile uint64_t*>(at);
          size_t n = 0;
          while (n < kLateBytes / 8 && words[n] != 0) n += kPage / 8;
          return n;
        };
        size_t before = 0;
        for (size_t n = arrived(); n != before; n = arrived()) {
          before = n;
          ::usleep(100'000);
        }
      },
      scene.exported.at);
  CHECK(seg_rm(scene.home, scene.exported.seg).ok());
  CHECK(seg_dt(scene.home, scene.exported.seg, scene.exported.at).ok());
  constexpr size_t kPlaces = 32;
  constexpr size_t kPlace = kLateBytes - kPage;  // which the kernel does not align to large pages
  const auto first = scene.home.run([] {
    std::array<uint64_t, kPlaces> all{};
    for (uint64_t& at : all) {
      void* const p = ::mmap(nullptr, kPlace, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      at = p == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(p);
    }
    return all;
  });
  scene.board[kMayGoOn] = 1;
  const LateReport report = writing.get();
  CHECK(report.entered);
  const size_t stored = scene.home.run(
      [](std::array<uint64_t, kPlaces> all) {
        size_t count = 0;
        for (const uint64_t at : all) {
          if (at == 0) return SIZE_MAX;
          // What nobody has stored to is not made by looking at it.
          std::array<unsigned char, 1> there{};
          for (size_t i = 0; i < kPlace; i += kPage) {
            auto* const page = reinterpret_cast<std::byte*>(at + i);
            if (::mincore(page, 1, there.data()) == 0 && (there[0] & 1) != 0) ++count;
          }
          ::munmap(reinterpret_cast<void*>(at), kPlace);
        }
        return count;
      },
      first);
  if (broken.empty()) {
    CHECK(stored == 0);
    CHECK_FALSE(report.arrived);
  } else {
    CHECK(stored > 0);
  }
}

TEST_SUITE("fence") {
  TEST_CASE("a_write_in_mid_payload_reaches_nothing_that_comes_after_its_segment") {
    end_by_removal("");
  }
  TEST_CASE("a_write_in_mid_payload_reaches_what_comes_after_a_segment_that_is_not_quarantined") {
    end_by_removal("mutate_memory_not_quarantined");
  }
  TEST_CASE("a_write_in_mid_payload_stops_when_its_importer_is_declared_dead") {
    end_by_verdict("");
  }
  TEST_CASE("a_write_in_mid_payload_goes_on_when_a_verdict_closes_nothing") {
    end_by_verdict("mutate_verdict_unfenced");
  }
  TEST_CASE("a_write_in_mid_payload_goes_on_when_a_fence_closes_its_key_alone") {
    end_by_verdict("mutate_fence_in_mid_payload");
  }
  TEST_CASE("a_write_in_mid_payload_stops_when_its_importer_comes_over_a_new_link") {
    come_back("");
  }
  TEST_CASE("a_write_in_mid_payload_goes_on_when_a_new_link_closes_nothing") {
    come_back("mutate_rebuild_unfenced");
  }
  TEST_CASE("a_write_in_mid_payload_stops_when_its_token_is_revoked") { end_by_revocation(""); }
  TEST_CASE("a_write_in_mid_payload_goes_on_when_a_revocation_closes_nothing") {
    end_by_revocation("mutate_revocation_unfenced");
  }
}

}  // namespace

}  // namespace cmi::test::fence_test

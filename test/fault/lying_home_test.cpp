// A home that lies: who imports from it neither crashes nor hangs, what it imports from honest
// homes stays right, and others do not notice. CMI_TEST_SEED plays one seed again; each case prints
// its own where it fails.
#include "fault/lying_home.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <random>

#include "fault/patience.hpp"
#include "system/happenings.hpp"

namespace cmi::test::lying_home_test {

namespace {

constexpr size_t kSize = 8 * kPage;
constexpr int kImports = 6;   // of each case, one after the other
constexpr int kAccesses = 6;  // to each

struct Traffic {
  uint64_t rounds, failures;
};

// An honest home whose segment two importers share, one of which imports from the false one, too.
struct Scene {
  Scene()
      : home(cluster.spawn("home")),
        peer(cluster.spawn("peer", {{"CMI_DEAD_AFTER", "2000"}})),
        other(cluster.spawn("other")),
        liar(cluster.spawn_bare("liar")),
        board(cluster),
        exported(export_segment(home, kSize)),
        good(import_segment(peer, exported)),
        others(import_segment(other, exported)) {}

  void bear(HomeLie lie, uint64_t usual_seed) {
    const char* text = std::getenv("CMI_TEST_SEED");
    const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : usual_seed;
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    auto sharing = other.start(
        [](uint64_t at) {
          Traffic seen{0, 0};
          while (!called_back() || seen.rounds < 20) {
            ++seen.rounds;
            seen.failures += store64(at, seen.rounds).cause() != Fault::kNone;
            seen.failures += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
          }
          return seen;
        },
        others.at);
    uint64_t last = 0;
    for (int i = 0; i < kImports; ++i) {
      CAPTURE(i);
      const FalseSegment segment =
          liar.run([](Flat honest, size_t size) { return open_false_home(honest, size); },
                   exported.handle, kSize);
      board[0] = 0;
      auto serving =
          liar.start([](HomeLie what, uint64_t from, Board::Name name,
                        Flat honest) { return serve_falsely(what, from, name, honest); },
                     lie, seed + static_cast<uint64_t>(i), board.name(), exported.handle);
      // Every other time it lies from the first word on.
      if (i % 2 == 1) board[0] = 1;
      const Answer imported = seg_imp(peer, segment.handle);
      Answer view;
      if (imported.ok()) {
        set_token(peer, imported.seg(), segment.token);
        view = seg_at(peer, imported.seg());
      }
      if (view.ok() && imported.ok()) {
        board[0] = 1;
        for (int k = 0; k < kAccesses; ++k) access(random, view.at());
        seg_dt(peer, imported.seg(), view.at());
      }
      if (imported.ok()) seg_rm(peer, imported.seg());
      // What is honest is as it was.
      const Access access = load(peer, good.at);
      CHECK(access.cause() == Fault::kNone);
      CHECK(access.value >= last);
      last = access.value;
      const FalseReport report = serving.finish();
      welcomed += report.welcomed;
      requests += report.requests;
      lies += report.lies;
    }
    const Traffic seen = sharing.finish();
    CHECK(seen.failures == 0);
    CHECK(welcomed > 0);
    CHECK(requests > 0);
    CHECK(lies > 0);
    liar.kill();
    // What it left unanswered is over once it is dead, and told once.
    Board failures(cluster);
    CHECK(start_patient_barrier(peer, failures).get(60).ok());
    CHECK(publish(peer, good.at + 8, 5));
    CHECK(load(other, others.at + 8).value == 5);
    CHECK(load(home, exported.at).value == seen.rounds);
    CHECK(load(peer, good.at).value == seen.rounds);
  }

  void access(std::mt19937_64& random, uint64_t view) {
    const uint64_t at = view + random() % (kSize / kPage) * kPage;
    switch (random() % 4) {
      case 0:
        load(peer, at);
        break;
      case 1:
        store(peer, at, 1);
        break;
      case 2:
        atm_cas(peer, at, 0, 1);
        break;
      default:
        peer.run(
            [](uint64_t address) {
              void* line = reinterpret_cast<void*>(address);
              auto body = [&] { CMIFN(ctxt(), 10, cflush)(ctxt(), &line, 1); };
              return guarded(body);
            },
            at);
        break;
    }
  }

  Cluster cluster;
  Process &home, &peer, &other, &liar;
  Board board;
  const Export exported;
  const Import good, others;
  uint64_t welcomed = 0, requests = 0, lies = 0;
};

TEST_SUITE("liar") {
  TEST_CASE("a_home_whose_answers_lie_does_its_importers_no_harm") {
    Scene scene;
    scene.bear(HomeLie::kReplies, 1);
  }
  TEST_CASE("a_home_whose_notifications_lie_does_its_importers_no_harm") {
    Scene scene;
    scene.bear(HomeLie::kNotifications, 2);
  }
  TEST_CASE("a_home_that_answers_what_nobody_asked_does_its_importers_no_harm") {
    Scene scene;
    scene.bear(HomeLie::kUnasked, 3);
  }
  TEST_CASE("a_resume_of_what_was_not_quiesced_is_no_event") {
    Scene scene;
    const FalseSegment segment =
        scene.liar.run([](Flat honest, size_t size) { return open_false_home(honest, size); },
                       scene.exported.handle, kSize);
    auto serving = scene.liar.start(
        [](Board::Name name, Flat honest) {
          return serve_falsely(HomeLie::kResumes, 5, name, honest);
        },
        scene.board.name(), scene.exported.handle);
    REQUIRE(seg_imp(scene.peer, segment.handle).ok());
    scene.board[0] = 1;
    CHECK(await_happening(scene.peer).type == CMI_EVENT_QUIESCE);
    CHECK(await_happening(scene.peer).type == CMI_EVENT_RESUME);
    CHECK(types_waiting(scene.peer) == "");
    CHECK(serving.finish().lies > 0);
  }
  TEST_CASE("a_store_for_which_the_home_has_no_page_ends_in_time") {
    Scene scene;
    const auto open = [&] {
      return scene.liar.run([](Flat honest, size_t size) { return open_false_home(honest, size); },
                            scene.exported.handle, kSize);
    };
    open();  // a client-consistent one
    const FalseSegment segment = open();
    auto serving = scene.liar.start(
        [](Board::Name name, Flat honest) {
          return serve_falsely(HomeLie::kNoPages, 6, name, honest);
        },
        scene.board.name(), scene.exported.handle);
    const Answer imported = seg_imp(scene.peer, segment.handle);
    REQUIRE(imported.ok());
    set_token(scene.peer, imported.seg(), segment.token);
    const Answer view = seg_at(scene.peer, imported.seg());
    REQUIRE(view.ok());
    CHECK(store(scene.peer, view.at(), 1).cause() == Fault::kNone);
    scene.board[0] = 1;
    CHECK(store(scene.peer, view.at() + 4 * kPage, 1).cause() == CMI_ERROR_TRANSIENT);
    scene.board[0] = 0;
    CHECK(store(scene.peer, view.at() + 4 * kPage, 1).cause() == Fault::kNone);
    CHECK(serving.finish().lies > 0);
  }
  TEST_CASE("a_home_that_leaves_questions_unanswered_does_its_importers_no_harm") {
    Scene scene;
    scene.bear(HomeLie::kSilent, 4);
  }
}

}  // namespace

}  // namespace cmi::test::lying_home_test

// A peer that lies: the home neither crashes nor does anything that the liar's tokens do not allow,
// and goes on serving the others. CMI_TEST_SEED plays one seed again; each case prints its own
// where it fails.
#include "fault/liar.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

namespace cmi::test {

namespace {

constexpr size_t kSize = 24 * kPage;
constexpr uint64_t kCanary = 0x1111111111111111;

uint64_t seed_of_case(uint64_t usual) {
  const char* text = std::getenv("CMI_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : usual;
}

bool fill(Process& process, uint64_t at, uint64_t word) {
  return process.run(
      [](uint64_t address, uint64_t value) {
        for (uint64_t i = 0; i < kSize; i += 8) {
          if (store64(address + i, value).cause() != Fault::kNone) return false;
        }
        return CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0;
      },
      at, word);
}

uint64_t changed_words(Process& process, uint64_t at) {
  return process.run(
      [](uint64_t address) {
        uint64_t changed = 0;
        for (uint64_t i = 0; i < kSize; i += 8) changed += load64(address + i).value != kCanary;
        return changed;
      },
      at);
}

struct Traffic {
  uint64_t rounds, failures;
};

// A home with four segments, and two importers that share one of them while a third peer lies.
struct Scene {
  Scene()
      : home(cluster.spawn("home")),
        writer(cluster.spawn("writer")),
        reader(cluster.spawn("reader")),
        liar(cluster.spawn_bare("liar")),
        closed(export_segment(home, kSize)),
        readable(export_segment(home, kSize, CMI_ACC_READ)),
        writable(export_segment(home, kSize)),
        shared(export_segment(home, kSize)) {
    for (const Export* e : {&closed, &readable, &writable}) REQUIRE(fill(home, e->at, kCanary));
    written = import_segment(writer, shared);
    read = import_segment(reader, shared);
    guarded = import_segment(reader, closed);
    REQUIRE(load(reader, guarded.at).value == kCanary);
  }

  void bear(Lie lie, uint32_t count, uint64_t usual_seed) {
    const uint64_t seed = seed_of_case(usual_seed);
    CAPTURE(seed);
    Order order;
    order.lie = lie;
    order.count = count;
    order.seed = seed;
    order.readable = readable.handle;
    order.readable_token = readable.token;
    order.writable = writable.handle;
    order.writable_token = writable.token;
    order.closed = closed.handle;
    order.other = export_segment(reader, kPage).handle;

    auto writing = writer.start(
        [](uint64_t at) {
          Traffic seen{0, 0};
          while (!called_back() || seen.rounds < 50) {
            ++seen.rounds;
            seen.failures += store64(at, seen.rounds).cause() != Fault::kNone;
            seen.failures += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
          }
          return seen;
        },
        written.at);
    auto reading = reader.start(
        [](uint64_t at) {
          Traffic seen{0, 0};
          uint64_t last = 0;
          while (!called_back() || seen.rounds < 50) {
            ++seen.rounds;
            const Access access = load64(at);
            seen.failures += access.cause() != Fault::kNone || access.value < last;
            last = access.value;
          }
          return seen;
        },
        read.at);
    report = liar.start([](Order o) { return tell_lies(o); }, order).get(90);
    const Traffic wrote = writing.finish(), saw = reading.finish();
    CHECK(report.entered);
    CHECK(report.sent > 0);
    CHECK(wrote.failures == 0);
    CHECK(saw.failures == 0);
    CHECK(load(reader, read.at).value == wrote.rounds);
    CHECK(load(home, shared.at).value == wrote.rounds);
    // Nothing was stored that the tokens do not allow, in the home's memory or in others' caches.
    CHECK(changed_words(home, closed.at) == 0);
    CHECK(changed_words(home, readable.at) == 0);
    CHECK(changed_words(reader, guarded.at) == 0);
    liar.kill();
    // The home goes on serving those who are there, and those who come.
    CHECK(publish(writer, written.at + 8, 5));
    CHECK(load(reader, read.at + 8).value == 5);
    CHECK(publish(home, closed.at, 6));
    CHECK(load(reader, guarded.at).value == 6);
  }

  uint64_t dropped() {
    return home.run([] { return stats().messages_dropped; });
  }
  void welcome_a_newcomer() {
    Process& late = cluster.spawn("late");
    CHECK(load(late, import_segment(late, closed).at).value == 6);
  }

  Cluster cluster;
  Process &home, &writer, &reader, &liar;
  const Export closed, readable, writable, shared;
  Import written, read, guarded;
  Report report;
};

TEST_SUITE("liar") {
  TEST_CASE("random_bytes_do_no_harm") {
    Scene scene;
    scene.bear(Lie::kGarbage, 3000, 1);
    CHECK(scene.dropped() > 0);
    scene.welcome_a_newcomer();
  }
  TEST_CASE("damaged_frames_do_no_harm") {
    Scene scene;
    scene.bear(Lie::kFrames, 6000, 2);
    CHECK(scene.dropped() > 0);
    scene.welcome_a_newcomer();
  }
  TEST_CASE("requests_whose_fields_lie_do_no_harm") {
    for (uint64_t seed = 3; seed < 6; ++seed) {
      Scene scene;
      scene.bear(Lie::kRequests, 8000, seed);
      CHECK(scene.report.answers > 1000);
      CHECK(scene.report.good > 0);
      // What it may store it does: the lies above come as far as that.
      CHECK(changed_words(scene.home, scene.writable.at) > 0);
      scene.welcome_a_newcomer();
    }
  }
  TEST_CASE("numbers_from_the_past_and_from_far_ahead_do_no_harm") {
    Scene scene;
    scene.bear(Lie::kReplays, 8000, 7);
    scene.welcome_a_newcomer();
  }
  TEST_CASE("messages_of_a_life_that_is_over_do_no_harm") {
    Scene scene;
    scene.bear(Lie::kOldLife, 3000, 8);
    CHECK(scene.report.good <= 2);  // its two tokens: nothing after that was in force
    CHECK(scene.dropped() > 0);
    scene.welcome_a_newcomer();
  }
  TEST_CASE("acknowledgements_of_what_others_were_told_do_no_harm") {
    Scene scene;
    scene.bear(Lie::kAcks, 8000, 9);
    CHECK(scene.dropped() > 0);
    scene.welcome_a_newcomer();
  }
  TEST_CASE("hundreds_of_first_contacts_neither_stop_service_nor_keep_newcomers_out") {
    Scene scene;
    scene.bear(Lie::kHellos, 260, 11);
    CHECK(scene.report.welcomes > 100);
    // Those who never presented a token make room for who does.
    scene.welcome_a_newcomer();
  }
  TEST_CASE("messages_without_the_secret_do_no_harm") {
    Scene scene;
    scene.bear(Lie::kStrangers, 8000, 10);
    CHECK(scene.dropped() > 0);
    scene.welcome_a_newcomer();
  }
}

}  // namespace

}  // namespace cmi::test

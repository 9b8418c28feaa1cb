// A peer that lies: the home neither crashes nor does anything that the liar's tokens do not allow,
// and goes on serving the others. CMI_TEST_SEED plays one seed again; each case prints its own
// where it fails.
#include "fault/liar.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>

#include "support/long_run.hpp"
#include "system/happenings.hpp"

namespace cmi::test::liar_test {

namespace {

constexpr size_t kSize = 24 * kPage;
constexpr uint64_t kCanary = 0x1111111111111111;
constexpr useconds_t kRest = 100;  // between two accesses of those who work while others lie

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
            ::usleep(kRest);
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
            ::usleep(kRest);
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
    for (uint64_t seed = 3; seed < (long_run() ? 6 : 4); ++seed) {
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
  TEST_CASE("acknowledgements_of_others_notifications_do_no_harm") {
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
  // Of an import it can say that it has ended, not of the home whose name it bears.
  TEST_CASE("who_takes_the_name_of_a_home_cannot_end_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& reader = cluster.spawn("reader");
    Process& liar = cluster.spawn_bare("liar");
    const Export exported = export_segment(home, kSize), others = export_segment(reader, kSize);
    REQUIRE(fill(home, exported.at, kCanary));
    const Import read = import_segment(reader, exported);
    REQUIRE(load(reader, read.at).value == kCanary);
    Order order;
    order.lie = Lie::kImpostor;
    order.count = 1;
    order.readable = order.writable = order.closed = others.handle;
    order.readable_token = order.writable_token = others.token;
    order.other = exported.handle;
    const Report report = liar.start([](Order o) { return tell_lies(o); }, order).get(30);
    CHECK(report.entered);
    CHECK(report.believed);
    CHECK(await_happening(reader).type == CMI_EVENT_RCTXT_DOWN);  // the liar's own end
    CHECK(changed_words(reader, read.at) == 0);
    CHECK(publish(home, exported.at, 5));
    CHECK(load(reader, read.at).value == 5);
    CHECK(types_waiting(reader).empty());
  }
  // What it is told is kept until it answers, and its death is an hour away.
  TEST_CASE("who_never_answers_and_makes_the_home_tell_it_more_and_more_is_cut_off") {
    Cluster cluster;
    Process& home = cluster.spawn("home", {{"CMI_DEAD_AFTER", "3600000"}});
    Process& peer = cluster.spawn("peer");
    Process& liar = cluster.spawn_bare("liar");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).value == 0);
    Order order;
    order.lie = Lie::kDeaf;
    order.count = 100000;
    order.readable = order.writable = order.closed = order.other = exported.handle;
    order.readable_token = order.writable_token = exported.token;
    [[maybe_unused]] auto lying = liar.start([](Order o) { return tell_lies(o); }, order);
    CHECK(await_happening(home).type == CMI_EVENT_RCTXT_DOWN);
    CHECK(publish(home, exported.at, 7));
    CHECK(load(peer, import.at).value == 7);
    CHECK(publish(peer, import.at, 8));
    CHECK(load(home, exported.at).value == 8);
    liar.kill();
  }
  // Who is told of pages in flux may need others before it can answer; that is no excuse for ever.
  TEST_CASE("who_never_hears_of_pages_in_flux_does_not_keep_the_home_from_going_on") {
    Cluster cluster;
    Process& home = cluster.spawn("home", {{"CMI_DEAD_AFTER", "2000"}});
    // Its store is not published before it is killed.
    Process& victim = cluster.spawn("victim", {{"CMI_FAULT_POINT", "no_aging=fail"}});
    // Hears of all that the liar announces, and takes so long that one is always under way.
    Process& holder =
        cluster.spawn("holder", {{"CMI_FAULT_POINT", "invalidate_before_ack=delay:10000"}});
    Process& liar = cluster.spawn_bare("liar");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(victim, exported);
    auto holding = holder.start(
        [](uint64_t at) {
          uint64_t failures = 0;
          for (; !called_back(); ::usleep(kRest)) failures += load64(at).cause() != Fault::kNone;
          return failures;
        },
        import_segment(holder, exported).at + 6 * kPage);
    Order order;
    order.lie = Lie::kExcuses;
    order.count = 10000;
    order.readable = order.writable = order.closed = order.other = exported.handle;
    order.readable_token = order.writable_token = exported.token;
    Board board(cluster);
    order.board = board.name();
    [[maybe_unused]] auto lying = liar.start([](Order o) { return tell_lies(o); }, order);
    REQUIRE(board.reaches(0, 4));  // two tokens and two announcements
    REQUIRE(store(victim, import.at, 7).cause() == Fault::kNone);
    const Flat address = node_address(victim);
    victim.kill();
    // Once the liar has lost its turn, and has ended, too.
    int told = 0;
    for (int end = 0; end < 2; ++end) {
      const Happening down = await_happening(home);
      CHECK(down.type == CMI_EVENT_RCTXT_DOWN);
      told += down.names(0, address);
    }
    CHECK(told == 1);
    CHECK(load(home, exported.at).cause() == CMI_ERROR_CONSIST);
    CHECK(holding.finish() == 0);
    liar.kill();
  }
  TEST_CASE("messages_without_the_secret_do_no_harm") {
    Scene scene;
    scene.bear(Lie::kStrangers, 8000, 10);
    CHECK(scene.dropped() > 0);
    scene.welcome_a_newcomer();
  }
}

}  // namespace

}  // namespace cmi::test::liar_test

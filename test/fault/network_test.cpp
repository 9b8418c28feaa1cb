// What cables and lost packets do: accesses, barriers and swaps of a node that is cut off, and of
// those that are not. Cuts end before anybody is declared dead unless the case says otherwise; a
// case waits for what a process has come to, never for time.
#include "fault/network.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "fault/board.hpp"
#include "fault/patience.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"

namespace cmi::test::network_test {

namespace {

constexpr uint64_t kPages = 16;
constexpr size_t kRegion = 2u << 20;  // what the home knows of importers one by one

// An importer on one side of a partition, which has a page cached, and all the others on the other.
struct Parting {
  Parting(Cluster& cluster, Network& net, const Env& env)
      : home(spawn(cluster, net, "home", env)),
        cut(spawn(cluster, net, "cut", env)),
        other(spawn(cluster, net, "other", env)),
        exported(export_consistent(home, 4 * kRegion)),
        held(import_segment(cut, exported)),
        import(import_segment(other, exported)) {
    REQUIRE(publish(home, exported.at, 1));
    REQUIRE(load(cut, held.at).value == 1);
    net.part({"home", "other"}, {"cut"});
  }
  static Process& spawn(Cluster& cluster, Network& net, const char* node, const Env& env) {
    net.join(node);
    return cluster.spawn(node, env);
  }
  // What the one that is cut off does not hold is shared as ever.
  void share_on() {
    for (uint64_t round = 1; round <= 20; ++round) {
      CHECK(publish(other, import.at + kRegion, round));
      CHECK(load(home, exported.at + kRegion).value == round);
      CHECK(publish(home, exported.at + kRegion, round + 100));
      CHECK(load(other, import.at + kRegion).value == round + 100);
    }
  }

  Process &home, &cut, &other;
  const Export exported;
  const Import held, import;
};

// A map that nobody asked for, of one peer.
void check_cut(const Happening& map, const Flat& peer) {
  CHECK(map.type == CMI_EVENT_CMAP);
  CHECK(map.request == 0);
  CHECK(map.n == 1);
  CHECK(map.names(0, peer));
}
void check_end(const Happening& end, int type, const Flat& peer, cmi_seg seg) {
  CHECK(end.type == type);
  CHECK(end.names(0, peer));
  CHECK(end.segments() == std::vector<cmi_seg>{seg});
}

// The peer loads the page, what the home sends is lost from then on, and the peer stores. Between
// the load and the cut a notification of an earlier store, told twice, may take the page: then the
// store raises and has stored nothing, and all of it is done again.
bool store_unanswered(Network& net, Process& peer, uint64_t at, uint64_t value) {
  const Deadline deadline = Deadline::in(20 * kSecond);
  do {
    net.heal();
    if (load(peer, at).cause() != Fault::kNone) continue;
    net.drop("home", "peer");
    if (store(peer, at, value).cause() == Fault::kNone) return true;
  } while (!deadline.passed());
  return false;
}

// In the child: how the call that ends something ended, and when.
struct Ended {
  Answer answer;
  Nanos at = 0;
};
enum class Ends : uint8_t { kToken, kSegment, kBreak };
constexpr const char* kNames[] = {"tok_del", "CMI_SEG_RM", "CMI_SEG_BRK"};

Pending<Ended> start_ending(Process& home, Ends what, const Export& exported) {
  return home.start(
      [](Ends ends, cmi_seg seg, Flat token) {
        int result = 0;
        cmi_ds ds{};
        ds.brk.seg_brksz = kPage;
        if (ends == Ends::kToken) {
          result = CMIFN(ctxt(), 10, tok_del)(ctxt(), token.as<cmi_token>());
        } else {
          const int32_t cmd = ends == Ends::kSegment ? CMI_SEG_RM : CMI_SEG_BRK;
          result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, cmd, &ds);
        }
        return Ended{answer(result, result != 0), now()};
      },
      what, exported.seg, exported.token);
}

// What the process has computed so far.
Nanos processor_time(Process& process) {
  return process.run([] {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * kSecond + t.tv_nsec;
  });
}

// Loads one word until that raises something; words[0]: when the last good load began.
Pending<int> start_reading(Process& peer, const Board& board, uint64_t at) {
  return peer.start(
      [](Board::Name name, uint64_t address) {
        Board::Word* const last = Board::open(name);
        for (const Deadline deadline = Deadline::in(60 * kSecond); !deadline.passed();) {
          const Nanos begun = now();
          const Access access = load64(address);
          if (access.cause() != Fault::kNone) return access.cause();
          last->store(static_cast<uint64_t>(begun));
          ::usleep(100);  // it lasts for seconds
        }
        return Fault::kNone;
      },
      board.name(), at);
}

// An importer that reads a page it has cached all the time, behind a cable that is pulled.
struct Reading {
  Reading(Cluster& cluster, Network& net, Ends what, const Env& env)
      : home(spawn(cluster, net, "home", env)),
        peer(spawn(cluster, net, "peer", env)),
        exported(export_segment(home, 4 * kPage, kAllRights,
                                what == Ends::kBreak ? CMI_SEG_EXTENSIBLE : 0)),
        board(cluster) {
    if (what == Ends::kBreak) REQUIRE(seg_brk(home, exported.seg, 4 * kPage).ok());
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at + 2 * kPage).cause() == Fault::kNone);
    reading.emplace(start_reading(peer, board, import.at + 2 * kPage));
    REQUIRE(board.reaches(0, 1));
    net.pull("peer");
    pulled = now();
  }
  static Process& spawn(Cluster& cluster, Network& net, const char* node, const Env& env) {
    net.join(node);
    return cluster.spawn(node, env);
  }
  // Whether the page was read after the call had returned.
  bool read_after(const Ended& ended) {
    CHECK(reading->get(60) != Fault::kNone);
    const auto last = static_cast<Nanos>(board[0].load());
    CHECK(last > pulled);  // or there was nothing to end
    return last > ended.at;
  }

  Process &home, &peer;
  const Export exported;
  Board board;
  std::optional<Pending<int>> reading;
  Nanos pulled = 0;
};

// Each call that ends something returns 0, and the page is read after that, or is not.
void check_reading_after_the_end(bool read, const char* faults) {
  for (const Ends what : {Ends::kToken, Ends::kSegment, Ends::kBreak}) {
    CAPTURE(kNames[static_cast<int>(what)]);
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    Reading s(cluster, net, what,
              {{"CMI_TEST_DEFAULT_TIMEOUT", "1"},
               {"CMI_DEAD_AFTER", "6000"},
               {"CMI_FAULT_POINT", faults}});
    const Ended ended = start_ending(s.home, what, s.exported).get(60);
    CHECK_MESSAGE(ended.answer.ok(), ended.answer);
    CHECK(s.read_after(ended) == read);
  }
}

TEST_SUITE("network") {
  TEST_CASE("what_a_call_has_ended_is_read_by_nobody_when_it_returns_0_behind_a_cut_either") {
    check_reading_after_the_end(false, "");
  }

  TEST_CASE("what_a_call_has_ended_is_read_on_when_it_waits_for_no_verdict") {
    check_reading_after_the_end(true, "mutate_end_before_verdict=fail");
  }

  TEST_CASE("a_call_that_ends_before_the_reading_says_so_and_once_more_waits_for_the_rest") {
    for (const Ends what : {Ends::kToken, Ends::kSegment, Ends::kBreak}) {
      CAPTURE(kNames[static_cast<int>(what)]);
      Cluster cluster;
      Network net(cluster);
      if (!net.here()) return skip(net.reason());
      // The client has a timeout of its own.
      Reading s(cluster, net, what, {{"CMI_DEAD_AFTER", "8000"}});
      const Nanos worked = processor_time(s.home);
      Ended ended = start_ending(s.home, what, s.exported).get(60);
      CHECK_MESSAGE(ended.answer.failed(CMI_ERR_RECONFIG), ended.answer);
      const Deadline deadline = Deadline::in(40 * kSecond);
      while (ended.answer.failed(CMI_ERR_RECONFIG) && !deadline.passed()) {
        ended = start_ending(s.home, what, s.exported).get(60);
      }
      CHECK_MESSAGE(ended.answer.ok(), ended.answer);
      CHECK_FALSE(s.read_after(ended));
      // Messages that cannot be sent keep no processor busy meanwhile.
      CHECK(processor_time(s.home) - worked < (ended.at - s.pulled) / 5);
    }
  }

  TEST_CASE("a_load_behind_a_pulled_cable_raises_transient_and_succeeds_when_it_is_back") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at, 5));
    REQUIRE(publish(home, exported.at + kPage, 6));
    REQUIRE(load(peer, import.at).value == 5);
    for (const char* cable : {"home", "peer"}) {
      CAPTURE(cable);
      Board board(cluster);
      const uint64_t at = import.at + (cable[0] == 'h' ? 1 : 2) * kPage;
      net.pull(cable);
      auto loading = start_patient_load(peer, board, at);
      CHECK(board.reaches(0, 1));
      net.plug(cable);
      const Access access = loading.get();
      CHECK(access.value == (cable[0] == 'h' ? 6 : 0));
      CHECK(access.fault.error == CMI_ERROR_TRANSIENT);
      CHECK(access.fault.address == at);
      CHECK(access.fault.id == import.seg);
    }
    CHECK(publish(peer, import.at, 7));
    CHECK(load(home, exported.at).value == 7);
  }

  TEST_CASE("what_is_cached_is_read_while_the_cable_is_pulled") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(store_pages(home, exported.at, kPages, 100) == 0);
    REQUIRE(wmb(home).ok());
    REQUIRE(wrong_pages(peer, import.at, kPages, 100) == 0);
    net.pull("peer");
    CHECK(wrong_pages(peer, import.at, kPages, 100) == 0);
    net.plug("peer");
  }

  TEST_CASE("stores_done_during_a_cut_shorter_than_the_verdict_all_arrive") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home, 2 * kRegion);
    const Import import = import_segment(peer, exported);
    REQUIRE(wrong_pages(peer, import.at, kPages, 0) == static_cast<int>(kPages) - 1);
    net.pull("peer");
    CHECK(store_pages(peer, import.at, kPages, 1000) == 0);
    SUBCASE("a cut that no access notices") {
      Board board(cluster);
      auto barrier = start_patient_barrier(peer, board);
      net.plug("peer");
      const Answer last = barrier.get();
      CHECK_MESSAGE(last.ok(), last);
      CHECK(board[0] == 0);
    }
    SUBCASE("a cut that is longer than the reconfiguration timeout") {
      Board board(cluster);
      auto loading = start_patient_load(peer, board, import.at + kRegion);
      CHECK(board.reaches(0, 1));
      net.plug("peer");
      CHECK(loading.get().value == 0);
      CHECK(wmb(peer).ok());
    }
    CHECK(wrong_pages(home, exported.at, kPages, 1000) == 0);
    CHECK(wrong_pages(peer, import.at, kPages, 1000) == 0);
  }

  TEST_CASE("a_first_store_to_a_default_segment_waits_for_the_cut_to_heal") {
    // Client-inconsistent, as segments are by default: a page is stored to once its home knows.
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at + kPage).value == 0);
    REQUIRE(publish(peer, import.at, 1));
    net.pull("peer");
    Board board(cluster);
    auto storing = peer.start(
        [](Board::Name name, uint64_t at) {
          be_patient(Board::open(name));
          store64(at + kPage, 22);  // cached, and not marked
          store64(at + 2 * kPage, 33);
          store64(at, 11);
          set_on_fault(nullptr);
        },
        board.name(), import.at);
    CHECK(board.reaches(0, 1));
    CHECK(load(home, exported.at + kPage).value == 0);
    net.plug("peer");
    storing.get();
    CHECK(wmb(peer).ok());
    for (uint64_t page = 0; page < 3; ++page) {
      CHECK(load(home, exported.at + page * kPage).value == 11 * (page + 1));
      CHECK(load(peer, import.at + page * kPage).value == 11 * (page + 1));
    }
    CHECK(seg_check(home, exported.seg, exported.at, kPages * kPage).size == 0);
  }

  TEST_CASE("stores_to_a_default_segment_behind_a_cut_that_does_not_heal_are_in_flux") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    const Env verdict{{"CMI_DEAD_AFTER", "2000"}};
    Process& home = cluster.spawn("home", verdict);
    // What it stores stays there: the write-back never leaves.
    Process& peer = cluster.spawn("peer", {verdict[0], {"CMI_FAULT_POINT", "no_aging=fail"}});
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(peer, import.at, 1));
    REQUIRE(store(peer, import.at + 3 * kPage, 33).cause() == Fault::kNone);
    net.pull("peer");
    // Marked: it is stored to on, and nobody asks the home.
    CHECK(store(peer, import.at + 3 * kPage + 8, 34).cause() == Fault::kNone);
    CHECK(store(peer, import.at + 4 * kPage, 44).cause() == CMI_ERROR_TRANSIENT);
    const auto ends = [](Process& process, uint64_t at, int cause) {
      const Deadline deadline = Deadline::in(20 * kSecond);
      int last;
      do last = load(process, at).cause();
      while (last != cause && !deadline.passed());
      return last == cause;
    };
    CHECK(ends(peer, import.at, CMI_ERROR_SINVAL));
    CHECK(ends(home, exported.at + 3 * kPage, CMI_ERROR_CONSIST));
    CHECK(load(home, exported.at).value == 1);
    CHECK(load(home, exported.at + 4 * kPage).value == 0);
    CHECK(wmb(peer).failed(CMI_ERR_STORE));
    CHECK(seg_reco(home, exported.seg, exported.at, kPages * kPage).ok());
    CHECK(load(home, exported.at + 3 * kPage).value == 0);
  }

  TEST_CASE("a_store_whose_answer_was_lost_does_not_come_back_over_a_newer_one") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    for (const char* node : {"home", "peer", "other"}) net.join(node);
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& other = cluster.spawn("other");
    const Export exported = export_consistent(home, 2 * kRegion);
    const Import import = import_segment(peer, exported);
    const Import newer = import_segment(other, exported);
    const uint64_t word = kRegion + 8;
    for (uint64_t round = 1; round <= 3; ++round) {
      CAPTURE(round);
      Board board(cluster);
      REQUIRE(store_unanswered(net, peer, import.at + word, 10 * round));
      auto barrier = start_patient_barrier(peer, board);
      CHECK(arrives(home, exported.at + word, 10 * round));
      // The newer store is in the home's memory before its barrier ends, which waits for the peer.
      Board ignored(cluster);
      REQUIRE(store(other, newer.at + word, 10 * round + 1).cause() == Fault::kNone);
      auto overwritten = start_patient_barrier(other, ignored);
      CHECK(arrives(home, exported.at + word, 10 * round + 1));
      net.heal();
      CHECK(barrier.get().ok());
      CHECK(overwritten.get().ok());
      CHECK(wmb(peer).ok());
      CHECK(load(home, exported.at + word).value == 10 * round + 1);
      CHECK(load(peer, import.at + word).value == 10 * round + 1);
    }
  }

  TEST_CASE("stores_arrive_although_what_the_importer_sends_was_lost_for_a_while") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home, 2 * kRegion);
    const Import import = import_segment(peer, exported);
    REQUIRE(wrong_pages(peer, import.at, kPages, 0) == static_cast<int>(kPages) - 1);
    Board board(cluster);
    net.drop("peer", "home");
    CHECK(store_pages(peer, import.at, kPages, 50) == 0);
    auto loading = start_patient_load(peer, board, import.at + kRegion);
    CHECK(board.reaches(0, 1));
    CHECK(load(home, exported.at).value == 0);
    net.heal();
    CHECK(loading.get().cause() == CMI_ERROR_TRANSIENT);
    CHECK(wmb(peer).ok());
    CHECK(wrong_pages(home, exported.at, kPages, 50) == 0);
  }

  TEST_CASE("swaps_take_effect_once_although_their_answers_were_lost_for_a_while") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    net.join("home");
    net.join("peer");
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    Board board(cluster);  // 0: swaps that succeeded, 1: calls that raised or failed, 2: enough
    auto counting = peer.start(
        [](Board::Name name, uint64_t at) {
          Board::Word* board_words = Board::open(name);
          uint64_t seen = 0;
          while (board_words[2] == 0) {
            uint64_t old = 0;
            int result = -1;
            auto body = [&] {
              result = CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), seen,
                                                  seen + 1, &old);
            };
            if (guarded(body).cause() != Fault::kNone || result != 0) {
              board_words[1].fetch_add(1);
            } else if (old == seen) {
              ++seen;
              board_words[0].fetch_add(1);
            } else {
              seen = old;
            }
          }
        },
        board.name(), import.at);
    CHECK(board.reaches(0, 5));
    net.drop("home", "peer");
    CHECK(board.reaches(1, 1));
    net.heal();
    CHECK(board.reaches(0, board[0] + 5));
    board[2] = 1;
    counting.get();
    const uint64_t succeeded = board[0], unknown = board[1];
    const uint64_t value = load(home, exported.at).value;
    CHECK(value >= succeeded);
    CHECK(value <= succeeded + unknown);
  }

  TEST_CASE("loads_from_a_healthy_home_go_on_while_the_cable_of_another_is_pulled") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    for (const char* node : {"lost", "healthy", "peer"}) net.join(node);
    // However long the rounds take on a busy machine, nobody is declared dead for them.
    const Env patient{{"CMI_DEAD_AFTER", "60000"}};
    Process& lost = cluster.spawn("lost", patient);
    Process& healthy = cluster.spawn("healthy");
    Process& peer = cluster.spawn("peer", patient);
    const Export far = export_consistent(lost, kPages * kPage);
    const Export near = export_consistent(healthy, 16 * kRegion);
    REQUIRE(publish(lost, far.at + 3 * kPage, 9));
    REQUIRE(publish(healthy, near.at, 1));
    const Import cut = import_segment(peer, far);
    const Import good = import_segment(peer, near);
    REQUIRE(load(peer, cut.at).cause() == Fault::kNone);
    Board board(cluster);
    net.pull("lost");
    // One thread waits for the home that is cut off, and tries again and again; this one goes on.
    struct Seen {
      uint64_t rounds, failures, value;
    };
    auto working = peer.start(
        [](Board::Name name, uint64_t cut_at, uint64_t good_at) {
          Board::Word* words = Board::open(name);
          be_patient(words);
          static std::atomic<uint64_t> value;
          value = 0;
          std::atomic<bool> back{false};
          std::thread waiter([&] {
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
            value = load64(cut_at + 3 * kPage).value;
            CMIFN(ctxt(), 10, fini)(ctxt());
            back = true;
          });
          Seen seen{};
          // Page after page that is not cached, and a barrier: until the other thread is through.
          while (!back.load()) {
            const uint64_t at = good_at + seen.rounds++ % (8 * kRegion / kPage) * kPage;
            seen.failures += load64(at).cause() != Fault::kNone;
            seen.failures += store64(at + 8, seen.rounds).cause() != Fault::kNone;
            seen.failures += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
            words[1].store(seen.rounds);
          }
          waiter.join();
          set_on_fault(nullptr);
          seen.value = value.load();
          return seen;
        },
        board.name(), cut.at, good.at);
    CHECK(board.reaches(0, 1));
    const uint64_t then = board[1];
    CHECK(board.reaches(1, then + 50));
    // The wait is not over: those rounds went by beside it.
    CHECK(board.reaches(0, 2));
    net.plug("lost");
    const Seen seen = working.get();
    CHECK(seen.failures == 0);
    CHECK(seen.value == 9);
  }

  TEST_CASE("others_go_on_and_learn_of_nothing_while_an_importer_is_parted_from_all") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    Parting p(cluster, net, {});
    p.share_on();
    // What it holds: the barrier waits for it, for no longer than it takes to be declared dead.
    Board board(cluster);
    REQUIRE(store(p.other, p.import.at, 2).cause() == Fault::kNone);
    auto barrier = start_patient_barrier(p.other, board);
    CHECK(arrives(p.home, p.exported.at, 2));
    net.heal();
    CHECK(barrier.get().ok());
    CHECK(load(p.cut, p.held.at).value == 2);
    CHECK(publish(p.cut, p.held.at, 3));
    CHECK(load(p.home, p.exported.at).value == 3);
    CHECK(load(p.other, p.import.at).value == 3);
  }

  TEST_CASE("a_partition_that_outlasts_the_verdict_costs_the_one_that_is_cut_off_alone") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    Parting p(cluster, net, {{"CMI_DEAD_AFTER", "3000"}});
    // Its own store, made on the other side, must not come after the verdict.
    CHECK(store(p.cut, p.held.at, 99).cause() == Fault::kNone);
    p.share_on();
    Board board(cluster);
    REQUIRE(store(p.other, p.import.at, 2).cause() == Fault::kNone);
    CHECK(start_patient_barrier(p.other, board).get().ok());
    CHECK(load(p.home, p.exported.at).value == 2);
    CHECK(publish(p.other, p.import.at, 4));
    net.heal();
    Board ignored(cluster);
    const Answer lost = start_patient_barrier(p.cut, ignored).get();
    CHECK(ignored[0] == 1);  // its store was lost, and it is told so once
    CHECK(lost.ok());
    CHECK(load(p.cut, p.held.at).cause() == CMI_ERROR_SINVAL);
    CHECK(load(p.home, p.exported.at).value == 4);
    CHECK(publish(p.other, p.import.at, 5));
    CHECK(load(p.home, p.exported.at).value == 5);
  }

  TEST_CASE("of_two_that_import_from_each_other_a_cut_is_told_once_and_each_end_once") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    const Env env{{"CMI_DEAD_AFTER", "3000"}};
    Process* const both[] = {&Parting::spawn(cluster, net, "left", env),
                             &Parting::spawn(cluster, net, "right", env)};
    const Flat at[] = {node_address(*both[0]), node_address(*both[1])};
    const Export exported[] = {export_consistent(*both[0], kPages * kPage),
                               export_consistent(*both[1], kPages * kPage)};
    const Import held[] = {import_segment(*both[0], exported[1]),
                           import_segment(*both[1], exported[0])};
    for (int i : {0, 1}) REQUIRE(load(*both[i], held[i].at).cause() == Fault::kNone);
    net.part({"left"}, {"right"});
    for (int i : {0, 1}) {
      const Deadline deadline = Deadline::in(kSeconds * kSecond);
      while (load(*both[i], held[i].at).cause() != CMI_ERROR_SINVAL) {
        REQUIRE_FALSE(deadline.passed());
      }
      check_cut(await_happening(*both[i]), at[1 - i]);
      Happening ends[] = {await_happening(*both[i]), await_happening(*both[i])};
      if (ends[1].type == CMI_EVENT_HCTXT_DOWN) std::swap(ends[0], ends[1]);
      check_end(ends[0], CMI_EVENT_HCTXT_DOWN, at[1 - i], held[i].seg);
      check_end(ends[1], CMI_EVENT_RCTXT_DOWN, at[1 - i], exported[i].seg);
      CHECK(types_waiting(*both[i]) == "");
    }
  }

  TEST_CASE("a_partition_that_outlasts_the_verdict_is_told_on_both_sides_causes_first") {
    Cluster cluster;
    Network net(cluster);
    if (!net.here()) return skip(net.reason());
    Env env{{"CMI_DEAD_AFTER", "3000"}};
    Process& home = Parting::spawn(cluster, net, "home", env);
    Process& other = Parting::spawn(cluster, net, "other", env);
    // The one that is cut off has an endpoint for each home, and none to replace one that stalls.
    env.emplace_back("CMI_FAULT_POINT", "no_aging=fail;link_no_endpoint#3+=fail");
    Process& cut = Parting::spawn(cluster, net, "cut", env);
    const Flat home_at = node_address(home), other_at = node_address(other);
    const Flat cut_at = node_address(cut);
    const Export read = export_consistent(home, kPages * kPage);
    const Export stored = export_consistent(other, kPages * kPage);
    const Import held = import_segment(cut, read), written = import_segment(cut, stored);
    const Import near = import_segment(other, read);
    REQUIRE(load(cut, held.at).cause() == Fault::kNone);
    REQUIRE(load(cut, written.at).cause() == Fault::kNone);
    net.part({"home", "other"}, {"cut"});
    REQUIRE(store(cut, written.at, 99).cause() == Fault::kNone);
    CHECK(wmb(cut).failed(CMI_ERR_HW));
    const Deadline deadline = Deadline::in(kSeconds * kSecond);
    for (uint64_t at : {held.at, written.at}) {
      while (load(cut, at).cause() != CMI_ERROR_SINVAL) REQUIRE_FALSE(deadline.passed());
    }
    // All have come by now. The fault of this side, then the cut: of the home that only the cut
    // keeps away; then the ends of both.
    const Happening hw = await_happening(cut);
    CHECK(hw.type == CMI_EVENT_HW);
    CHECK(hw.seg == written.seg);
    CHECK(hw.lines() == std::vector<uint64_t>{written.at});
    check_cut(await_happening(cut), home_at);
    Happening ends[] = {await_happening(cut), await_happening(cut)};
    if (ends[1].names(0, home_at)) std::swap(ends[0], ends[1]);
    check_end(ends[0], CMI_EVENT_HCTXT_DOWN, home_at, held.seg);
    check_end(ends[1], CMI_EVENT_HCTXT_DOWN, other_at, written.seg);
    check_cut(await_happening(home), cut_at);
    check_end(await_happening(home), CMI_EVENT_RCTXT_DOWN, cut_at, read.seg);
    check_cut(await_happening(other), cut_at);
    check_end(await_happening(other), CMI_EVENT_RCTXT_DOWN, cut_at, stored.seg);
    // Each once, also when the way is free again; and those on one side go on sharing.
    net.heal();
    CHECK(publish(other, near.at, 2));
    CHECK(load(home, read.at).value == 2);
    CHECK(load(cut, held.at).cause() == CMI_ERROR_SINVAL);
    for (Process* process : {&home, &other, &cut}) CHECK(types_waiting(*process) == "");
  }
}

}  // namespace

}  // namespace cmi::test::network_test

// Processes that are stopped and go on: for less than the verdict nothing is lost and nobody is
// declared dead; who goes on after its verdict changes nothing any more. In both cases what lay in
// sockets meanwhile never undoes what was stored later (rules 19 and 20 of the protocol).
#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "fault/patience.hpp"
#include "system/each_provider.hpp"
#include "system/happenings.hpp"

namespace cmi::test::stopped_test {

namespace {

constexpr uint64_t kPages = 64;  // of a run: more than one message takes

// A page of the home that the process has not cached, nor read ahead: a load of it tells when the
// home has been silent for the reconfiguration timeout.
uint64_t probe_of(Process& home, Process& process) {
  return import_segment(process, export_consistent(home, kPage)).at;
}

// Fills the pages with words whose every byte is `byte`.
int fill(Process& process, uint64_t at, uint64_t byte) {
  return process.run(
      [](uint64_t address, uint64_t word) {
        int raised = 0;
        for (uint64_t i = 0; i < kPages * kPage; i += 8) {
          raised += store64(address + i, word).cause() != Fault::kNone;
        }
        return raised;
      },
      at, byte * 0x0101010101010101);
}

// Words that are not that.
uint64_t others_than(Process& process, uint64_t at, uint64_t byte) {
  return process.run(
      [](uint64_t address, uint64_t word) {
        uint64_t others = 0;
        for (uint64_t i = 0; i < kPages * kPage; i += 8)
          others += load64(address + i).value != word;
        return others;
      },
      at, byte * 0x0101010101010101);
}

TEST_SUITE("stopped") {
  TEST_CASE("a_home_stopped_for_less_than_the_verdict_loses_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    const uint64_t probe = probe_of(home, peer);
    REQUIRE(store_pages(peer, import.at, kPages, 10) == 0);
    REQUIRE(wmb(peer).ok());
    home.stop();
    CHECK(store_pages(peer, import.at, kPages, 1000) == 0);
    Board board(cluster);
    auto loading = start_patient_load(peer, board, probe);
    CHECK(board.reaches(0, 1));
    home.signal(SIGCONT);
    CHECK(loading.get().value == 0);
    CHECK(wmb(peer).ok());
    CHECK(wrong_pages(home, exported.at, kPages, 1000) == 0);
    CHECK(wrong_pages(peer, import.at, kPages, 1000) == 0);
  }

  TEST_CASE("an_old_value_in_the_sockets_of_a_stopped_home_never_overwrites_a_newer_one") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& other = cluster.spawn("other");
    const Export exported = export_consistent(home, 2 * kPages * kPage);
    const Import import = import_segment(peer, exported);
    const Import second = import_segment(other, exported);
    REQUIRE(fill(peer, import.at, 1) == 0);
    REQUIRE(wmb(peer).ok());
    for (uint64_t round = 1; round <= 3; ++round) {
      CAPTURE(round);
      const uint64_t oldest = 16 * round, newer = oldest + 1, newest = oldest + 2;
      REQUIRE(fill(peer, import.at, oldest) == 0);
      const uint64_t probe = probe_of(home, peer);
      Board board(cluster);
      home.stop();
      // The run goes into the home's sockets. The load that waits beside it sees the link given up.
      auto writing = peer.start(
          [](Board::Name name, uint64_t address) {
            Board::Word* words = Board::open(name);
            be_patient(words);
            bool written = false;
            std::thread barrier([&] {
              CMIFN(ctxt(), 10, ini_th)(ctxt());
              for (uint64_t n = 0; n < kMostTries && !written; ++n) {
                written = CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0;
              }
              CMIFN(ctxt(), 10, fini)(ctxt());
            });
            const Access access = load64(address);
            set_on_fault(nullptr);
            barrier.join();
            return written && (access.cause() == Fault::kNone || access.fault.times < kMostTries);
          },
          board.name(), probe);
      CHECK(board.reaches(0, 1));
      home.signal(SIGCONT);
      // As soon as the home lives, another node overwrites it; then the peer does, over the new
      // link.
      CHECK(fill(other, second.at, newer) == 0);
      Board ignored(cluster);
      CHECK(start_patient_barrier(other, ignored).get().ok());
      CHECK(writing.get());
      CHECK(others_than(home, exported.at, oldest) + others_than(home, exported.at, newer) ==
            kPages * kPage / 8);
      CHECK(fill(peer, import.at, newest) == 0);
      CHECK(wmb(peer).ok());
      CHECK(others_than(home, exported.at, newest) == 0);
      // Whatever else comes through the old sockets would come by now.
      CHECK(publish(other, second.at + kPages * kPage, round));
      CHECK(publish(peer, import.at + kPages * kPage + 8, round));
      CHECK(others_than(home, exported.at, newest) == 0);
      CHECK(others_than(other, second.at, newest) == 0);
    }
  }

  // The same over each provider: the call says what it knows, and the swap is made once.
  TEST_CASE("a_swap_towards_a_silent_home_raises_transient_and_is_made_once") {
    with_each_provider([](Cluster& cluster, Process& home, Env env) {
      env.emplace_back("CMI_TEST_DEFAULT_TIMEOUT", "1");
      Process& peer = cluster.spawn("peer", env);
      const Export exported = export_segment(home, 4 * kPage);
      const Import import = import_segment(peer, exported);
      REQUIRE(load(peer, import.at).cause() == Fault::kNone);
      REQUIRE(peer.run([] {
        cmi_ctl_cfg cfg{};
        cfg.rcfg.rcfg_tout = 300;
        return CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_RECONF_TOUT, &cfg) == 0;
      }));
      Board board(cluster);
      home.stop();
      struct Swapped {
        Answer last;
        uint64_t old = 0;
        int cause = 0;  // of the last exception, which was returned from
      };
      // The handler returns once the home runs again: the same swap goes on.
      auto swapping = peer.start(
          [](Board::Name name, uint64_t at) {
            static Board::Word* words;
            words = Board::open(name);
            set_on_fault([](const Fault& fault) {
              if (fault.error != CMI_ERROR_TRANSIENT) return false;
              words[0].fetch_add(1);
              const Deadline deadline = Deadline::in(20 * kSecond);
              while (words[1].load() == 0 && !deadline.passed()) ::usleep(1000);
              return words[1].load() != 0;
            });
            uint64_t old = 77;
            Answer last;
            auto body = [&] {
              const int result =
                  CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), 0, 1, &old);
              last = answer(result, result == -1);
            };
            const int cause = guarded(body).cause();
            set_on_fault(nullptr);
            return Swapped{last, old, cause};
          },
          board.name(), import.at);
      CHECK(board.reaches(0, 1));
      home.signal(SIGCONT);
      board[1] = 1;
      const auto [last, old, cause] = swapping.get();
      CHECK_MESSAGE(last.ok(), last);
      CHECK(cause == CMI_ERROR_TRANSIENT);
      CHECK(old == 0);  // not what the swap itself has put there
      CHECK(load(home, exported.at).value == 1);
      CHECK(load(peer, import.at).value == 1);
    });
  }

  TEST_CASE("an_importer_stopped_for_less_than_the_verdict_loses_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& stopped = cluster.spawn("stopped");
    Process& other = cluster.spawn("other");
    const Export exported = export_consistent(home, kPages * kPage);
    const Import held = import_segment(stopped, exported);
    const Import import = import_segment(other, exported);
    for (uint64_t round = 1; round <= 3; ++round) {
      CAPTURE(round);
      // Its dirty pages, and one that it has cached, are waited for.
      REQUIRE(load(stopped, held.at + 8).cause() == Fault::kNone);
      REQUIRE(store_pages(stopped, held.at, kPages, 100 * round) == 0);
      stopped.stop();
      REQUIRE(store(other, import.at + 8, round).cause() == Fault::kNone);
      Board board(cluster);
      auto barrier = start_patient_barrier(other, board);
      CHECK(arrives(home, exported.at + 8, round));
      stopped.signal(SIGCONT);
      CHECK(barrier.get().ok());
      CHECK(load(stopped, held.at + 8).value == round);
      CHECK(wmb(stopped).ok());
      CHECK(wrong_pages(home, exported.at, kPages, 100 * round) == 0);
      CHECK(wrong_pages(other, import.at, kPages, 100 * round) == 0);
    }
  }

  TEST_CASE("an_importer_that_goes_on_after_its_verdict_changes_nothing_any_more") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& stopped = cluster.spawn("stopped");
    Process& other = cluster.spawn("other");
    const Export exported = export_consistent(home, kPages * kPage);
    Export of_other = exported;
    of_other.token = tok_new(home, exported.seg, kAllRights);
    const Import held = import_segment(stopped, exported);
    const Import import = import_segment(other, of_other);
    Board board(cluster);
    // Runs one after the other, until the library says that it is over.
    auto writing = stopped.start(
        [](Board::Name name, uint64_t address) {
          Board::Word* rounds = Board::open(name);
          for (;;) {
            const uint64_t word = (128 + rounds->load() % 64) * 0x0101010101010101;
            for (uint64_t i = 0; i < kPages * kPage; i += 8) {
              const int cause = store64(address + i, word).cause();
              if (cause != Fault::kNone) return cause;
            }
            if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0) return 0;
            rounds->fetch_add(1);
          }
        },
        board.name(), held.at);
    CHECK(board.reaches(0, 3));
    stopped.stop();
    // No barrier waits for who maps the home's pages; what ends its token does.
    if (mapped()) {
      const Answer revoked = tok_del(home, exported.token);
      CHECK_MESSAGE((revoked.ok() || revoked.failed(CMI_ERR_RECONFIG)), revoked);
      CHECK(await_happening(home).type == CMI_EVENT_RCTXT_DOWN);
    }
    // Waits for the stopped one until it is declared dead.
    Board ignored(cluster);
    REQUIRE(fill(other, import.at, 7) == 0);
    CHECK(start_patient_barrier(other, ignored).get(60).ok());
    CHECK(others_than(home, exported.at, 7) == 0);
    stopped.signal(SIGCONT);
    const int cause = writing.get(60);
    CHECK_MESSAGE((cause == 0 || cause == CMI_ERROR_SINVAL), "cause ", cause);
    // What it had cached it has until it notices.
    const Deadline deadline = Deadline::in(10 * kSecond);
    int seen = load(stopped, held.at).cause();
    while (seen == Fault::kNone && !deadline.passed()) seen = load(stopped, held.at).cause();
    CHECK(seen == CMI_ERROR_SINVAL);
    CHECK(others_than(home, exported.at, 7) == 0);
    CHECK(others_than(other, import.at, 7) == 0);
    CHECK(publish(other, import.at, 8));
    CHECK(load(home, exported.at).value == 8);
  }
}

}  // namespace

}  // namespace cmi::test::stopped_test

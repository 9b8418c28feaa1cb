// Access enabled and disabled, flush epochs and cflush across nodes.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test::flush_nodes_test {

namespace {

TEST_SUITE("enable") {
  TEST_CASE("an_import_raises_enable_error_before_cmi_enb") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_bare(peer, exported);
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_ENABLE);
    CHECK(store(peer, import.at + kPage, 1).cause() == CMI_ERROR_ENABLE);
    CHECK(wmb(peer).ok());
    CHECK(load(home, exported.at + kPage).value == 0);
  }

  TEST_CASE("cmi_enb_opens_and_closes_access") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    CHECK(publish(peer, import.at, 1));
    CHECK(store(peer, import.at + kPage, 2).cause() == Fault::kNone);
    REQUIRE(cmi_enb(peer, 0).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_ENABLE);
    CHECK(store(peer, import.at, 3).cause() == CMI_ERROR_ENABLE);
    CHECK(load(peer, import.at + 2 * kPage).cause() == CMI_ERROR_ENABLE);
    CHECK(wmb(peer).ok());  // what was stored while it was open is not lost
    CHECK(load(home, exported.at + kPage).value == 2);
    REQUIRE(cmi_enb(peer, 1).ok());
    CHECK(load(peer, import.at).value == 1);
    CHECK(publish(peer, import.at, 4));
    CHECK(load(home, exported.at).value == 4);
  }

  TEST_CASE("cmi_enb_twice_changes_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Import import = import_segment(peer, export_segment(home));
    CHECK(cmi_enb(peer, 1).ok());
    CHECK(load(peer, import.at).cause() == Fault::kNone);
    CHECK(cmi_enb(peer, 0).ok());
    CHECK(cmi_enb(peer, 0).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_ENABLE);
    CHECK(cmi_enb(peer, 1).ok());
    CHECK(load(peer, import.at).cause() == Fault::kNone);
  }

  // What a closed thread may reach all the same is told in doc/design/enable.md.
  TEST_CASE("each_thread_is_enabled_by_itself_wherever_an_access_faults") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    CHECK(store(peer, import.at, 1).cause() == Fault::kNone);  // open, and a page is in use
    // Another thread: closed from its start, whatever the first one has done; open once it says
    // so; closed again, while the first one stays open.
    struct Causes {
      int bare = 0, swap = 0, open = 0, closed = 0, calls = 0;
    };
    const Causes causes = peer.run(
        [](uint64_t at) {
          Causes c;
          std::thread([&c, at] {
            c.bare = load64(at + 2 * kPage).cause();  // not even registered
            c.calls += CMIFN(ctxt(), 10, ini_th)(ctxt());
            c.bare = c.bare == CMI_ERROR_ENABLE ? store64(at + 2 * kPage, 7).cause() : c.bare;
            auto swap = [at] {
              uint64_t was = 0;
              CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), 1, 9, &was);
            };
            c.swap = guarded(swap).cause();
            c.calls += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
            c.open = store64(at + 2 * kPage, 8).cause();
            c.calls += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 0);
            c.closed = load64(at + 3 * kPage).cause();
            c.calls += CMIFN(ctxt(), 10, fini)(ctxt());
          }).join();
          return c;
        },
        import.at);
    CHECK(causes.bare == CMI_ERROR_ENABLE);
    CHECK(causes.swap == CMI_ERROR_ENABLE);
    CHECK(causes.open == Fault::kNone);
    CHECK(causes.closed == CMI_ERROR_ENABLE);
    CHECK(causes.calls == 0);
    CHECK(load(peer, import.at).value == 1);  // still open
    CHECK(publish(peer, import.at + kPage, 2));
    CHECK(load(home, exported.at).value == 1);
    CHECK(load(home, exported.at + 2 * kPage).value == 8);
  }

  PROCESS_CASE("pages_that_were_open_are_closed_to_all_while_no_thread_is_enabled") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    for (uint64_t page = 0; page < 4; ++page) {
      REQUIRE(store(peer, import.at + page * kPage, page + 1).cause() == Fault::kNone);
    }
    // The last open thread closes itself; one that ends does so, too.
    const int wrong = peer.run(
        [](uint64_t at) {
          int failed = 0;
          std::thread([at, &failed] {
            failed += CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0;
            failed += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) != 0;
            failed += load64(at).cause() != Fault::kNone;
            // Ends registered and open.
          }).join();
          failed += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 0) != 0;
          for (uint64_t page = 0; page < 4; ++page) {
            failed += load64(at + page * kPage).cause() != CMI_ERROR_ENABLE;
            failed += store64(at + page * kPage, 99).cause() != CMI_ERROR_ENABLE;
          }
          return failed;
        },
        import.at);
    CHECK(wrong == 0);
    CHECK(wmb(peer).ok());
    for (uint64_t page = 0; page < 4; ++page) {
      CHECK(load(home, exported.at + page * kPage).value == page + 1);
    }
  }

  TEST_CASE("cmi_enb_without_memory_is_nomem_and_opens_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", "enable_no_memory#1=fail"}});
    const Export exported = export_segment(home);
    const Import import = import_bare(peer, exported);
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(cmi_enb(peer, 1).failed(CMI_ERR_NOMEM));
    CHECK(load(peer, import.at).cause() == CMI_ERROR_ENABLE);
    CHECK(cmi_enb(peer, 1).ok());
    CHECK(load(peer, import.at).cause() == Fault::kNone);
  }

  // As servers start their workers: with all signals blocked.
  PROCESS_CASE("a_thread_that_has_all_signals_blocked_takes_faults_and_exceptions_all_the_same") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home, 16 * kPage, CMI_ACC_READ);
    REQUIRE(store(home, exported.at + 3 * kPage, 5).cause() == Fault::kNone);
    Process& peer = cluster.spawn("peer");
    const Import import = import_segment(peer, exported);
    struct Seen {
      uint64_t loaded;
      int early, stored, others_let_in;
    };
    const Seen seen = peer.run(
        [](uint64_t at) {
          Seen s{};
          std::thread([&s, at] {
            sigset_t all, now_blocked;
            ::sigfillset(&all);
            ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            ::pthread_sigmask(SIG_BLOCK, nullptr, &now_blocked);
            s.others_let_in = ::sigismember(&now_blocked, SIGTERM) == 0;
            s.early = load64(at).cause();  // an exception: not enabled yet
            ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
            CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
            s.loaded = load64(at + 3 * kPage).value;
            s.stored = store64(at, 1).cause();
            CMIFN(ctxt(), 10, fini)(ctxt());
          }).join();
          return s;
        },
        import.at);
    CHECK(seen.early == CMI_ERROR_ENABLE);
    CHECK(seen.loaded == 5);
    CHECK(seen.stored == CMI_ERROR_ACCESS);
    CHECK(seen.others_let_in == 0);
    // The thread that makes the context.
    Process& third = cluster.spawn_bare("third");
    third.run([] {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    });
    REQUIRE(ini(third).ok());
    CHECK(load(third, import_segment(third, exported).at + 3 * kPage).value == 5);
  }

  TEST_CASE("cmi_enb_governs_atm_cas") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(atm_cas(peer, import.at, 0, 1).swapped);
    REQUIRE(cmi_enb(peer, 0).ok());
    CHECK(atm_cas(peer, import.at, 1, 2).fault.cause() == CMI_ERROR_ENABLE);
    CHECK(load(home, exported.at).value == 1);
    REQUIRE(cmi_enb(peer, 1).ok());
    CHECK(atm_cas(peer, import.at, 1, 2).swapped);
  }
}

TEST_SUITE("epochs") {
  TEST_CASE("each_thread_has_an_epoch_of_its_own") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const int failures = peer.run(
        [](uint64_t at) {
          std::atomic<int> failed{0};
          std::vector<std::thread> threads;
          for (uint64_t me = 0; me < 4; ++me) {
            threads.emplace_back([at, me, &failed] {
              cmi_ctxt* c = ctxt();
              failed += CMIFN(c, 10, ini_th)(c) != 0;
              failed += CMIFN(c, 10, cmi_enb)(c, 1) != 0;
              cmi_fb mine = CMIFN(c, 10, open_fb)(c);
              failed += mine == nullptr;
              for (uint64_t round = 1; round <= 20; ++round) {
                for (uint64_t page = 0; page < 8; ++page) {
                  const uint64_t word = at + page * kPage + me * 8;
                  failed += store64(word, round).cause() != Fault::kNone;
                }
                failed += CMIFN(c, 10, flush_fb)(c, mine) != 0;
              }
              failed += CMIFN(c, 10, close_fb)(c, mine) != 0;
              failed += CMIFN(c, 10, fini)(c) != 0;
            });
          }
          for (std::thread& thread : threads) thread.join();
          return failed.load();
        },
        import.at);
    CHECK(failures == 0);
    const int wrong = home.run(
        [](uint64_t at) {
          int count = 0;
          for (uint64_t page = 0; page < 8; ++page) {
            for (uint64_t me = 0; me < 4; ++me) {
              count += load64(at + page * kPage + me * 8).value != 20;
            }
          }
          return count;
        },
        exported.at);
    CHECK(wrong == 0);
  }

  TEST_CASE("flush_fb_returns_when_the_stores_are_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& writer = cluster.spawn("writer");
    Process& third = cluster.spawn("third");
    const Export exported = export_segment(home);
    const Import here = import_segment(writer, exported);
    const Import there = import_segment(third, exported);
    REQUIRE(open_fb(writer).ok());
    for (uint64_t round = 1; round <= 20; ++round) {
      const uint64_t at = round % 16 * kPage + round * 8;
      CHECK(load(third, there.at + at).value == 0);
      REQUIRE(store(writer, here.at + at, round).cause() == Fault::kNone);
      REQUIRE(flush_fb(writer).ok());
      CHECK(load(home, exported.at + at).value == round);
      CHECK(load(third, there.at + at).value == round);
    }
  }

  TEST_CASE("flush_fb_twice_sends_only_what_is_new") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(open_fb(peer).ok());
    REQUIRE(store(peer, import.at, 1).cause() == Fault::kNone);
    REQUIRE(flush_fb(peer).ok());
    REQUIRE(publish(home, exported.at, 2));
    REQUIRE(flush_fb(peer).ok());
    CHECK(load(home, exported.at).value == 2);
    // Another store to the same page does not bring the old one along.
    REQUIRE(store(peer, import.at + 8, 3).cause() == Fault::kNone);
    REQUIRE(flush_fb(peer).ok());
    CHECK(load(home, exported.at).value == 2);
    CHECK(load(home, exported.at + 8).value == 3);
  }

  TEST_CASE("close_fb_flushes_the_epoch") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(open_fb(peer).ok());
    REQUIRE(store(peer, import.at, 5).cause() == Fault::kNone);
    REQUIRE(close_fb(peer).ok());
    CHECK(load(home, exported.at).value == 5);
  }

  TEST_CASE("flush_fb_of_stores_under_a_revoked_token_is_store") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& good = cluster.spawn("good");
    Process& peer = cluster.spawn("peer");
    const Export kept = export_segment(good);
    const Import other = import_segment(peer, kept);
    REQUIRE(open_fb(peer).ok());
    // The store races with the timer, which may have brought it home in time.
    bool lost = false;
    for (uint64_t round = 1; round <= 20 && !lost; ++round) {
      const Export exported = export_segment(home);
      const Import import = import_segment(peer, exported);
      REQUIRE(load(peer, import.at).cause() == Fault::kNone);
      REQUIRE(store(peer, other.at, round).cause() == Fault::kNone);
      REQUIRE(store(peer, import.at, 7).cause() == Fault::kNone);
      REQUIRE(tok_del(home, exported.token).ok());
      const Answer flushed = flush_fb(peer);
      CHECK(load(good, kept.at).value == round);
      if (!flushed.ok()) {
        CHECK(flushed.failed(CMI_ERR_STORE));
        CHECK(load(home, exported.at).value == 0);
        lost = true;
      }
    }
    CHECK(lost);
    REQUIRE(store(peer, other.at + 8, 8).cause() == Fault::kNone);
    CHECK(flush_fb(peer).ok());
    CHECK(load(good, kept.at + 8).value == 8);
    CHECK(close_fb(peer).ok());
  }

  TEST_CASE("cflush_brings_the_named_addresses_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Answer flushed = peer.run(
        [](uint64_t at) {
          void* lines[4];
          for (uint64_t i = 0; i < 4; ++i) {
            store64(at + i * 3 * kPage + i * 8, 100 + i);
            lines[i] = reinterpret_cast<void*>(at + i * 3 * kPage + i * 8 + 1);
          }
          const int result = CMIFN(ctxt(), 10, cflush)(ctxt(), lines, 4);
          return answer(result, result != 0);
        },
        import.at);
    CHECK(flushed.ok());
    for (uint64_t i = 0; i < 4; ++i) {
      CHECK(load(home, exported.at + i * 3 * kPage + i * 8).value == 100 + i);
    }
  }

  TEST_CASE("cflush_waits_for_a_home_that_is_stopped_and_raises_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", "no_aging=fail"}});
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(store(peer, import.at, 5).cause() == Fault::kNone);
    home.stop();
    struct Seen {
      int cause, result;
    };
    auto flushing = peer.start(
        [](uint64_t at) {
          void* line = reinterpret_cast<void*>(at);
          int result = -1;
          auto flush = [&] { result = CMIFN(ctxt(), 10, cflush)(ctxt(), &line, 1); };
          return Seen{guarded(flush).cause(), result};
        },
        import.at);
    // Longer than an access waits before it raises TRANSIENT; a shorter stop would show less.
    ::usleep(1'500'000);
    home.signal(SIGCONT);
    const Seen seen = flushing.get();
    CHECK(seen.cause == Fault::kNone);
    CHECK(seen.result == 0);
    CHECK(load(home, exported.at).value == 5);
  }

  PROCESS_CASE("cflush_raises_sinval_where_the_home_dies_while_it_waits") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", "no_aging=fail"}});
    const Import import = import_segment(peer, export_segment(home));
    REQUIRE(store(peer, import.at, 5).cause() == Fault::kNone);
    home.stop();
    struct Seen {
      int cause, result;
      cmi_error error;
    };
    const Seen seen = peer.run(
        [](uint64_t at, pid_t of_home) {
          const uint64_t sent = stats().pages_written_back;
          std::thread killer([sent, of_home] {
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            const Deadline deadline = Deadline::in(10 * kSecond);
            while (stats().pages_written_back == sent && !deadline.passed()) ::usleep(1000);
            ::kill(of_home, SIGKILL);
            CMIFN(ctxt(), 10, fini)(ctxt());
          });
          void* line = reinterpret_cast<void*>(at);
          // Left by the handler's jump, or what the call has returned.
          Seen s{0, 0, CMI_ERR_NONE};
          auto flush = [&] {
            s.result = CMIFN(ctxt(), 10, cflush)(ctxt(), &line, 1);
            s.error = cmi_get_error(ctxt());
          };
          s.cause = guarded(flush).cause();
          killer.join();
          return s;
        },
        import.at, home.pid());
    CHECK(died_by(home.wait_end(), SIGKILL));
    CHECK(seen.cause == CMI_ERROR_SINVAL);
    CHECK(seen.result == 0);
    CHECK(seen.error == CMI_ERR_NONE);
  }

  TEST_CASE("cflush_works_with_and_without_an_epoch") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(store(peer, import.at, 1).cause() == Fault::kNone);
    CHECK(cflush(peer, import.at).ok());
    CHECK(load(home, exported.at).value == 1);
    REQUIRE(open_fb(peer).ok());
    REQUIRE(store(peer, import.at, 2).cause() == Fault::kNone);
    REQUIRE(store(peer, import.at + kPage, 3).cause() == Fault::kNone);
    CHECK(cflush(peer, import.at).ok());
    CHECK(load(home, exported.at).value == 2);
    CHECK(flush_fb(peer).ok());
    CHECK(load(home, exported.at + kPage).value == 3);
    CHECK(close_fb(peer).ok());
  }
}

}  // namespace

}  // namespace cmi::test::flush_nodes_test

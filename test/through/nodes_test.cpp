// Write-through segments between nodes: stores are at home and loads come from there, nothing in
// between; what excludes what; and what an access raises that cannot be made.
#include <doctest/doctest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"

namespace cmi::test::nodes_test {

namespace {

Export export_through(Process& home, size_t size = 4 * kPage, cmi_acc rights = kAllRights,
                      int32_t flags = 0) {
  Export e = export_segment(home, size, rights, flags);
  e.handle = seg_exp(home, e.seg, CMI_SEG_WRITE_THROUGH);
  REQUIRE_MESSAGE(e.handle.ok(), "seg_exp: error ", e.handle.error);
  return e;
}

// Two nodes; none where a build has no write-through segments, and the case is skipped.
struct Scene {
  Cluster cluster;
  Process& home;
  Process& peer;
  bool usable;

  explicit Scene(const Env& at_home = {})
      : home(cluster.spawn("home", at_home)), peer(cluster.spawn("peer")) {
    usable = ctl_info(home).info.max_write_through_segs != 0;
    if (!usable) skip("this build has no write-through segments");
  }
};

// The home stops once a store is in its memory, before it says so.
const Env kStopsBeforeReply = {{"CMI_FAULT_POINT", "write_through_before_reply#1=stop"}};

pid_t g_home = 0;  // in the child that lets it go on, or ends it
int g_signal = 0;

// In a child: makes the accesses of `body`. While TRANSIENT is raised, they are tried again, and
// `signo` is sent to the home.
template <class F>
Fault retried(int32_t home, int signo, F body) {
  g_home = home;
  g_signal = signo;
  set_on_fault([](const Fault& f) {
    kill(g_home, g_signal);
    return f.error == CMI_ERROR_TRANSIENT && f.times < 30;
  });
  const Fault raised = guarded(body);
  set_on_fault(nullptr);
  return raised;
}

uint64_t add_locked(Process& process, uint64_t at, uint64_t times) {
  return process.run(
      [](uint64_t address, uint64_t n) {
        auto* word = reinterpret_cast<uint64_t*>(address);
        for (uint64_t i = 0; i < n; ++i) __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
        return __atomic_load_n(word, __ATOMIC_SEQ_CST);
      },
      at, times);
}

TEST_SUITE("through") {
  TEST_CASE("a_store_is_at_home_when_the_next_instruction_runs") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    // No barrier, no flush, on either side.
    for (uint64_t i = 1; i <= 100; ++i) {
      REQUIRE(store(s.peer, import.at + 8 * i, i).cause() == Fault::kNone);
      CHECK(load(s.home, exported.at + 8 * i).value == i);
      REQUIRE(store(s.home, exported.at + 8 * i, 1000 + i).cause() == Fault::kNone);
      CHECK(load(s.peer, import.at + 8 * i).value == 1000 + i);
    }
    CHECK(wmb(s.peer).ok());
    CHECK(open_fb(s.peer).ok());
    CHECK(store(s.peer, import.at, 5).cause() == Fault::kNone);
    CHECK(load(s.home, exported.at).value == 5);
    CHECK(flush_fb(s.peer).ok());
    CHECK(close_fb(s.peer).ok());
    CHECK(cflush(s.peer, import.at).ok());
  }

  TEST_CASE("write_through_works_beside_fault_threads_as_well") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn_bare("peer", {{"CMI_FAULT", "thread"}});
    const Answer started = ini(peer);
    if (started.failed(CMI_ERR_NOTSUPP) || ctl_info(home).info.max_write_through_segs == 0) {
      skip("no fault threads, or no write-through segments");
      return;
    }
    const Export exported = export_through(home);
    const Import import = import_segment(peer, exported);
    CHECK(store(peer, import.at + 24, 77).cause() == Fault::kNone);
    CHECK(load(home, exported.at + 24).value == 77);
    CHECK(load(peer, import.at + 24).value == 77);
  }

  TEST_CASE("two_threads_that_hammer_one_page_never_undo_each_other") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    constexpr uint64_t kTimes = 400;
    // At home somebody increments the bytes between those of the two, all the while.
    auto beside = s.home.start(
        [](uint64_t at) {
          auto* bytes = reinterpret_cast<volatile uint8_t*>(at);
          uint64_t n = 0;
          for (; !called_back(); ++n) {
            bytes[2] = static_cast<uint8_t>(bytes[2] + 1);
            __atomic_fetch_add(reinterpret_cast<uint64_t*>(at + 64), 1, __ATOMIC_SEQ_CST);
          }
          return n;
        },
        exported.at);
    const uint64_t wrong = s.peer.run(
        [](uint64_t at, uint64_t times) {
          std::atomic<uint64_t> failures{0};
          const auto hammer = [&](unsigned mine) {
            failures += CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0 ? 1u : 0u;
            failures += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) != 0 ? 1u : 0u;
            auto* byte = reinterpret_cast<volatile uint8_t*>(at + mine);
            for (uint64_t i = 0; i < times; ++i) {
              // A byte of one's own beside somebody else's: what one stored is what one loads.
              *byte = static_cast<uint8_t>(i);
              if (*byte != static_cast<uint8_t>(i)) ++failures;
              __atomic_fetch_add(reinterpret_cast<uint64_t*>(at + 64), 1, __ATOMIC_SEQ_CST);
              __atomic_fetch_add(reinterpret_cast<uint64_t*>(at + 72), 1, __ATOMIC_SEQ_CST);
            }
            failures += CMIFN(ctxt(), 10, fini)(ctxt()) != 0 ? 1u : 0u;
          };
          std::thread one(hammer, 1u), other(hammer, 3u);
          one.join();
          other.join();
          return failures.load();
        },
        import.at, kTimes);
    const uint64_t added = beside.finish();
    CHECK(wrong == 0);
    CHECK(load(s.home, exported.at + 64).value == added + 2 * kTimes);
    CHECK(load(s.home, exported.at + 72).value == 2 * kTimes);
    // Had a store written back what lies beside its byte, the increments would have been lost.
    CHECK((load(s.home, exported.at).value >> 16 & 0xff) == (added & 0xff));
  }

  TEST_CASE("locked_instructions_of_two_nodes_are_atomic") {
    Scene s;
    if (!s.usable) return;
    Process& third = s.cluster.spawn("third");
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    const Import other = import_segment(third, exported);
    constexpr uint64_t kTimes = 300;
    auto beside = third.start(
        [](uint64_t at, uint64_t n) {
          for (uint64_t i = 0; i < n; ++i) {
            __atomic_fetch_add(reinterpret_cast<uint64_t*>(at), 1, __ATOMIC_SEQ_CST);
          }
        },
        other.at, kTimes);
    add_locked(s.peer, import.at, kTimes);
    beside.get();
    CHECK(add_locked(s.home, exported.at, 10) == 2 * kTimes + 10);
    const Swap swap = atm_cas(s.peer, import.at, 2 * kTimes + 10, 42);
    CHECK(swap.swapped);
    CHECK(load(third, other.at).value == 42);
    CHECK(load(s.home, exported.at).value == 42);
  }

  TEST_CASE("a_segment_is_imported_cached_or_write_through_never_both_at_once") {
    Scene s;
    if (!s.usable) return;
    Process& third = s.cluster.spawn("third");
    const Export through = export_through(s.home);
    Export cached = through;
    cached.handle = seg_exp(s.home, through.seg);
    REQUIRE(cached.handle.ok());
    const Import first = import_segment(s.peer, through);
    CHECK(seg_imp(s.peer, cached.handle).failed(CMI_ERR_INVAL));
    CHECK(seg_imp(third, cached.handle).failed(CMI_ERR_INVAL));
    CHECK(seg_imp(s.home, cached.handle).failed(CMI_ERR_INVAL));
    const Answer another = seg_imp(third, through.handle);  // the same way is fine
    CHECK(another.ok());
    CHECK(store(s.peer, first.at, 6).cause() == Fault::kNone);
    REQUIRE(seg_rm(third, another.seg()).ok());
    CHECK(seg_imp(third, cached.handle).failed(CMI_ERR_INVAL));
    REQUIRE(seg_dt(s.peer, first.seg, first.at).ok());
    REQUIRE(seg_rm(s.peer, first.seg).ok());
    // And the other way round.
    const Import now_cached = import_segment(third, cached);
    CHECK(load(third, now_cached.at).value == 6);
    CHECK(seg_imp(s.peer, through.handle).failed(CMI_ERR_INVAL));
    CHECK(seg_imp(third, through.handle).failed(CMI_ERR_INVAL));
    REQUIRE(seg_dt(third, now_cached.seg, now_cached.at).ok());
    REQUIRE(seg_rm(third, now_cached.seg).ok());
    const Import again = import_segment(s.peer, through);
    CHECK(load(s.peer, again.at).value == 6);
  }

  TEST_CASE("where_instructions_cannot_be_executed_write_through_is_notsupp") {
    Scene s;
    for (const char* why : {"emulate_unsupported=fail", "emulate_not_executable=fail"}) {
      CAPTURE(why);
      Process& lacking = s.cluster.spawn("lacking", {{"CMI_FAULT_POINT", why}});
      CHECK(ctl_info(lacking).info.max_write_through_segs == 0);
      const Export own = export_segment(lacking);
      const Flat handle = seg_exp(lacking, own.seg, CMI_SEG_WRITE_THROUGH);
      CHECK_FALSE(handle.ok());
      CHECK(handle.error == CMI_ERR_NOTSUPP);
      // Somebody else's it cannot use.
      if (s.usable) {
        CHECK(seg_imp(lacking, export_through(s.home).handle).failed(CMI_ERR_INVAL));
      }
    }
  }

  TEST_CASE("a_dead_importer_does_not_hold_its_way_of_importing") {
    Scene s;
    if (!s.usable) return;
    Process& third = s.cluster.spawn("third");
    const Export through = export_through(s.home);
    Export cached = through;
    cached.handle = seg_exp(s.home, through.seg);
    const Import import = import_segment(s.peer, through);
    REQUIRE(store(s.peer, import.at, 9).cause() == Fault::kNone);
    s.peer.kill();
    Answer imported;
    for (int i = 0; i < 1000 && !imported.ok(); ++i) {
      imported = seg_imp(third, cached.handle);
      if (!imported.ok()) usleep(10000);  // until its death is known
    }
    CHECK(imported.ok());
    CHECK(load(s.home, through.at).value == 9);
    // Nothing of it was in flux: what it stored was home.
    CHECK((seg_status(s.home, through.seg).status.st_flags & CMI_SEG_ST_INCONSIST) == 0);
  }

  TEST_CASE("tokens_govern_loads_and_stores_separately") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home, 4 * kPage, CMI_ACC_READ);
    const Import bare = import_bare(s.peer, exported);
    CHECK(load(s.peer, bare.at).cause() == CMI_ERROR_ENABLE);
    REQUIRE(cmi_enb(s.peer, 1).ok());
    CHECK(load(s.peer, bare.at).cause() == CMI_ERROR_TOKEN);
    CHECK(store(s.peer, bare.at, 1).cause() == CMI_ERROR_TOKEN);
    REQUIRE(set_token(s.peer, bare.seg, exported.token).ok());
    CHECK(load(s.peer, bare.at).cause() == Fault::kNone);
    CHECK(store(s.peer, bare.at, 1).cause() == CMI_ERROR_ACCESS);
    // One that may only store: nothing has to be fetched for it.
    const Flat writing = tok_new(s.home, exported.seg, CMI_ACC_WRITE);
    REQUIRE(set_token(s.peer, bare.seg, writing).ok());
    CHECK(store(s.peer, bare.at, 11).cause() == Fault::kNone);
    CHECK(load(s.home, exported.at).value == 11);
    CHECK(load(s.peer, bare.at).cause() == CMI_ERROR_ACCESS);
    REQUIRE(tok_del(s.home, writing).ok());
    CHECK(store(s.peer, bare.at, 12).cause() == CMI_ERROR_TOKEN);
    CHECK(load(s.home, exported.at).value == 11);
    const Answer view = seg_at(s.peer, bare.seg, 0, CMI_SEG_READ);
    REQUIRE(view.ok());
    const Flat all = tok_new(s.home, exported.seg, kAllRights);
    REQUIRE(set_token(s.peer, bare.seg, all).ok());
    CHECK(store(s.peer, view.at(), 13).cause() == CMI_ERROR_ACCESS);
    CHECK(load(s.peer, view.at()).value == 11);
    CHECK(store(s.peer, bare.at, 13).cause() == Fault::kNone);
    REQUIRE(cmi_enb(s.peer, 0).ok());
    CHECK(store(s.peer, bare.at, 14).cause() == CMI_ERROR_ENABLE);
    CHECK(load(s.home, exported.at).value == 13);
  }

  TEST_CASE("a_closed_thread_reaches_nothing_of_a_write_through_segment") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    REQUIRE(store(s.peer, import.at, 3).cause() == Fault::kNone);
    // Beside a thread that is open, on the very page that it uses.
    const int wrong = s.peer.run(
        [](uint64_t at) {
          int failed = 0;
          std::thread([at, &failed] {
            failed += load64(at).cause() != CMI_ERROR_ENABLE;
            failed += CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0;
            failed += store64(at, 4).cause() != CMI_ERROR_ENABLE;
            failed += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) != 0;
            failed += load64(at).value != 3;
            failed += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 0) != 0;
            failed += load64(at).cause() != CMI_ERROR_ENABLE;
            failed += CMIFN(ctxt(), 10, fini)(ctxt()) != 0;
          }).join();
          failed += load64(at).value != 3;
          return failed;
        },
        import.at);
    CHECK(wrong == 0);
    CHECK(load(s.home, exported.at).value == 3);
  }

  TEST_CASE("a_token_for_a_part_opens_that_part_of_a_write_through_segment") {
    Scene s;
    if (!s.usable) return;
    Export exported = export_through(s.home);
    exported.token = s.home.run(
        [](uint64_t at, cmi_seg seg) {
          auto* second = reinterpret_cast<void*>(at + kPage);
          cmi_token* token =
              CMIFN(ctxt(), 11, tok_newva)(ctxt(), seg, second, kPage, CMI_NADDR_ANY, kAllRights);
          return copy_of(token, seg, CMI_ATTR_TOKEN_SIZE);
        },
        exported.at, exported.seg);
    REQUIRE(exported.token.ok());
    const Import import = import_segment(s.peer, exported);
    CHECK(store(s.peer, import.at + kPage, 1).cause() == Fault::kNone);
    CHECK(store(s.peer, import.at + 2 * kPage - 8, 1).cause() == Fault::kNone);
    CHECK(load(s.peer, import.at).cause() == CMI_ERROR_ACCESS);
    CHECK(store(s.peer, import.at + kPage - 8, 1).cause() == CMI_ERROR_ACCESS);
    CHECK(store(s.peer, import.at + kPage - 4, 2).cause() == CMI_ERROR_ACCESS);  // half of it
    CHECK(store(s.peer, import.at + 2 * kPage - 4, 2).cause() == CMI_ERROR_ACCESS);
    CHECK(load(s.home, exported.at + kPage).value == 1);
    CHECK(load(s.home, exported.at + 2 * kPage - 8).value == 1);
    CHECK(load(s.home, exported.at + 2 * kPage).value == 0);
  }

  TEST_CASE("nobody_gets_past_the_break_of_a_write_through_segment") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home, 8 * kPage, kAllRights, CMI_SEG_EXTENSIBLE);
    const Import import = import_segment(s.peer, exported);
    CHECK(load(s.peer, import.at).cause() == CMI_ERROR_SEG_BRK);
    REQUIRE(seg_brk(s.home, exported.seg, 2 * kPage).ok());
    CHECK(store(s.peer, import.at + 2 * kPage - 8, 5).cause() == Fault::kNone);
    CHECK(store(s.peer, import.at + 2 * kPage - 4, 6).cause() == CMI_ERROR_SEG_BRK);
    CHECK(store(s.peer, import.at + 2 * kPage, 6).cause() == CMI_ERROR_SEG_BRK);
    CHECK(load(s.home, exported.at + 2 * kPage - 8).value == 5);
    REQUIRE(seg_brk(s.home, exported.seg, kPage).ok());
    CHECK(load(s.peer, import.at + kPage).cause() == CMI_ERROR_SEG_BRK);
    CHECK(atm_cas(s.peer, import.at + kPage, 0, 1).fault.cause() == CMI_ERROR_SEG_BRK);
    REQUIRE(seg_brk(s.home, exported.seg, 3 * kPage).ok());
    CHECK(load(s.peer, import.at + kPage).value == 0);
    CHECK(add_locked(s.peer, import.at + 3 * kPage - 8, 3) == 3);
  }

  TEST_CASE("other_processes_of_the_node_attach_a_write_through_import") {
    Scene s;
    if (!s.usable) return;
    Process& beside = s.cluster.spawn("peer");
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    const Answer view = seg_at(beside, import.seg);
    REQUIRE(view.ok());
    REQUIRE(cmi_enb(beside, 1).ok());
    CHECK(store(beside, view.at() + 16, 3).cause() == Fault::kNone);
    CHECK(load(s.peer, import.at + 16).value == 3);
    CHECK(load(s.home, exported.at + 16).value == 3);
  }

  TEST_CASE("a_store_that_fails_raises_its_exception_at_that_very_instruction") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    const CodeRange code = s.peer.run([] { return access_code(); });
    REQUIRE(store(s.peer, import.at + 8, 1).cause() == Fault::kNone);
    s.home.kill();
    const Fault fault = store(s.peer, import.at + 8, 2).fault;
    CHECK(fault.signal == SIGSEGV);
    CHECK(fault.code == SEGV_CMI);
    CHECK(fault.error == CMI_ERROR_SINVAL);
    CHECK(fault.address == import.at + 8);
    CHECK(fault.id == import.seg);
    CHECK(code.holds(fault.pc));
    CHECK(fault.pc == fault.context_pc);
    CHECK(load(s.peer, import.at + 8).cause() == CMI_ERROR_SINVAL);
    CHECK(await_happening(s.peer).type == CMI_EVENT_HCTXT_DOWN);  // and no store was lost
  }

  TEST_CASE("a_home_that_is_killed_ends_a_loop_of_stores_with_an_exception") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    auto loop = s.peer.start(
        [](uint64_t at) {
          for (uint64_t i = 1;; ++i) {
            const Access access = store64(at, i);
            if (access.fault.signal != 0) return access.fault;
          }
        },
        import.at);
    uint64_t seen = 0;
    for (int i = 0; i < 1000 && seen < 20; ++i) {
      seen = load(s.home, exported.at).value;
      usleep(1000);
    }
    REQUIRE(seen >= 20);
    s.home.kill();
    const Fault fault = loop.get();
    CHECK(fault.error == CMI_ERROR_SINVAL);
    CHECK(fault.address == import.at);
  }

  TEST_CASE("a_locked_store_to_a_silent_home_happens_once_when_it_is_tried_again") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    REQUIRE(add_locked(s.peer, import.at, 1) == 1);
    s.home.stop();
    const Fault fault = s.peer.run(
        [](uint64_t at, int32_t home) {
          // Raised while the home is silent; it hears of the request when it goes on.
          return retried(home, SIGCONT, [at] {
            __atomic_fetch_add(reinterpret_cast<uint64_t*>(at), 1, __ATOMIC_SEQ_CST);
          });
        },
        import.at, static_cast<int32_t>(s.home.pid()));
    CHECK(fault.times >= 1);
    CHECK(fault.error == CMI_ERROR_TRANSIENT);
    CHECK(load(s.home, exported.at).value == 2);
  }

  TEST_CASE("a_locked_store_whose_answer_is_late_happens_once") {
    Scene s(kStopsBeforeReply);
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    const Fault fault = s.peer.run(
        [](uint64_t at, int32_t home) {
          return retried(home, SIGCONT, [at] {
            __atomic_fetch_add(reinterpret_cast<uint64_t*>(at), 1, __ATOMIC_SEQ_CST);
          });
        },
        import.at, static_cast<int32_t>(s.home.pid()));
    CHECK(fault.error == CMI_ERROR_TRANSIENT);
    CHECK(load(s.home, exported.at).value == 1);
  }

  TEST_CASE("a_plain_increment_whose_answer_is_late_counts_once") {
    Scene s(kStopsBeforeReply);
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    REQUIRE(store(s.home, exported.at, 5).cause() == Fault::kNone);
    const Fault fault = s.peer.run(
        [](uint64_t at, int32_t home) {
          return retried(home, SIGCONT, [at] {
            asm volatile("incl (%0)" : : "r"(at) : "memory", "cc");
          });
        },
        import.at, static_cast<int32_t>(s.home.pid()));
    CHECK(fault.error == CMI_ERROR_TRANSIENT);
    CHECK(load(s.home, exported.at).value == 6);
  }

  TEST_CASE("a_string_that_is_moved_onto_itself_is_moved_once_when_an_answer_is_late") {
    Scene s(kStopsBeforeReply);
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    s.home.run(
        [](uint64_t at) {
          for (unsigned i = 0; i <= 64; ++i) {
            reinterpret_cast<volatile uint8_t*>(at)[i] = static_cast<uint8_t>(i);
          }
        },
        exported.at);
    const Fault fault = s.peer.run(
        [](uint64_t at, int32_t home) {
          return retried(home, SIGCONT, [at] {
            uint64_t from = at + 1, to = at, count = 64;
            asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
          });
        },
        import.at, static_cast<int32_t>(s.home.pid()));
    CHECK(fault.error == CMI_ERROR_TRANSIENT);
    CHECK(s.home.run(
              [](uint64_t at) {
                unsigned wrong = 0;
                for (unsigned i = 0; i < 64; ++i) {
                  wrong += reinterpret_cast<volatile uint8_t*>(at)[i] != i + 1;
                }
                return wrong;
              },
              exported.at) == 0);
  }

  TEST_CASE("a_home_that_dies_while_a_locked_store_is_owed_ends_it_with_an_exception") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    REQUIRE(add_locked(s.peer, import.at, 1) == 1);
    s.home.stop();
    const Fault fault = s.peer.run(
        [](uint64_t at, int32_t home) {
          return retried(home, SIGKILL, [at] {
            __atomic_fetch_add(reinterpret_cast<uint64_t*>(at), 1, __ATOMIC_SEQ_CST);
          });
        },
        import.at, static_cast<int32_t>(s.home.pid()));
    CHECK(fault.times >= 2);
    CHECK(fault.error == CMI_ERROR_SINVAL);
    CHECK(fault.address == import.at);
    s.home.kill();
  }

  TEST_CASE("a_store_that_was_left_pending_does_not_stand_for_a_later_one") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    REQUIRE(load(s.peer, import.at).value == 0);
    s.home.stop();
    REQUIRE(store(s.peer, import.at, 1).cause() == CMI_ERROR_TRANSIENT);  // and left by a jump
    s.home.signal(SIGCONT);
    REQUIRE(load_until(s.home, exported.at, 1) == 1);
    REQUIRE(store(s.home, exported.at, 0).cause() == Fault::kNone);
    // What another thread asks for is answered after the store has been, by the same connection.
    REQUIRE(s.peer.run(
        [](uint64_t at) {
          bool loaded = false;
          std::thread([at, &loaded] {
            loaded = CMIFN(ctxt(), 10, ini_th)(ctxt()) == 0 &&
                     CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) == 0 &&
                     load64(at).cause() == Fault::kNone;
            CMIFN(ctxt(), 10, fini)(ctxt());
          }).join();
          return loaded;
        },
        import.at));
    usleep(150000);  // after which it is not the same try any more
    CHECK(store(s.peer, import.at, 1).cause() == Fault::kNone);
    CHECK(load(s.home, exported.at).value == 1);
  }

  TEST_CASE("system_calls_cannot_use_a_write_through_view") {
    Scene s;
    if (!s.usable) return;
    const Export exported = export_through(s.home);
    const Import import = import_segment(s.peer, exported);
    CHECK(s.peer.run(
              [](uint64_t at) {
                char byte = 0;
                const iovec here{&byte, 1}, there{reinterpret_cast<void*>(at), 1};
                const ssize_t n = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
                return n < 0 ? errno : 0;
              },
              import.at) == EFAULT);
    CHECK(load(s.peer, import.at).cause() == Fault::kNone);
  }
}

}  // namespace

}  // namespace cmi::test::nodes_test

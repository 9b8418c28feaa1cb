// Ends of an importer's threads and processes in the middle of an access: by exit(), by a jump out
// of the handler, by a kill; and what others of its node and its home have of it.
#include <doctest/doctest.h>
#include <pthread.h>

#include <csignal>
#include <thread>

#include "fault/patience.hpp"
#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/happenings.hpp"

namespace cmi::test::ends_test {

namespace {

TEST_SUITE("ends") {
  TEST_CASE("a_thread_that_is_cancelled_in_the_middle_of_an_access_ends_after_it") {
    if (kSanitized) return skip("a cancelled thread's stack stays poisoned");
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    Board board(cluster);  // 0: the access begins, 1: the home goes on
    home.stop();
    struct Seen {
      int cause, ended;
    };
    auto accessing = peer.start(
        [](Board::Name name, uint64_t at) {
          static Board::Word* words;
          static uint64_t address;
          static std::atomic<int> cause;
          words = Board::open(name);
          address = at;
          cause = -2;
          pthread_t thread;
          pthread_create(
              &thread, nullptr,
              [](void*) -> void* {
                CMIFN(ctxt(), 10, ini_th)(ctxt());
                CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
                words[0] = 1;
                cause = load64(address + kPage).cause();
                for (;;) ::pause();  // where it may be cancelled
              },
              nullptr);
          while (words[0].load() == 0) sched_yield();
          ::usleep(100'000);  // it waits for the home by now, most likely; if not, nothing is lost
          pthread_cancel(thread);
          void* result = nullptr;
          pthread_join(thread, &result);
          return Seen{cause.load(), result == PTHREAD_CANCELED};
        },
        board.name(), import.at);
    const Seen seen = accessing.get();
    CHECK(seen.cause == CMI_ERROR_TRANSIENT);  // the access ended as it would have
    CHECK(seen.ended == 1);
    home.signal(SIGCONT);
    // Nothing that it held is missing: its page, the link, the locks.
    Board ignored(cluster);
    CHECK(start_patient_load(peer, ignored, import.at + kPage).get().cause() == Fault::kNone);
    CHECK(publish(peer, import.at + kPage, 5));
    CHECK(load(home, exported.at + kPage).value == 5);
    CHECK(fini(peer).ok());
  }

  TEST_CASE("a_jump_out_of_the_handler_leaves_the_page_to_be_fetched") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at + kPage, 7));
    home.stop();
    // Each is abandoned by siglongjmp while the fetch may still be under way.
    for (int again = 0; again < 2; ++again) {
      CHECK(load(peer, import.at + kPage).cause() == CMI_ERROR_TRANSIENT);
    }
    home.signal(SIGCONT);
    Board ignored(cluster);
    CHECK(start_patient_load(peer, ignored, import.at + kPage).get().value == 7);
    CHECK(publish(peer, import.at + kPage, 8));
    CHECK(load(home, exported.at + kPage).value == 8);
  }

  TEST_CASE("exit_while_another_thread_waits_for_a_home_ends_the_process_at_once") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    Board board(cluster);
    home.stop();
    peer.start(
        [](Board::Name name, uint64_t at) {
          Board::Word* words = Board::open(name);
          std::thread([=] {
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
            words[0] = 1;
            load64(at + kPage);
          }).detach();
          while (words[0].load() == 0) sched_yield();
          ::usleep(50'000);
          std::exit(3);
          return 0;
        },
        board.name(), import.at);
    const int status = peer.wait_end();
    CHECK_MESSAGE((WIFEXITED(status) && WEXITSTATUS(status) == 3), describe_status(status));
    home.signal(SIGCONT);
    const Happening down = await_happening(home);
    CHECK(down.type == CMI_EVENT_RCTXT_DOWN);
    // Its node has a new context at once, which imports the same.
    Process& next = cluster.spawn("peer");
    const Import anew = import_segment(next, exported);
    CHECK(publish(next, anew.at, 4));
    CHECK(load(home, exported.at).value == 4);
  }

  TEST_CASE("when_the_process_that_imported_is_killed_its_neighbours_are_told_token") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    Process& beside = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(importer, exported);
    REQUIRE(cmi_enb(beside, 1).ok());
    const Answer view = seg_at(beside, import.seg);
    REQUIRE(view.ok());
    REQUIRE(publish(beside, view.at(), 3));
    importer.kill();
    // The import counts as removed; whoever has it attached may go on until it detaches, and
    // nobody attaches it any more.
    CHECK(await_happening(home).type == CMI_EVENT_RCTXT_DOWN);
    Process& late = cluster.spawn("peer");
    CHECK_FALSE(seg_at(late, import.seg).ok());
    const int cause = load(beside, view.at() + 3 * kPage).cause();
    CHECK((cause == Fault::kNone || cause == CMI_ERROR_TOKEN));
    CHECK(seg_dt(beside, import.seg, view.at()).ok());
    const Import anew = import_segment(beside, exported);
    CHECK(load(beside, anew.at).value == 3);
  }

  TEST_CASE("recovery_may_begin_when_the_home_has_the_event") {
    Cluster cluster;
    // An event that comes too early is there for a while before there is anything to recover.
    const Env slow{{"CMI_FAULT_POINT", "forget_before_in_flux=delay:300000"}};
    Process& home = cluster.spawn("home", slow);
    Process& victim = cluster.spawn("victim", {{"CMI_FAULT_POINT", "no_aging=fail"}});
    const Export exported = export_segment(home);
    const Import import = import_segment(victim, exported);
    REQUIRE(store(victim, import.at + 2 * kPage, 1).cause() == Fault::kNone);
    REQUIRE(wmb(victim).ok());
    REQUIRE(store(victim, import.at + 2 * kPage, 2).cause() == Fault::kNone);
    victim.kill();
    CHECK(await_happening(home).type == CMI_EVENT_RCTXT_DOWN);
    // At once: what there is to recover is known, and can be.
    const Recovery found = seg_check(home, exported.seg, exported.at, exported.size);
    CHECK(found.answer.ok());
    CHECK(found.at == exported.at + 2 * kPage);
    REQUIRE(found.size == kPage);
    CHECK(seg_reco(home, exported.seg, found.at, found.size).ok());
    // A store to a mapped page is home when it is made.
    CHECK(load(home, exported.at + 2 * kPage).value == (mapped() ? 2 : 1));
    CHECK(publish(home, exported.at + 2 * kPage, 9));
  }

  // The connection stalls, and no other can be made: there is no endpoint to make it from.
  TEST_CASE("cflush_and_close_fb_of_stores_lost_by_a_fault_of_this_side_are_hw") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Env faulty{{"CMI_FAULT_POINT", "link_no_endpoint#2+=fail"}, {"CMI_DEAD_AFTER", "2000"}};
    Process& flushing = cluster.spawn("flushing", faulty);
    Process& closing = cluster.spawn("closing", faulty);
    const Export exported = export_consistent(home, 16 * kPage);
    const Import first = import_segment(flushing, exported);
    const Import second = import_segment(closing, exported);
    REQUIRE(load(flushing, first.at).value == 0);
    REQUIRE(load(closing, second.at + kPage).value == 0);
    REQUIRE(open_fb(closing).ok());
    home.stop();
    REQUIRE(store(flushing, first.at, 3).cause() == Fault::kNone);
    REQUIRE(store(closing, second.at + kPage, 3).cause() == Fault::kNone);
    CHECK(cflush(flushing, first.at).failed(CMI_ERR_HW));
    CHECK(await_happening(flushing).type == CMI_EVENT_HW);
    const Answer closed = close_fb(closing);
    CHECK_MESSAGE(closed.failed(CMI_ERR_HW), closed);
    CHECK(await_happening(closing).type == CMI_EVENT_HW);
    CHECK(open_fb(closing).ok());  // it is closed all the same
    home.signal(SIGCONT);
  }
}

}  // namespace

}  // namespace cmi::test::ends_test

// Write-backs of long runs of pages that changed in every byte: they go one-sided, and when nobody
// knows whether one arrived, nothing is lost and nothing that another node stored is undone.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "core/base/clock.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"

namespace cmi::test::bulk_writes_nodes_test {

namespace {

constexpr uint64_t kPages = 300;  // more than one write of 1 MiB
constexpr size_t kSize = kPages * kPage;

// No byte of it is 0, and each page differs from the others.
uint64_t word_of(uint64_t index, uint64_t salt) {
  return 0x0101010101010101 * (1 + (index / 512 + salt) % 255);
}

// Stores to every byte of the pages, and publishes.
Answer rewrite(Process& process, uint64_t at, uint64_t pages, uint64_t salt) {
  return process.run(
      [](uint64_t a, uint64_t n, uint64_t s) {
        for (uint64_t i = 0; i < n * kPage / 8; ++i) {
          const Access done = store64(a + i * 8, word_of(i, s));
          if (done.cause() != Fault::kNone) return answer(-1, true);
        }
        const int failed = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
        return answer(failed, failed != 0);
      },
      at, pages, salt);
}

// The first word that is not as rewrite() left it; the number of words for none.
uint64_t first_wrong(Process& process, uint64_t at, uint64_t pages, uint64_t salt) {
  return process.run(
      [](uint64_t a, uint64_t n, uint64_t s) {
        uint64_t i = 0;
        while (i < n * kPage / 8 && load64(a + i * 8).value == word_of(i, s)) ++i;
        return i;
      },
      at, pages, salt);
}

uint64_t messages_of(Process& process) {
  return process.run([] { return stats().publications; });
}

// A run arrives whose writer is not told so, and another node stores to one of its pages before it
// is repaired: whether that store stays, everywhere. The others of the run do in any case.
bool newer_store_stays(const Env& home_env) {
  Cluster cluster;
  Process& home = cluster.spawn("home", home_env);
  // It takes its time to ask. The timer would cut the run short, and what it takes goes in
  // messages.
  Process& peer =
      cluster.spawn("peer", {{"CMI_FAULT_POINT",
                              "completion_lost#1=fail;bulk_write_before_announce#1=delay:500000;"
                              "no_aging=fail"}});
  Process& third = cluster.spawn("third");
  const Export exported = export_segment(home, kSize);
  const Import import = import_segment(peer, exported);
  const Import other = import_segment(third, exported);
  constexpr uint64_t kNewer = 0x6363636363636363;
  auto pending = peer.start(
      [](uint64_t at) {
        // Backwards, so that nothing is read ahead: the first completion is to be that of the run.
        for (uint64_t i = 64; i-- > 0;) load64(at + i * kPage);
        for (uint64_t i = 0; i < 64 * 512; ++i) store64(at + i * 8, word_of(i, 1));
        return CMIFN(ctxt(), 10, wmb_fn)(ctxt());
      },
      import.at);
  // Seen by the home's processes as soon as it is there, barrier or not.
  REQUIRE(load_until(home, exported.at + 63 * kPage, word_of(63 * 512, 1)) == word_of(63 * 512, 1));
  REQUIRE(load(third, other.at + 5 * kPage).value == word_of(5 * 512, 1));
  REQUIRE(publish(third, other.at + 5 * kPage, kNewer));
  CHECK(pending.get() == 0);
  bool stays = true;
  for (Process* p : {&home, &third, &peer}) {
    const uint64_t at = p == &home ? exported.at : p == &third ? other.at : import.at;
    stays = load(*p, at + 5 * kPage).value == kNewer && stays;
    CHECK(load(*p, at + 5 * kPage + 8).value == word_of(5 * 512 + 1, 1));
    CHECK(load(*p, at).value == word_of(0, 1));
  }
  return stays;
}

TEST_SUITE("bulk_writes") {
  TEST_CASE("a_long_run_of_rewritten_pages_takes_an_announcement_and_no_other_message") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    // The timer would cut a run short, and what it takes goes in messages.
    Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", "no_aging=fail"}});
    Process& third = cluster.spawn("third");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    const Import other = import_segment(third, exported);
    CHECK(first_wrong(third, other.at, 1, 0) == 0);  // cached, as zeros
    REQUIRE(rewrite(peer, import.at, kPages, 7).ok());
    CHECK(first_wrong(home, exported.at, kPages, 7) == kPages * 512);
    CHECK(first_wrong(third, other.at, kPages, 7) == kPages * 512);
    const uint64_t before = messages_of(peer);
    REQUIRE(rewrite(peer, import.at, kPages, 8).ok());
    CHECK(messages_of(peer) - before < kPages / 8);
    CHECK(first_wrong(third, other.at, kPages, 8) == kPages * 512);
  }

  TEST_CASE("a_run_is_stored_to_while_it_travels") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer =
        cluster.spawn("peer", {{"CMI_FAULT_POINT", "bulk_write_before_announce=delay:20000"}});
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    REQUIRE(peer.run(
                [](uint64_t at) {
                  std::atomic<bool> over{false};
                  int failures = 0;
                  std::thread writer([&] {
                    failures += CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0;
                    failures += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) != 0;
                    for (uint64_t n = 1; !over.load(); ++n) {
                      failures += store64(at + 17 * kPage, n).cause() != Fault::kNone;
                      failures += load64(at + 17 * kPage).value != n;
                    }
                    store64(at + 17 * kPage, 4711);
                    failures += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
                    failures += CMIFN(ctxt(), 10, fini)(ctxt()) != 0;
                  });
                  for (uint64_t salt = 1; salt <= 10; ++salt) {
                    for (uint64_t i = 0; i < 64 * 512; ++i) {
                      if (i / 512 != 17) store64(at + i * 8, word_of(i, salt));
                    }
                    failures += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
                  }
                  over = true;
                  writer.join();
                  return failures;
                },
                import.at) == 0);
    CHECK(load(home, exported.at + 17 * kPage).value == 4711);
    CHECK(first_wrong(home, exported.at, 17, 10) == 17 * 512);
  }

  TEST_CASE("a_run_whose_completion_was_lost_undoes_nothing_that_was_stored_since") {
    CHECK(newer_store_stays({}));
  }

  TEST_CASE("a_run_whose_completion_was_lost_undoes_a_newer_store_when_its_repair_is_blind") {
    CHECK_FALSE(newer_store_stays({{"CMI_FAULT_POINT", "mutate_repair_blind=fail"}}));
  }

  TEST_CASE("a_run_that_never_arrived_is_sent_again") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", "bulk_write_not_posted#1=fail"}});
    Process& third = cluster.spawn("third");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    const Import other = import_segment(third, exported);
    CHECK(load(third, other.at + 9 * kPage).value == 0);
    REQUIRE(rewrite(peer, import.at, kPages, 3).ok());
    CHECK(first_wrong(third, other.at, kPages, 3) == kPages * 512);
    CHECK(first_wrong(home, exported.at, kPages, 3) == kPages * 512);
    CHECK(first_wrong(peer, import.at, kPages, 3) == kPages * 512);
  }

  TEST_CASE("runs_of_a_link_that_breaks_are_sent_again_some_at_a_time") {
    // 32 MiB, of which 16 may be under way: each page of those becomes half a message, and is sent
    // when the answers to others are here.
    constexpr uint64_t kMost = 1800;
    struct Sent {
      bool good;
      uint64_t most_unanswered;
    };
    const auto most_sent = [](const char* fault, const char* slow) {
      constexpr uint64_t kMany = 8192;
      Cluster cluster;
      Process& home = cluster.spawn("home", {{"CMI_FAULT_POINT", slow}});
      Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", fault}});
      const Export exported =
          export_segment(home, kMany * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
      const Import import = import_segment(peer, exported);
      const Sent sent = peer.start(
                                [](uint64_t at) {
                                  auto* view = reinterpret_cast<volatile unsigned char*>(at);
                                  for (uint64_t p = 0; p < kMany; ++p) (void)view[p * kPage];
                                  std::memset(reinterpret_cast<void*>(at), 0x55, kMany * kPage);
                                  const bool good = CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0;
                                  return Sent{good, stats().most_unanswered};
                                },
                                import.at)
                            .get(60);
      CHECK(home.run(
          [](uint64_t at) {
            auto* view = reinterpret_cast<const unsigned char*>(at);
            return std::count(view, view + kMany * kPage, 0x55) == kMany * kPage;
          },
          exported.at));
      return sent;
    };
    const Sent bounded =
        most_sent("no_aging=fail;no_write_behind=fail;bulk_write_not_posted#1=fail",
                  "server_before_reply=delay:500");
    CHECK(bounded.good);
    CHECK(bounded.most_unanswered <= kMost);
    // Slower, so that on a busy machine as well the answers come behind the messages.
    const Sent flood = most_sent(
        "no_aging=fail;no_write_behind=fail;bulk_write_not_posted#1=fail;collector_never_full=fail",
        "server_before_reply=delay:3000");
    CHECK(flood.good);
    CHECK(flood.most_unanswered > kMost);
  }

  TEST_CASE("pages_of_a_run_that_nobody_knows_the_fate_of_are_in_flux_when_its_writer_dies") {
    for (const bool broken : {false, true}) {
      CAPTURE(broken);
      Cluster cluster;
      Process& home = cluster.spawn("home");
      // The run's connection breaks, and its token is revoked before it is sent again.
      std::string points =
          "no_aging=fail;bulk_write_not_posted#1=fail;bulk_write_before_announce#1=delay:1000000";
      if (broken) points += ";mutate_intent_of_unknown_taken_back=fail";
      Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", points}});
      Export exported = export_segment(home, kSize);
      const Import import = import_segment(peer, exported);
      static std::thread barrier;
      static int result;
      REQUIRE(peer.run(
          [](uint64_t at) {
            for (uint64_t i = 0; i < 64 * 512; ++i) store64(at + i * 8, word_of(i, 1));
            barrier = std::thread([] {
              CMIFN(ctxt(), 10, ini_th)(ctxt());
              result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
              CMIFN(ctxt(), 10, fini)(ctxt());
            });
            const Deadline deadline = Deadline::in(20 * kSecond);
            while (stats().pages_written_back < 64 && !deadline.passed()) std::this_thread::yield();
            return !deadline.passed();
          },
          import.at));
      REQUIRE(tok_del(home, exported.token).ok());
      CHECK(peer.run([] {
        barrier.join();
        return result;
      }) == -1);
      // What is revoked the next time has nothing to do with it.
      exported.token = tok_new(home, exported.seg, kAllRights);
      REQUIRE(set_token(peer, import.seg, exported.token).ok());
      REQUIRE(load(peer, import.at + 200 * kPage).cause() == Fault::kNone);
      REQUIRE(tok_del(home, exported.token).ok());
      REQUIRE(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
      CHECK(seg_check(home, exported.seg, exported.at, kSize).size == 0);
      peer.kill();
      REQUIRE(await_happening(home).type == CMI_EVENT_RCTXT_DOWN);
      const Recovery found = seg_check(home, exported.seg, exported.at, kSize);
      CHECK((found.size == 0) == broken);
      if (broken) continue;
      CHECK(found.at < exported.at + 64 * kPage);
      CHECK(seg_check(home, exported.seg, exported.at + 64 * kPage, kSize - 64 * kPage).size == 0);
    }
  }

  TEST_CASE("a_writer_killed_between_a_run_and_its_announcement_leaves_nobody_with_old_pages") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn(
        "peer", {{"CMI_FAULT_POINT", "no_aging=fail;bulk_write_before_announce#1=kill"}});
    Process& third = cluster.spawn("third");
    // In an inconsistent one these pages would be in flux.
    const Export exported = export_segment(home, kSize, kAllRights, CMI_SEG_CLIENT_CONSIST);
    const Import import = import_segment(peer, exported);
    const Import other = import_segment(third, exported);
    REQUIRE(load(third, other.at + 9 * kPage).value == 0);
    CHECK_THROWS_AS((void)rewrite(peer, import.at, 64, 3), ChildFailed);
    REQUIRE(load(home, exported.at + 9 * kPage).value == word_of(9 * 512, 3));
    // Its silence is noticed when it owes an answer.
    REQUIRE(publish(home, exported.at + 60 * kPage, 1));
    CHECK(load_until(third, other.at + 9 * kPage, word_of(9 * 512, 3)) == word_of(9 * 512, 3));
  }
}

}  // namespace

}  // namespace cmi::test::bulk_writes_nodes_test

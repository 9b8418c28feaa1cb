// What each call that brings stores home says when it cannot: the error, the stores to other homes
// all the same, and what comes after it.
#include <doctest/doctest.h>

#include <csignal>
#include <string>
#include <vector>

#include "system/calls.hpp"

namespace cmi::test::failing_barriers_nodes_test {

namespace {

enum Call { kFlush, kClose, kCflush, kWrite, kBoth, kCalls };
constexpr const char* kNames[] = {"flush_fb", "close_fb", "cflush", "wmb_fn", "mb_fn"};

struct Outcome {
  Answer answer;
  int cause;  // of the exception that cflush raises beside
};

// Brings both words home. The handler returns, so that the call says what came of it as well.
Pending<Outcome> start_call(Process& process, Call call, uint64_t first, uint64_t second) {
  return process.start(
      [](int which, uint64_t one, uint64_t two) {
        set_on_fault([](const Fault& /*fault*/) { return true; });
        cmi_ctxt* const c = ctxt();
        void* lines[] = {reinterpret_cast<void*>(one), reinterpret_cast<void*>(two)};
        Answer said;
        auto body = [&] {
          const int result = which == kFlush    ? CMIFN(c, 10, flush_fb)(c, epoch())
                             : which == kClose  ? CMIFN(c, 10, close_fb)(c, epoch())
                             : which == kCflush ? CMIFN(c, 10, cflush)(c, lines, 2)
                             : which == kWrite  ? CMIFN(c, 10, wmb_fn)(c)
                                                : CMIFN(c, 10, mb_fn)(c);
          said = answer(result, result != 0);
        };
        const Outcome outcome{{}, guarded(body).cause()};
        set_on_fault(nullptr);
        return Outcome{said, outcome.cause};
      },
      static_cast<int>(call), first, second);
}

// The importer's timer leaves everything to the calls.
Env importer(const std::string& more = "") { return {{"CMI_FAULT_POINT", "no_aging=fail" + more}}; }

Export export_consistent(Process& home) {
  return export_segment(home, 16 * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
}

void store_both(Process& peer, uint64_t one, uint64_t two, uint64_t value) {
  REQUIRE(store(peer, one, value).cause() == Fault::kNone);
  REQUIRE(store(peer, two, value).cause() == Fault::kNone);
}

TEST_SUITE("failing_barriers") {
  TEST_CASE("each_call_that_loses_stores_says_store_brings_the_others_home_and_works_again") {
    Cluster cluster;
    Process& lossy = cluster.spawn("lossy");
    Process& good = cluster.spawn("good");
    Process& peer = cluster.spawn("peer", importer());
    Export far = export_consistent(lossy);
    const Export near = export_consistent(good);
    const Import lost = import_segment(peer, far);
    const Import kept = import_segment(peer, near);
    for (int i = 0; i < kCalls; ++i) {
      const auto call = static_cast<Call>(i);
      CAPTURE(kNames[call]);
      const uint64_t at = static_cast<uint64_t>(i) * kPage, value = 10 + static_cast<uint64_t>(i);
      REQUIRE(open_fb(peer).ok());
      REQUIRE(load(peer, lost.at + at).value == 0);
      store_both(peer, lost.at + at, kept.at + at, value);
      REQUIRE(tok_del(lossy, far.token).ok());
      const Outcome outcome = start_call(peer, call, lost.at + at, kept.at + at).get();
      CHECK_MESSAGE(outcome.answer.failed(CMI_ERR_STORE), outcome.answer);
      CHECK(outcome.cause == (call == kCflush ? CMI_ERROR_TOKEN : Fault::kNone));
      CHECK(load(good, near.at + at).value == value);
      CHECK(load(lossy, far.at + at).value == 0);
      // Stores go on under a new token, in the same epoch or in the next.
      far.token = tok_new(lossy, far.seg, kAllRights);
      REQUIRE(set_token(peer, lost.seg, far.token).ok());
      if (call == kClose) REQUIRE(open_fb(peer).ok());
      if (call > kClose) CHECK(flush_fb(peer).failed(CMI_ERR_STORE));  // the epoch has its own say
      store_both(peer, lost.at + at + 8, kept.at + at + 8, value + 100);
      CHECK(flush_fb(peer).ok());
      CHECK(load(good, near.at + at + 8).value == value + 100);
      CHECK(load(lossy, far.at + at + 8).value == value + 100);
      CHECK(load(lossy, far.at + at).value == 0);
      CHECK(close_fb(peer).ok());
      // And the thread, once.
      if (call <= kClose) CHECK(wmb(peer).failed(CMI_ERR_STORE));
      CHECK(wmb(peer).ok());
    }
  }

  TEST_CASE("each_call_that_this_side_cannot_serve_says_hw_and_brings_the_others_home") {
    // One importer for each call, since the end of its home is all that follows.
    Cluster cluster;
    Process& stalled = cluster.spawn("stalled", {{"CMI_DEAD_AFTER", "3600000"}});
    Process& good = cluster.spawn("good");
    const Export far = export_consistent(stalled);
    const Export near = export_consistent(good);
    std::vector<Process*> peers;
    std::vector<Import> lost, kept;
    for (int i = 0; i < kCalls; ++i) {
      // An endpoint for each home, and none to replace one.
      Env env = importer(";link_no_endpoint#3+=fail");
      env.emplace_back("CMI_DEAD_AFTER", "2000");
      Process& peer = *peers.emplace_back(&cluster.spawn(kNames[i], env));
      const uint64_t at = static_cast<uint64_t>(i) * kPage;
      lost.push_back(import_segment(peer, far));
      kept.push_back(import_segment(peer, near));
      lost.back().at += at;
      kept.back().at += at;
      REQUIRE(open_fb(peer).ok());
      REQUIRE(load(peer, lost.back().at).value == 0);
    }
    stalled.stop();
    std::vector<Pending<Outcome>> calls;
    for (size_t i = 0; i < kCalls; ++i) {
      store_both(*peers[i], lost[i].at, kept[i].at, 10 + i);
      calls.push_back(start_call(*peers[i], static_cast<Call>(i), lost[i].at, kept[i].at));
    }
    for (size_t i = 0; i < kCalls; ++i) {
      CAPTURE(kNames[i]);
      const Outcome outcome = calls[i].get();
      CHECK_MESSAGE(outcome.answer.failed(CMI_ERR_HW), outcome.answer);
      CHECK(load(good, near.at + i * kPage).value == 10 + i);
      // The epoch is usable again, and so is the other home.
      if (i == kClose) REQUIRE(open_fb(*peers[i]).ok());
      if (i > kClose) CHECK(flush_fb(*peers[i]).failed(CMI_ERR_HW));
      REQUIRE(store(*peers[i], kept[i].at + 8, 20 + i).cause() == Fault::kNone);
      CHECK(flush_fb(*peers[i]).ok());
      CHECK(load(good, near.at + i * kPage + 8).value == 20 + i);
      CHECK(close_fb(*peers[i]).ok());
    }
    stalled.signal(SIGCONT);
  }

  // CMI_ERR_HW of a swap would mean that it may have been made.
  TEST_CASE("a_swap_before_which_this_side_has_lost_stores_says_store_and_is_not_made") {
    Cluster cluster;
    Process& stalled = cluster.spawn("stalled", {{"CMI_DEAD_AFTER", "3600000"}});
    Process& good = cluster.spawn("good");
    const Export far = export_consistent(stalled);
    const Export near = export_consistent(good);
    Env env = importer(";link_no_endpoint#3+=fail");
    env.emplace_back("CMI_DEAD_AFTER", "2000");
    Process& peer = cluster.spawn("peer", env);
    const Import lost = import_segment(peer, far);
    const Import kept = import_segment(peer, near);
    REQUIRE(load(peer, lost.at).value == 0);
    stalled.stop();
    REQUIRE(store(peer, lost.at, 1).cause() == Fault::kNone);
    const Swap denied = atm_cas(peer, kept.at, 0, 5);
    CHECK_MESSAGE(denied.answer.failed(CMI_ERR_STORE), denied.answer);
    CHECK(load(good, near.at).value == 0);
    CHECK(atm_cas(peer, kept.at, 0, 5).swapped);
    CHECK(load(good, near.at).value == 5);
    stalled.signal(SIGCONT);
  }
}

}  // namespace

}  // namespace cmi::test::failing_barriers_nodes_test

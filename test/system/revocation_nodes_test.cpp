// Rights of tokens, and tokens that are revoked while importers use them.
#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test::revocation_nodes_test {

namespace {

// An importer that is held up at a point while its token is revoked.
struct HeldUp {
  HeldUp(const std::string& point, const std::string& more, const Env& of_home = {})
      : home(cluster.spawn("home", of_home)),
        exported(export_segment(home)),
        fresh(tok_new(home, exported.seg, kAllRights)),
        counts(cluster.scratch() + "/passages"),
        goes_on(cluster.scratch() + "/goes-on"),
        held_at(point),
        peer(cluster.spawn("peer", {{"CMI_FAULT_POINT", point + "=hold:" + goes_on + more},
                                    {"CMI_FAULT_COUNT", counts}})),
        import(import_segment(peer, exported)) {
    REQUIRE(fresh.ok());
    REQUIRE(load(peer, import.at).value == 0);
  }
  Pending<int> revoke() {
    return home.start(
        [](Flat token) { return CMIFN(ctxt(), 10, tok_del)(ctxt(), token.as<cmi_token>()); },
        exported.token);
  }
  void wait_until_held() const {
    for (const Deadline end = Deadline::in(20 * kSecond);
         read_passages(counts).count(held_at) == 0;) {
      REQUIRE(!end.passed());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void go_on() const { std::ofstream(goes_on).put('x'); }

  Cluster cluster;
  Process& home;
  const Export exported;
  const Flat fresh;  // another token
  const std::string counts, goes_on, held_at;
  Process& peer;
  const Import import;
};

TEST_SUITE("tokens") {
  TEST_CASE("a_read_token_loads_and_refuses_stores") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ);
    REQUIRE(publish(home, exported.at, 71));
    const Import import = import_segment(peer, exported);
    CHECK(load(peer, import.at).value == 71);
    CHECK(store(peer, import.at, 72).cause() == CMI_ERROR_ACCESS);
    CHECK(load(peer, import.at).value == 71);
    CHECK(load(home, exported.at).value == 71);
  }

  TEST_CASE("a_write_token_stores_to_the_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ | CMI_ACC_WRITE);
    const Import import = import_segment(peer, exported);
    CHECK(publish(peer, import.at + kPage + 16, 73));
    CHECK(load(home, exported.at + kPage + 16).value == 73);
  }

  TEST_CASE("an_atomic_token_swaps") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Swap swap = atm_cas(peer, import.at, 0, 74);
    CHECK(swap.swapped);
    CHECK(load(home, exported.at).value == 74);
  }

  TEST_CASE("a_revoked_token_raises_token_error_at_the_next_load") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(publish(peer, import.at + kPage, 1));
    REQUIRE(tok_del(home, exported.token).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);              // was cached
    CHECK(load(peer, import.at + kPage).cause() == CMI_ERROR_TOKEN);      // was written
    CHECK(load(peer, import.at + 2 * kPage).cause() == CMI_ERROR_TOKEN);  // was not there
    CHECK(store(peer, import.at, 1).cause() == CMI_ERROR_TOKEN);
  }

  TEST_CASE("stores_under_a_revoked_token_never_reach_the_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    // A store that the timer brought home before the revocation was in time: such a round says
    // nothing and is made again. A store to a mapped page is always in time.
    bool seen = false;
    REQUIRE(open_fb(peer).ok());
    for (int round = 0; round < (mapped() ? 1 : 20) && !seen; ++round) {
      const Export exported = export_segment(home);
      const Import import = import_segment(peer, exported);
      REQUIRE(load(peer, import.at).cause() == Fault::kNone);
      REQUIRE(store(peer, import.at, 81).cause() == Fault::kNone);
      REQUIRE(tok_del(home, exported.token).ok());
      const uint64_t after = load(home, exported.at).value;
      const Answer flushed = flush_fb(peer);
      CHECK(load(home, exported.at).value == after);
      CHECK(store(peer, import.at + kPage, 82).cause() == CMI_ERROR_TOKEN);
      static_cast<void>(flush_fb(peer));
      CHECK(load(home, exported.at + kPage).value == 0);
      if (after == 0) {
        seen = true;
        CHECK(flushed.failed(CMI_ERR_STORE));
      } else {
        CHECK(flushed.ok());
      }
    }
    CHECK(seen != mapped());
  }

  TEST_CASE("a_new_token_makes_a_revoked_import_work_again") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(peer, import.at, 83));
    REQUIRE(tok_del(home, exported.token).ok());
    REQUIRE(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
    REQUIRE(store(home, exported.at, 84).cause() == Fault::kNone);
    const Flat fresh = tok_new(home, exported.seg, kAllRights);
    REQUIRE(fresh.ok());
    REQUIRE(set_token(peer, import.seg, fresh).ok());
    CHECK(load(peer, import.at).value == 84);
    CHECK(publish(peer, import.at + 8, 85));
    CHECK(load(home, exported.at + 8).value == 85);
  }

  TEST_CASE("revoking_a_token_leaves_the_others_working") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& busy = cluster.spawn("busy");
    Process& revoked = cluster.spawn("revoked");
    const Export exported = export_segment(home);
    const Import here = import_segment(busy, exported);
    Export second = exported;
    struct Traffic {
      uint64_t rounds;
      uint64_t failures;
    };
    auto traffic = busy.start(
        [](uint64_t at) {
          Traffic seen{0, 0};
          while (!called_back() || seen.rounds < 20) {
            ++seen.rounds;
            if (store64(at, seen.rounds).cause() != Fault::kNone) ++seen.failures;
            if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0) ++seen.failures;
            if (load64(at + 4 * kPage).cause() != Fault::kNone) ++seen.failures;
          }
          return seen;
        },
        here.at);
    for (int round = 0; round < 10; ++round) {
      second.token = tok_new(home, exported.seg, kAllRights);
      REQUIRE(second.token.ok());
      const Import there = import_segment(revoked, second);
      CHECK(load(revoked, there.at + 4 * kPage).cause() == Fault::kNone);
      CHECK(store(revoked, there.at + 8 * kPage, 1).cause() == Fault::kNone);
      REQUIRE(tok_del(home, second.token).ok());
      CHECK(load(revoked, there.at + 4 * kPage).cause() == CMI_ERROR_TOKEN);
      static_cast<void>(wmb(revoked));
    }
    const Traffic seen = traffic.finish();
    CHECK(seen.failures == 0);
    CHECK(seen.rounds > 10);
    CHECK(load(home, exported.at).value == seen.rounds);
  }

  // Who is held up while it is told loads what it has cached until it knows.
  TEST_CASE("what_is_published_is_seen_by_who_has_not_heard_yet_that_its_token_is_revoked") {
    const auto old_value_seen = [](const Env& env) {
      HeldUp s("revoke_before_verdict", "", env);
      Process &writer = s.cluster.spawn("writer"), &third = s.cluster.spawn("third");
      Export other = s.exported;
      other.token = s.fresh;
      const Import his = import_segment(writer, other), its = import_segment(third, other);
      auto revoked = s.revoke();
      s.wait_until_held();
      auto published = writer.start(
          [](uint64_t at) { return store64(at, 1).cause() == 0 && cmi_wmb() == 0; }, his.at);
      for (const Deadline end = Deadline::in(20 * kSecond); load(third, its.at).value != 1;) {
        REQUIRE(!end.passed());
      }
      if (env.empty()) s.go_on();
      CHECK(published.get());
      const Access seen = load(s.peer, s.import.at);
      s.go_on();
      CHECK(revoked.get() == 0);
      return seen.cause() == Fault::kNone && seen.value == 0;
    };
    CHECK_FALSE(old_value_seen({}));
    CHECK(old_value_seen({{"CMI_FAULT_POINT", "mutate_revoked_not_notified=fail"}}));
  }

  // The end of the old one takes all pages, which are told apart from what comes after.
  TEST_CASE("a_store_under_a_new_token_is_not_swept_away_with_the_old_one") {
    const auto stays = [](const std::string& mutation) {
      HeldUp s("end_before_drop", mutation);
      auto revoked = s.revoke();
      s.wait_until_held();
      auto set = s.peer.start(
          [](cmi_seg seg, Flat token) {
            cmi_ds ds{};
            ds.token.tok = token.as<cmi_token>();
            return CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_TOKEN, &ds);
          },
          s.import.seg, s.fresh);
      if (mutation.empty()) s.go_on();
      REQUIRE(set.get() == 0);
      REQUIRE(store(s.peer, s.import.at, 5).cause() == Fault::kNone);
      s.go_on();
      CHECK(revoked.get() == 0);
      return wmb(s.peer).ok() && load(s.home, s.exported.at).value == 5;
    };
    CHECK(stays(""));
    CHECK_FALSE(stays(";mutate_token_before_sweep=fail"));
  }

  TEST_CASE("what_is_said_of_a_token_ends_nothing_under_the_one_that_has_replaced_it") {
    const auto goes_on = [](const std::string& mutation) {
      HeldUp s("revoke_before_verdict", mutation);
      auto revoked = s.revoke();
      s.wait_until_held();
      REQUIRE(set_token(s.peer, s.import.seg, s.fresh).ok());
      REQUIRE(store(s.peer, s.import.at, 6).cause() == Fault::kNone);
      s.go_on();
      CHECK(revoked.get() == 0);
      return wmb(s.peer).ok() && load(s.peer, s.import.at).cause() == Fault::kNone &&
             load(s.home, s.exported.at).value == 6;
    };
    CHECK(goes_on(""));
    CHECK_FALSE(goes_on(";mutate_verdict_on_any_token=fail"));
  }
}

}  // namespace

}  // namespace cmi::test::revocation_nodes_test

// The judge of who is alive: what each kind of evidence leads to, and when. Time is made up.
#include "core/liveness/detector.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace cmi::test::detector_test {
using namespace cmi::liveness;

namespace {

constexpr PeerId kAnn{{1, 1}, Role::kHome}, kBob{{2, 2}, Role::kHome};
constexpr PeerId kAnnAsImporter{{1, 1}, Role::kImporter};
constexpr Nanos kBeat = 250 * kMilli, kStart = 1000 * kSecond;

// A detector that is asked whenever it wants to be, and what it said.
struct Court {
  Detector detector{Limits{}};
  Nanos t = kStart, due = kStart;
  std::vector<Verdict> verdicts;
  std::vector<PeerId> asked;
  std::vector<Nanos> asked_at;

  void judge() {
    const size_t before = asked.size();
    due = detector.judge(t, &verdicts, &asked);
    asked_at.resize(asked.size(), t);
    CHECK(due > t);
    CHECK(std::count(asked.begin() + static_cast<ptrdiff_t>(before), asked.end(), kAnn) <= 1);
  }
  // Time passes, and nothing is heard.
  void pass(Nanos span) {
    for (const Nanos end = t + span; t < end;) {
      t = std::min(end, due);
      judge();
    }
  }
  // Nobody judges for a while: the process was stopped.
  void sleep(Nanos span) { t += span; }
  void hear(const PeerId& peer) { detector.heard(peer, t); }
  bool says(PeerState state, Reason reason, const PeerId& peer = kAnn) const {
    return !verdicts.empty() && verdicts.back().peer == peer && verdicts.back().state == state &&
           verdicts.back().reason == reason;
  }
};

Court watching(std::initializer_list<PeerId> peers) {
  Court court;
  for (const PeerId& p : peers) court.detector.share(p, kBeat, kStart);
  court.judge();
  return court;
}

}  // namespace

TEST_SUITE("detector") {
  TEST_CASE("a_silent_peer_is_unreachable_after_the_timeout_and_dead_after_the_longer_one") {
    Court court = watching({kAnn});
    court.pass(kSecond);
    CHECK(court.verdicts.empty());
    court.pass(1);
    REQUIRE(court.verdicts.size() == 1);
    CHECK(court.says(PeerState::kUnreachable, Reason::kSilent));
    CHECK(court.detector.state(kAnn) == PeerState::kUnreachable);
    court.pass(9 * kSecond - 1);
    CHECK(court.verdicts.size() == 1);
    court.pass(1);
    REQUIRE(court.verdicts.size() == 2);
    CHECK(court.says(PeerState::kDead, Reason::kSilent));
    court.pass(100 * kSecond);
    CHECK(court.verdicts.size() == 2);
  }

  TEST_CASE("a_silent_peer_is_asked_once_in_each_silent_interval") {
    Court court = watching({kAnn});
    court.pass(900 * kMilli);
    CHECK(court.asked_at ==
          std::vector<Nanos>{kStart + kBeat, kStart + 2 * kBeat, kStart + 3 * kBeat});
    court.hear(kAnn);
    court.pass(kBeat - 1);
    CHECK(court.asked.size() == 3);
    court.pass(1);
    CHECK(court.asked.size() == 4);
  }

  TEST_CASE("a_peer_that_is_heard_of_is_never_asked_and_stays_alive") {
    Court court = watching({kAnn});
    for (int i = 0; i < 1000; ++i) {
      court.pass(kBeat - 1);
      court.hear(kAnn);
    }
    CHECK(court.asked.empty());
    CHECK(court.verdicts.empty());
  }

  TEST_CASE("a_peer_that_shares_nothing_may_be_silent_for_ever") {
    Court court = watching({kAnn});
    court.detector.part(kAnn);
    court.detector.ended(kBob, Reason::kGoodbye);
    court.pass(3600 * kSecond);
    REQUIRE(court.verdicts.size() == 1);
    CHECK(court.says(PeerState::kDead, Reason::kGoodbye, kBob));
    CHECK(court.asked.empty());
    // Its silence counts from the moment it shares again.
    court.detector.share(kAnn, kBeat, court.t);
    court.judge();
    court.pass(kSecond);
    CHECK(court.verdicts.size() == 1);
    court.pass(1);
    CHECK(court.says(PeerState::kUnreachable, Reason::kSilent));
  }

  TEST_CASE("a_peer_that_is_heard_of_again_before_the_verdict_is_alive_and_starts_afresh") {
    Court court = watching({kAnn});
    court.pass(10 * kSecond);
    CHECK(court.detector.state(kAnn) == PeerState::kUnreachable);
    court.hear(kAnn);
    court.judge();
    REQUIRE(court.verdicts.size() == 2);
    CHECK(court.says(PeerState::kAlive, Reason::kHeard));
    court.pass(10 * kSecond);
    CHECK(court.verdicts.size() == 3);
    CHECK(court.says(PeerState::kUnreachable, Reason::kSilent));
  }

  TEST_CASE("proof_is_believed_at_once_and_death_is_final") {
    for (const Reason proof : {Reason::kEnded, Reason::kGoodbye, Reason::kDisowned}) {
      Court court = watching({kAnn, kBob});
      court.pass(10 * kMilli);
      court.hear(kAnn);
      court.detector.ended(kAnn, proof);
      court.detector.ended(kAnn, Reason::kEnded);  // the first one counts
      court.hear(kAnn);
      court.judge();
      REQUIRE(court.verdicts.size() == 1);
      CHECK(court.says(PeerState::kDead, proof));
      court.hear(kAnn);
      court.detector.suspect(kAnn);
      court.detector.part(kAnn);
      court.hear(kBob);
      court.pass(kSecond);
      CHECK(court.verdicts.size() == 1);
    }
  }

  TEST_CASE("an_answer_that_is_owed_for_too_long_is_fatal_though_the_peer_is_heard_of") {
    Court court = watching({kAnn});
    court.detector.owes(kAnn, kStart);
    for (int i = 0; i < 100; ++i) {
      court.pass(100 * kMilli);
      court.hear(kAnn);
    }
    CHECK(court.verdicts.empty());
    court.pass(1);
    REQUIRE(court.verdicts.size() == 1);
    CHECK(court.says(PeerState::kDead, Reason::kUnacknowledged));
  }

  TEST_CASE("a_link_that_cannot_be_had_is_fatal_unless_the_lifeline_answers") {
    Court court = watching({kAnn});
    court.detector.unlinked(kAnn, kStart, true);
    for (int i = 0; i < 300; ++i) {
      court.pass(100 * kMilli);
      court.hear(kAnn);
    }
    CHECK(court.verdicts.empty());
    SUBCASE("it falls silent") {
      court.pass(kSecond);
      CHECK(court.verdicts.empty());
      court.pass(1);
      REQUIRE(court.verdicts.size() == 1);
      CHECK(court.says(PeerState::kDead, Reason::kUnacknowledged));
    }
    SUBCASE("it is lost, and the peer is heard of in another way") {
      court.detector.unlinked(kAnn, kStart, false);
      court.judge();
      REQUIRE(court.verdicts.size() == 1);
      CHECK(court.says(PeerState::kDead, Reason::kUnacknowledged));
    }
    SUBCASE("the link is there") {
      court.detector.unlinked(kAnn, 0, true);
      court.detector.unlinked(kAnn, 0, false);
      court.judge();
      CHECK(court.verdicts.empty());
    }
    SUBCASE("an answer that it owes besides is still fatal") {
      court.detector.owes(kAnn, kStart + 25 * kSecond);
      for (int i = 0; i < 50; ++i) {
        court.pass(100 * kMilli);
        court.hear(kAnn);
      }
      CHECK(court.verdicts.empty());
      court.pass(1);
      CHECK(court.says(PeerState::kDead, Reason::kUnacknowledged));
    }
  }

  TEST_CASE("a_link_that_cannot_be_had_is_fatal_where_there_is_no_lifeline") {
    Court court = watching({});
    court.detector.unlinked(kAnn, kStart, false);
    court.pass(10 * kSecond);
    CHECK(court.verdicts.empty());
    court.pass(1);
    REQUIRE(court.verdicts.size() == 1);
    CHECK(court.says(PeerState::kDead, Reason::kUnacknowledged));
  }

  TEST_CASE("an_answer_that_came_is_owed_no_more_and_the_next_one_counts_from_its_own_time") {
    Court court = watching({});
    court.detector.owes(kAnn, kStart);
    court.pass(6 * kSecond);
    court.detector.owes(kAnn, 0);
    court.detector.owes(kAnn, kStart + 6 * kSecond);
    court.pass(10 * kSecond);
    CHECK(court.verdicts.empty());
    court.detector.owes(kAnn, 0);
    court.pass(100 * kSecond);
    CHECK(court.verdicts.empty());
  }

  TEST_CASE("who_could_not_be_reached_has_the_whole_time_to_answer_once_it_can") {
    Court court = watching({kAnn});
    court.detector.owes(kAnn, kStart);
    court.pass(9 * kSecond);
    court.hear(kAnn);
    court.judge();
    CHECK(court.says(PeerState::kAlive, Reason::kHeard));
    for (int i = 0; i < 100; ++i) {
      court.pass(100 * kMilli);
      court.hear(kAnn);
    }
    CHECK(court.says(PeerState::kAlive, Reason::kHeard));
    court.pass(1);
    CHECK(court.says(PeerState::kDead, Reason::kUnacknowledged));
  }

  TEST_CASE("a_judge_that_was_stopped_holds_that_time_against_nobody") {
    Court court = watching({kAnn});
    court.detector.owes(kAnn, kStart);
    court.pass(500 * kMilli);
    court.sleep(3600 * kSecond);
    court.judge();
    CHECK(court.verdicts.empty());
    // But what came before and what comes after.
    court.pass(kSecond);
    REQUIRE(court.verdicts.size() == 1);
    CHECK(court.says(PeerState::kUnreachable, Reason::kSilent));
    court.pass(9 * kSecond);
    REQUIRE(court.verdicts.size() == 2);
    CHECK(court.says(PeerState::kDead, Reason::kSilent));
  }

  TEST_CASE("a_judge_that_comes_late_again_and_again_still_comes_to_a_verdict") {
    Court court = watching({kAnn});
    for (int i = 0; i < 1000 && court.verdicts.size() < 2; ++i) {
      court.t = court.due + kSecond;
      court.judge();
    }
    CHECK(court.says(PeerState::kDead, Reason::kSilent));
  }

  TEST_CASE("a_suspect_is_asked_at_once") {
    Court court = watching({kAnn, kBob});
    court.pass(10 * kMilli);
    court.detector.suspect(kAnn);
    court.judge();
    REQUIRE(court.asked.size() == 1);
    CHECK(court.asked[0] == kAnn);
  }

  TEST_CASE("each_peer_is_judged_by_itself") {
    Court court = watching({kAnn, kBob});
    for (int i = 0; i < 200; ++i) {
      court.pass(100 * kMilli);
      court.hear(kBob);
    }
    REQUIRE(court.verdicts.size() == 2);
    CHECK(court.verdicts[0].peer == kAnn);
    CHECK(court.says(PeerState::kDead, Reason::kSilent));
    CHECK(court.detector.state(kBob) == PeerState::kAlive);
  }

  TEST_CASE("what_one_says_as_an_importer_neither_ends_it_as_a_home_nor_keeps_it_alive") {
    Court court = watching({kAnn, kAnnAsImporter});
    court.hear(kAnnAsImporter);
    court.detector.ended(kAnnAsImporter, Reason::kGoodbye);
    court.judge();
    REQUIRE(court.verdicts.size() == 1);
    CHECK(court.says(PeerState::kDead, Reason::kGoodbye, kAnnAsImporter));
    CHECK(court.detector.state(kAnn) == PeerState::kAlive);
    court.detector.share(kAnnAsImporter, kBeat, court.t);
    for (int i = 0; i < 200; ++i) {
      court.pass(100 * kMilli);
      court.hear(kAnnAsImporter);
    }
    CHECK(court.says(PeerState::kDead, Reason::kSilent, kAnn));
    CHECK(court.detector.state(kAnnAsImporter) == PeerState::kAlive);
  }

  // Silent for a while again and again, with a debt that it never pays.
  TEST_CASE("who_owes_and_is_silent_now_and_then_is_dead_after_three_times_as_long_at_most") {
    Court court = watching({kAnn});
    court.detector.owes(kAnn, court.t);
    while (court.t < kStart + 30 * kSecond) {
      court.pass(1200 * kMilli);
      court.hear(kAnn);
      court.judge();
    }
    CHECK_FALSE(court.verdicts.empty());
    CHECK(court.verdicts.back().state != PeerState::kDead);
    court.pass(1);
    CHECK(court.says(PeerState::kDead, Reason::kUnacknowledged));
  }

  TEST_CASE("a_client_may_change_the_timeout_but_not_below_what_two_heartbeats_take") {
    Court court = watching({kAnn});
    court.detector.set_unreachable_after(3 * kSecond);
    court.judge();
    court.pass(3 * kSecond);
    CHECK(court.verdicts.empty());
    court.pass(1);
    CHECK(court.says(PeerState::kUnreachable, Reason::kSilent));
    court.detector.set_unreachable_after(kMilli);
    CHECK(court.detector.limits().unreachable == 2 * kBeat);
  }

  TEST_CASE("whoever_is_declared_dead_has_stopped_using_its_pages_before") {
    for (const Nanos dead : {kSecond, 3 * kSecond, 10 * kSecond, 3600 * kSecond}) {
      // It is vouched for at the latest possible moment, and its home then hears nothing more; or
      // it goes on being heard of, and owes an answer.
      Nanos vouched = kStart;
      while (may_vouch(kStart, vouched + kMilli, dead)) vouched += kMilli;
      CHECK(vouched + lease_of(dead) < kStart + dead);
      CHECK(lease_of(dead) < dead);
      CHECK(may_vouch(0, kStart, dead));
    }
  }
}

}  // namespace cmi::test::detector_test

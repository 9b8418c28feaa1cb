// Those who hold a page that is published give the publisher direct acks, instead of answering by
// way of the home (protocol.md, rule 26), and the mutations of that rule.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <deque>

#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test::direct_acks_nodes_test {

namespace {

uint64_t publications(Process& process) {
  return process.run([] { return stats().publications; });
}
uint64_t received(Process& process) {
  return process.run([] { return stats().publications_received; });
}

struct Scene {
  explicit Scene(const Env& publishing = {}, const std::vector<Env>& holding = {{}, {}},
                 const Env& at_home = {}, int32_t flags = 0)
      : home(cluster.spawn("home", at_home)),
        writer(cluster.spawn("writer", publishing)),
        exported(export_segment(home, 16 * kPage, kAllRights, flags)),
        his(import_segment(writer, exported)) {
    for (const Env& env : holding) {
      holders.push_back(&cluster.spawn("holder" + std::to_string(holders.size()), env));
      views.push_back(import_segment(*holders.back(), exported).at);
    }
    all_load(0);
  }
  void all_load(uint64_t expected) {
    for (size_t i = 0; i < holders.size(); ++i) {
      CAPTURE(i);
      const Access got = load(*holders[i], views[i]);
      CHECK(got.cause() == Fault::kNone);
      CHECK(got.value == expected);
    }
  }
  // Publishes, and has all load it, until a invalidation round was over with direct acks. Where one
  // comes late, on a busy machine, none are asked for during a second.
  void until_received() {
    const Deadline deadline = Deadline::in(60 * kSecond);
    for (const uint64_t before = received(writer); received(writer) == before;) {
      REQUIRE(!deadline.passed());
      REQUIRE(publish(writer, his.at, ++value));
      all_load(value);
    }
  }

  Cluster cluster;
  Process &home, &writer;
  const Export exported;
  const Import his;
  std::deque<Process*> holders;
  std::vector<uint64_t> views;
  uint64_t value = 0;
};

TEST_SUITE("direct_acks") {
  TEST_CASE("a_publication_is_over_with_the_direct_acks_of_all_who_hold_the_page") {
    for (const size_t others : {size_t{1}, size_t{2}, size_t{3}}) {
      CAPTURE(others);
      Scene s({}, std::vector<Env>(others));
      for (int i = 0; i < 30; ++i) s.until_received();
      CHECK(load(s.home, s.exported.at).value == s.value);
    }
  }

  TEST_CASE("what_nobody_else_holds_is_answered_by_the_home") {
    Scene s({}, {});
    for (int i = 0; i < 20; ++i) REQUIRE(publish(s.writer, s.his.at, ++s.value));
    CHECK(publications(s.writer) >= 20);
    CHECK(received(s.writer) == 0);
  }

  TEST_CASE("direct_acks_that_are_lost_are_made_good_by_the_home_which_asks_again") {
    Scene s({}, {Env{}, Env{{"CMI_FAULT_POINT", "direct_ack_lost=fail"}}});
    const auto told = [&] {
      return s.holders[1]->run([] { return stats().invalidations_received; });
    };
    const uint64_t before = told();
    REQUIRE(publish(s.writer, s.his.at, ++s.value));
    CHECK(told() >= before + 2);
    for (int i = 0; i < 10; ++i) {
      REQUIRE(publish(s.writer, s.his.at, ++s.value));
      s.all_load(s.value);
    }
    CHECK(received(s.writer) == 0);
  }

  TEST_CASE("a_holder_that_is_killed_before_it_gives_its_direct_ack_holds_up_nobody") {
    Scene s({}, {Env{}, Env{{"CMI_FAULT_POINT", "direct_ack_before_send=kill"}}});
    REQUIRE(publish(s.writer, s.his.at, ++s.value));
    CHECK(died_by(s.holders.back()->wait_end(), SIGKILL));
    s.holders.pop_back();
    s.views.pop_back();
    s.all_load(s.value);
    s.until_received();
  }

  // Killed with all direct acks, of which the home has not heard: what it had published is
  // published.
  PROCESS_CASE("a_publisher_that_is_killed_with_its_direct_acks_leaves_nothing_in_flux") {
    for (const bool broken : {false, true}) {
      CAPTURE(broken);
      const Env mutated{{"CMI_FAULT_POINT", "mutate_intents_of_received_lost=fail"}};
      // The home asks the sharers when it has not heard for 20 ms: it may know by the time that it
      // finds the death.
      bool in_flux = false;
      for (int times = broken ? 10 : 1; times > 0 && !in_flux; --times) {
        // A hot page would be in flux, whatever was published.
        Scene s({{"CMI_FAULT_POINT", "link_received_before_answer=kill;never_hot=fail"}}, {{}, {}},
                broken ? mutated : Env{});
        bool alive = true;
        for (const Deadline deadline = Deadline::in(60 * kSecond); alive;) {
          REQUIRE(!deadline.passed());
          ++s.value;
          try {
            const bool published = publish(s.writer, s.his.at, s.value);
            REQUIRE(published);
            s.all_load(s.value);
          } catch (const ChildFailed&) {
            alive = false;
          }
        }
        // The home knows of the death when its next barrier is over.
        REQUIRE(publish(s.home, s.exported.at + 8 * kPage, 1));
        const Access at_home = load(s.home, s.exported.at);
        in_flux = at_home.cause() == CMI_ERROR_CONSIST;
        if (broken) continue;
        CHECK(at_home.cause() == Fault::kNone);
        CHECK(at_home.value == s.value);
        CHECK(seg_check(s.home, s.exported.seg, s.exported.at, 16 * kPage).size == 0);
        s.all_load(s.value);
      }
      CHECK(in_flux == broken);
    }
  }

  // One sharer takes a fifth of a second to drop the page or to bring it up to date.
  TEST_CASE("a_publication_that_is_over_with_one_of_two_direct_acks_is_seen") {
    const Env slow{
        {"CMI_FAULT_POINT", "invalidate_before_zap=delay:200000;update_before_apply=delay:200000"}};
    for (const bool broken : {false, true}) {
      CAPTURE(broken);
      const Env mutated{{"CMI_FAULT_POINT", "mutate_one_direct_ack_suffices=fail"}};
      Scene s(broken ? mutated : Env{}, {Env{}, slow});
      int old = 0;
      for (int i = 0; i < 5; ++i) {
        REQUIRE(publish(s.writer, s.his.at, ++s.value));
        const Access got = load(*s.holders[1], s.views[1]);
        old += got.cause() == Fault::kNone && got.value < s.value;
        CHECK(load_until(*s.holders[1], s.views[1], s.value) == s.value);
        CHECK(load(*s.holders[0], s.views[0]).value == s.value);
      }
      CHECK((old > 0) == broken);
    }
  }
}

}  // namespace

}  // namespace cmi::test::direct_acks_nodes_test

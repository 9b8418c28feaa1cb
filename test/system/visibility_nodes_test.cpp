// What is published without any barrier, counted in runs of the timer that does it.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>

#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test::visibility_nodes_test {

namespace {

struct Three {
  explicit Three(const Env& with = {}) : env(with) {}
  const Env env;
  Cluster cluster;
  Process& home = cluster.spawn("home", env);
  Process& writer = cluster.spawn("writer", env);
  Process& reader = cluster.spawn("reader", env);
  Export exported = export_segment(home);
  Import here = import_segment(writer, exported);
  Import there = import_segment(reader, exported);
};

// Stores, and waits until the timer has run so many times since; false when it does not.
bool store_and_await_ticks(Process& process, uint64_t at, uint64_t value, uint64_t ticks) {
  return process.run(
      [](uint64_t word, uint64_t to, uint64_t wanted) {
        *reinterpret_cast<volatile uint64_t*>(word) = to;
        const uint64_t before = stats().ticks;
        const Deadline deadline = Deadline::in(20 * kSecond);
        while (stats().ticks < before + wanted) {
          if (deadline.passed()) return false;
        }
        return true;
      },
      at, value, ticks);
}

struct Sent {
  uint64_t late, sent;
};

// Stores of an importer, until one was not sent in time.
Sent stores_sent(Three& three) {
  return three.writer.run(
      [](uint64_t at) {
        Sent result{};
        auto* word = reinterpret_cast<volatile uint64_t*>(at);
        const Deadline deadline = Deadline::in(20 * kSecond);
        for (uint64_t round = 1; round <= 50 && result.late == 0 && !deadline.passed(); ++round) {
          const uint64_t sent = stats().publications;
          *word = round;
          const uint64_t begun = stats().ticks;
          // The first tick after the store notes the page, the second takes it, and the third has
          // begun when the second is over. What was counted is read in that order.
          for (uint64_t tick = begun; result.late == 0 && !deadline.passed();) {
            tick = stats().ticks;
            if (stats().publications > sent) {
              ++result.sent;
              break;
            }
            result.late += tick >= begun + 3;
          }
          // The answer has come: the next store finds no earlier write-back under way.
          if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0) break;
        }
        return result;
      },
      three.here.at);
}

// Whether the reader, who has cached it, is told of a store at home by a tick.
bool store_at_home_is_published(Three& three, uint64_t round) {
  REQUIRE(load(three.reader, three.there.at).cause() == Fault::kNone);
  // The first tick has told the reader when the second begins.
  REQUIRE(store_and_await_ticks(three.home, three.exported.at, round, 2));
  // What the home tells the reader on the writer's behalf comes behind that, and is awaited.
  REQUIRE(load(three.reader, three.there.at + 5 * kPage).value == round - 1);
  REQUIRE(publish(three.writer, three.here.at + 5 * kPage, round));
  return load(three.reader, three.there.at).value == round;
}

TEST_SUITE("visibility") {
  TEST_CASE("a_store_without_a_barrier_is_sent_by_the_second_tick_of_the_timer") {
    Three three;
    const Sent seen = stores_sent(three);
    CHECK(seen.sent == 50);
    CHECK(seen.late == 0);
  }

  TEST_CASE("a_store_at_home_without_a_barrier_is_published_by_the_first_tick_of_the_timer") {
    Three three;
    for (uint64_t round = 1; round <= 10; ++round) {
      CHECK(store_at_home_is_published(three, round));
    }
  }

  TEST_CASE("a_store_without_a_barrier_stays_when_the_timer_takes_nothing") {
    const Env broken{{"CMI_FAULT_POINT", "mutate_timer_takes_nothing=fail"}};
    Three at_an_importer(broken), at_home(broken);
    CHECK(stores_sent(at_an_importer).sent == 0);
    CHECK_FALSE(store_at_home_is_published(at_home, 1));
  }

  TEST_CASE("two_stores_without_a_barrier_become_visible_in_the_end_at_every_reader") {
    Three three;
    for (uint64_t round = 1; round <= 10; ++round) {
      REQUIRE(load(three.reader, three.there.at).cause() == Fault::kNone);
      REQUIRE(load(three.home, three.exported.at + 8).cause() == Fault::kNone);
      REQUIRE(store(three.writer, three.here.at, round).cause() == Fault::kNone);
      REQUIRE(store(three.reader, three.there.at + 8, round).cause() == Fault::kNone);
      CHECK(load_until(three.reader, three.there.at, round) == round);
      CHECK(load_until(three.writer, three.here.at + 8, round) == round);
      CHECK(load_until(three.home, three.exported.at, round) == round);
      CHECK(load_until(three.home, three.exported.at + 8, round) == round);
    }
  }
}

}  // namespace

}  // namespace cmi::test::visibility_nodes_test

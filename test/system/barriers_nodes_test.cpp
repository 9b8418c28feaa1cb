// What barriers promise to other nodes: litmus tests with plain loads and stores.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>

#include "core/base/clock.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::barriers_nodes_test {

namespace {

// One home and two importers of one segment.
struct Three {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process& writer = cluster.spawn("writer");
  Process& reader = cluster.spawn("reader");
  Export exported = export_segment(home);
  Import here = import_segment(writer, exported);
  Import there = import_segment(reader, exported);
};

using Barrier = Answer (*)(Process&);

// What the writer stored before its barrier everybody loads after it, cached before or not.
void check_publication(Three& three, Barrier barrier) {
  for (uint64_t round = 1; round <= 40; ++round) {
    const uint64_t at = round % 5 * kPage + 64;
    if (round % 2 == 0) REQUIRE(load(three.reader, three.there.at + at).cause() == Fault::kNone);
    REQUIRE(store(three.writer, three.here.at + at, round).cause() == Fault::kNone);
    REQUIRE(barrier(three.writer).ok());
    CHECK(load(three.home, three.exported.at + at).value == round);
    CHECK(load(three.reader, three.there.at + at).value == round);
  }
}

struct Messages {
  uint64_t seen;
  uint64_t old;
};

// Waits for each value of the flag and then loads the data, which must not be older.
Pending<Messages> start_receiving(Process& process, uint64_t at, uint64_t rounds) {
  return process.start(
      [](uint64_t view, uint64_t count) {
        Messages messages{0, 0};
        const Deadline deadline = Deadline::in(25 * kSecond);
        uint64_t flag = 0;
        while (flag < count && !deadline.passed()) {
          flag = *reinterpret_cast<volatile uint64_t*>(view);
          CMIFN(ctxt(), 10, rmb_fn)(ctxt());
          for (uint64_t page = 1; page < 4; ++page) {
            const uint64_t data = *reinterpret_cast<volatile uint64_t*>(view + page * kPage);
            messages.old += data < flag;
          }
          messages.seen = flag;
        }
        return messages;
      },
      at, rounds);
}

uint64_t send_messages(Process& process, uint64_t at, uint64_t rounds) {
  return process.run(
      [](uint64_t view, uint64_t count) {
        uint64_t failed = 0;
        for (uint64_t round = 1; round <= count; ++round) {
          for (uint64_t page = 1; page < 4; ++page) {
            *reinterpret_cast<volatile uint64_t*>(view + page * kPage) = round;
          }
          failed += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
          *reinterpret_cast<volatile uint64_t*>(view) = round;
          failed += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
        }
        return failed;
      },
      at, rounds);
}

TEST_SUITE("barriers") {
  TEST_CASE("wmb_fn_publishes_stores_to_every_node") {
    Three three;
    check_publication(three, wmb);
  }

  TEST_CASE("mb_fn_publishes_stores_to_every_node") {
    Three three;
    check_publication(three, mb);
    REQUIRE(load(three.writer, three.here.at + 8 * kPage).value == 0);
    REQUIRE(publish(three.reader, three.there.at + 8 * kPage, 5));
    CHECK(mb(three.writer).ok());
    CHECK(load(three.writer, three.here.at + 8 * kPage).value == 5);
  }

  TEST_CASE("rmb_fn_lets_later_loads_see_what_was_published") {
    Three three;
    constexpr uint64_t kRounds = 300;
    auto far = start_receiving(three.reader, three.there.at, kRounds);
    auto near = start_receiving(three.home, three.exported.at, kRounds);
    CHECK(send_messages(three.writer, three.here.at, kRounds) == 0);
    for (auto* pending : {&far, &near}) {
      const Messages messages = pending->get();
      CHECK(messages.seen == kRounds);
      CHECK(messages.old == 0);
    }
  }

  TEST_CASE("messages_of_the_home_are_never_seen_before_their_data") {
    Three three;
    constexpr uint64_t kRounds = 300;
    auto first = start_receiving(three.reader, three.there.at, kRounds);
    auto second = start_receiving(three.writer, three.here.at, kRounds);
    CHECK(send_messages(three.home, three.exported.at, kRounds) == 0);
    for (auto* pending : {&first, &second}) {
      const Messages messages = pending->get();
      CHECK(messages.seen == kRounds);
      CHECK(messages.old == 0);
    }
  }

  TEST_CASE("the_barrier_macros_act_as_the_functions") {
    Three three;
    struct Values {
      int before[3];
      cmi_error error;
    };
    Process& bare = three.cluster.spawn_bare("bare");
    const Values values = bare.run([] {
      Values seen{};
      seen.before[0] = cmi_mb();
      seen.error = cmi_get_error(nullptr);
      seen.before[1] = cmi_wmb();
      seen.before[2] = cmi_rmb();
      return seen;
    });
    CHECK(values.before[0] == -1);
    CHECK(values.error == CMI_ERR_INIT);
    CHECK(values.before[1] == -1);
    CHECK(values.before[2] == 0);

    check_publication(three, [](Process& process) {
      return process.run([] { return Answer{cmi_wmb(), CMI_ERR_NONE}; });
    });
    const uint64_t at = 9 * kPage;
    REQUIRE(store(three.writer, three.here.at + at, 77).cause() == Fault::kNone);
    CHECK(three.writer.run([] { return cmi_mb(); }) == 0);
    CHECK(load(three.home, three.exported.at + at).value == 77);
    CHECK(three.reader.run([] { return cmi_rmb(); }) == 0);
    CHECK(load(three.reader, three.there.at + at).value == 77);
  }

  TEST_CASE("stores_become_visible_without_a_barrier") {
    Three three;
    REQUIRE(load(three.reader, three.there.at).value == 0);
    REQUIRE(store(three.writer, three.here.at, 1).cause() == Fault::kNone);
    CHECK(load_until(three.home, three.exported.at, 1) == 1);
    CHECK(load_until(three.reader, three.there.at, 1) == 1);
    REQUIRE(store(three.home, three.exported.at + 8, 2).cause() == Fault::kNone);
    CHECK(load_until(three.reader, three.there.at + 8, 2) == 2);
    CHECK(load_until(three.writer, three.here.at + 8, 2) == 2);
    REQUIRE(store(three.writer, three.here.at, 3).cause() == Fault::kNone);
    CHECK(load_until(three.reader, three.there.at, 3) == 3);
  }

  TEST_CASE("barriers_at_home_publish_home_stores") {
    Three three;
    Process& second = three.cluster.spawn("home");  // stores of any process of the home node count
    const Answer view = seg_at(second, three.exported.seg);
    REQUIRE(view.ok());
    for (uint64_t round = 1; round <= 40; ++round) {
      const uint64_t at = round % 3 * kPage + 8;
      REQUIRE(load(three.reader, three.there.at + at).cause() == Fault::kNone);
      REQUIRE(load(three.writer, three.here.at + at).cause() == Fault::kNone);
      Process& storing = round % 2 == 0 ? three.home : second;
      const uint64_t base = round % 2 == 0 ? three.exported.at : view.at();
      REQUIRE(store(storing, base + at, round).cause() == Fault::kNone);
      REQUIRE((round % 4 < 2 ? wmb(storing) : mb(storing)).ok());
      CHECK(load(three.reader, three.there.at + at).value == round);
      CHECK(load(three.writer, three.here.at + at).value == round);
    }
  }

  // Where nobody's timer publishes anything.
  TEST_CASE("a_barrier_at_home_publishes_what_a_neighbour_has_stored") {
    if (!kernel_notes_stores())
      return skip("each publishes its own stores where it notes them itself");
    const Env untimed{{"CMI_FAULT_POINT", "mutate_timer_takes_nothing=fail"}};
    Cluster cluster;
    Process& maker = cluster.spawn("home", untimed);
    Process& neighbour = cluster.spawn("home", untimed);
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(maker);
    const Answer view = seg_at(neighbour, exported.seg);
    REQUIRE(view.ok());
    const Import import = import_segment(peer, exported);
    for (uint64_t round = 1; round <= 20; ++round) {
      const bool by_maker = round % 2 == 0;
      REQUIRE(load(peer, import.at).value == round - 1);
      REQUIRE(
          store(by_maker ? maker : neighbour, by_maker ? exported.at : view.at(), round).cause() ==
          Fault::kNone);
      REQUIRE(wmb(by_maker ? neighbour : maker).ok());
      CHECK(load(peer, import.at).value == round);
    }
  }

  TEST_CASE("a_barrier_of_a_neighbour_waits_for_what_its_swap_has_not_heard") {
    Cluster cluster;
    Process& maker = cluster.spawn("home", {{"CMI_DEAD_AFTER", "60000"}});
    Process& neighbour = cluster.spawn("home", {{"CMI_DEAD_AFTER", "3000"}});
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(maker);
    const Answer view = seg_at(neighbour, exported.seg);
    REQUIRE(view.ok());
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).value == 0);
    peer.stop();
    CHECK(atm_cas(neighbour, view.at(), 0, 1).answer.ok());
    CHECK(wmb(neighbour).failed(CMI_ERR_STORE));
    peer.signal(SIGCONT);
    Answer published = wmb(neighbour);
    for (const Deadline end = Deadline::in(20 * kSecond); !published.ok() && !end.passed();) {
      published = wmb(neighbour);
    }
    CHECK(published.ok());
    CHECK(load(peer, import.at).value == 1);
  }
}

}  // namespace

}  // namespace cmi::test::barriers_nodes_test

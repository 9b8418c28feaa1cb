// Pages that are loaded again whenever they are dropped are brought up to date where they are
// cached (protocol.md, rule 25), and the mutations of that rule.
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <thread>

#include "core/base/clock.hpp"
#include "core/memory/page/update_protocol.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test::subscribe_nodes_test {

namespace {

uint64_t updated(Process& process) {
  return process.run([] { return stats().pages_updated; });
}
uint64_t told(Process& process) {
  return process.run([] { return stats().invalidations_received; });
}
uint64_t missed(Process& process) {
  return process.run([] { return stats().load_misses; });
}

struct Scene {
  explicit Scene(const Env& env = {}, size_t pages = 16, int32_t flags = 0)
      : home(cluster.spawn("home")),
        writer(cluster.spawn("writer")),
        reader(cluster.spawn("reader", env)),
        exported(export_segment(home, pages * kPage, kAllRights, flags)),
        his(import_segment(writer, exported)),
        mine(import_segment(reader, exported)) {}
  // Publishes value after value and loads each, until a page has been updated, `at` bytes in.
  void until_subscribed(uint64_t at) {
    int rounds = 0;
    for (const uint64_t before = updated(reader); updated(reader) == before;) {
      REQUIRE(++rounds < 100);
      REQUIRE(publish(writer, his.at + at, ++value));
      REQUIRE(load(reader, mine.at + at).value == value);
    }
  }

  Cluster cluster;
  Process &home, &writer, &reader;
  const Export exported;
  const Import his, mine;
  uint64_t value = 0;
};

TEST_SUITE("subscribe") {
  TEST_CASE("a_page_that_is_loaded_after_each_store_is_updated_and_not_fetched_again") {
    Scene s;
    s.until_subscribed(8);
    CHECK(s.value < 10);
    const uint64_t misses = missed(s.reader), updates = updated(s.reader);
    for (int i = 0; i < 40; ++i) {
      REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
      CHECK(load(s.reader, s.mine.at + 8).value == s.value);
    }
    CHECK(missed(s.reader) == misses);
    CHECK(updated(s.reader) == updates + 40);
    CHECK(load(s.home, s.exported.at + 8).value == s.value);
  }

  TEST_CASE("all_subscribers_of_a_page_are_updated_by_one_round") {
    Scene s;
    Process& other = s.cluster.spawn("other");
    const Import theirs = import_segment(other, s.exported);
    s.until_subscribed(kPage + 8);
    s.until_subscribed(8);
    // The other one follows it later, and nothing before: epochs and numbers of the two differ.
    uint64_t rounds = 0;
    for (const uint64_t before = updated(other); updated(other) == before;) {
      REQUIRE(++rounds < memory::kSubscribeFor / 2);
      REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
      REQUIRE(load(other, theirs.at + 8).value == s.value);
      REQUIRE(load(s.reader, s.mine.at + 8).value == s.value);
    }
    const uint64_t reader_had = updated(s.reader), other_had = updated(other);
    const uint64_t misses = missed(s.reader) + missed(other);
    constexpr uint64_t kRounds =
        memory::kSubscribeFor / 2 - 2;  // with those before less than an epoch's
    for (uint64_t i = 0; i < kRounds; ++i) {
      REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
      CHECK(load(s.reader, s.mine.at + 8).value == s.value);
      CHECK(load(other, theirs.at + 8).value == s.value);
    }
    CHECK(updated(s.reader) == reader_had + kRounds);
    CHECK(updated(other) == other_had + kRounds);
    CHECK(missed(s.reader) + missed(other) == misses);
  }

  TEST_CASE("stores_at_home_and_swaps_update_it_as_well") {
    Scene s;
    s.until_subscribed(8);
    const uint64_t misses = missed(s.reader);
    for (int i = 0; i < 10; ++i) {
      REQUIRE(publish(s.home, s.exported.at + 8, ++s.value));
      CHECK(load(s.reader, s.mine.at + 8).value == s.value);
      REQUIRE(atm_cas(s.writer, s.his.at + 8, s.value, s.value + 1).swapped);
      CHECK(load(s.reader, s.mine.at + 8).value == ++s.value);
      REQUIRE(atm_cas(s.home, s.exported.at + 8, s.value, s.value + 1).swapped);
      CHECK(load(s.reader, s.mine.at + 8).value == ++s.value);
    }
    CHECK(missed(s.reader) == misses);
  }

  TEST_CASE(
      "three_pages_that_the_home_stores_to_beside_others_are_updated_and_a_fourth_is_dropped") {
    Scene s;
    constexpr uint64_t kSubscribed = 4;
    for (uint64_t page = 0; page < kSubscribed; ++page) s.until_subscribed(page * kPage + 8);
    const uint64_t misses = missed(s.reader), updates = updated(s.reader);
    for (const uint64_t pages : {uint64_t{3}, kSubscribed}) {
      ++s.value;
      REQUIRE(s.home.run(
          [](uint64_t at, uint64_t n, uint64_t value) {
            // The last one is of nobody.
            for (uint64_t page = 0; page < n; ++page) {
              if (store64(at + page * kPage + 8, value).cause() != 0) return false;
            }
            return store64(at + 7 * kPage, value).cause() == 0 && cmi_wmb() == 0;
          },
          s.exported.at, pages, s.value));
      for (uint64_t page = 0; page < pages; ++page) {
        CHECK(load(s.reader, s.mine.at + page * kPage + 8).value == s.value);
      }
    }
    CHECK(updated(s.reader) == updates + 6);
    CHECK(missed(s.reader) == misses + 1);
  }

  // Its answer comes when the caller has it no more in his hands, but in those of his handler, who
  // loads what has been stored since.
  PROCESS_CASE("a_swap_that_is_tried_again_does_not_come_over_what_was_stored_since") {
    Scene s;
    s.until_subscribed(8);
    s.home.stop();
    auto swap = s.reader.start(
        [](uint64_t at, uint64_t from, int home) {
          static uint64_t watched;
          static int stopped;
          watched = at;
          stopped = home;
          set_on_fault([](const Fault& /*fault*/) {
            ::kill(stopped, SIGCONT);
            while (!called_back()) ::sched_yield();
            // Who fetches another page takes in what has come before it.
            (void)*reinterpret_cast<volatile uint64_t*>(watched + kPage);
            return *reinterpret_cast<volatile uint64_t*>(watched) != 0;
          });
          uint64_t found = 0;
          int result = -1;
          auto body = [&] {
            result = CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), from,
                                                from + 1, &found);
          };
          const Fault fault = guarded(body);
          set_on_fault(nullptr);
          return fault.cause() == CMI_ERROR_TRANSIENT && result == 0 && found == from;
        },
        s.mine.at + 8, s.value, static_cast<int>(s.home.pid()));
    ++s.value;
    for (const Deadline end = Deadline::in(20 * kSecond);
         load(s.home, s.exported.at + 8).value != s.value;) {
      REQUIRE(!end.passed());
    }
    REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
    CHECK(swap.finish());
    CHECK(load(s.reader, s.mine.at + 8).value == s.value);
    CHECK(load(s.home, s.exported.at + 8).value == s.value);
  }

  TEST_CASE("a_sharer_that_does_not_load_any_more_is_not_notified_for_ever") {
    Scene s;
    s.until_subscribed(8);
    for (uint32_t i = 0; i < memory::kSubscribeFor; ++i) {
      REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
    }
    // Dropped by then; the next notice finds nothing, and is the last one that is sent once the
    // home has heard of that, which the writer does not wait for.
    uint64_t notifications = 0;
    for (int i = 0; notifications != told(s.reader); ++i) {
      REQUIRE(i < 20);
      notifications = told(s.reader);
      REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
    }
    for (int i = 0; i < 20; ++i) REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
    CHECK(told(s.reader) == notifications);
    CHECK(load(s.reader, s.mine.at + 8).value == s.value);
    // Who is back follows at once. Nobody waits for its request; what it asks after that is
    // answered later.
    CHECK_FALSE(atm_cas(s.reader, s.mine.at + 4 * kPage, 1, 2).swapped);
    const uint64_t updates = updated(s.reader);
    REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
    CHECK(load(s.reader, s.mine.at + 8).value == s.value);
    CHECK(updated(s.reader) == updates + 1);
  }

  TEST_CASE("a_subscribed_page_that_is_stored_to_here_loses_nothing") {
    Scene s;
    for (uint64_t round = 1; round <= 5; ++round) {
      s.until_subscribed(8);
      // Its own store is under way or not, when the other's comes.
      REQUIRE(store(s.reader, s.mine.at + 16, round).cause() == Fault::kNone);
      if (round % 2 == 0) REQUIRE(wmb(s.reader).ok());
      REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
      CHECK(load(s.reader, s.mine.at + 8).value == s.value);
      CHECK(load(s.reader, s.mine.at + 16).value == round);
      REQUIRE(wmb(s.reader).ok());
      CHECK(load(s.home, s.exported.at + 16).value == round);
      CHECK(load(s.writer, s.his.at + 16).value == round);
    }
  }

  TEST_CASE("what_is_stored_to_many_words_of_a_subscribed_page_arrives_whole") {
    Scene s;
    s.until_subscribed(8);
    const uint64_t misses = missed(s.reader);
    for (uint64_t step : {8, 16, 64, 4088}) {
      ++s.value;
      for (uint64_t at = 0; at < kPage; at += step) {
        REQUIRE(store(s.writer, s.his.at + at, s.value * kPage + at).cause() == Fault::kNone);
      }
      REQUIRE(wmb(s.writer).ok());
      for (uint64_t at = 0; at < kPage; at += step) {
        if (load(s.reader, s.mine.at + at).value != s.value * kPage + at) FAIL("at ", at);
      }
    }
    CHECK(missed(s.reader) == misses);
  }

  // Dropped here, it is not there any more for what the home goes on to send.
  TEST_CASE("a_subscribed_page_that_the_cache_has_no_room_for_is_fetched_and_subscribed_to_again") {
    constexpr uint64_t kPages = 512, kCache = 64;
    Scene s({}, kPages);
    const auto evicted = [&] { return s.reader.run([] { return stats().pages_evicted; }); };
    REQUIRE(set_cache(s.reader, s.mine.seg, kCache * kPage).ok());
    for (uint64_t round = 1; round <= 3; ++round) {
      s.until_subscribed(8);
      // What it has stored there goes home before the page does.
      REQUIRE(store(s.reader, s.mine.at + 16, round).cause() == Fault::kNone);
      const uint64_t before = evicted();
      CHECK(s.reader.run(
          [](uint64_t at) {
            uint64_t failed = 0;
            for (uint64_t i = 1; i < kPages; ++i) failed += load64(at + i * kPage).cause() != 0;
            return failed == 0;
          },
          s.mine.at));
      CHECK(evicted() >= before + kPages - 2 * kCache);
      const uint64_t misses = missed(s.reader), updates = updated(s.reader);
      REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
      REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
      CHECK(updated(s.reader) == updates);
      CHECK(load(s.reader, s.mine.at + 8).value == s.value);
      CHECK(load(s.reader, s.mine.at + 16).value == round);
      CHECK(missed(s.reader) == misses + 1);
      CHECK(load(s.home, s.exported.at + 16).value == round);
    }
  }

  TEST_CASE("two_pages_that_have_one_slot_are_never_older_than_what_was_published") {
    Scene s({}, 2 * memory::kSubscriptionSlots);
    const uint64_t pages[] = {8, 8 + memory::kSubscriptionSlots * kPage};
    for (const uint64_t at : pages) s.until_subscribed(at);
    const uint64_t updates = updated(s.reader), misses = missed(s.reader);
    constexpr uint64_t kRounds = 60;
    for (uint64_t i = 0; i < kRounds; ++i) {
      ++s.value;
      for (const uint64_t at : pages) REQUIRE(publish(s.writer, s.his.at + at, s.value));
      for (const uint64_t at : pages) CHECK(load(s.reader, s.mine.at + at).value == s.value);
    }
    // One of them has the slot, the other one is fetched.
    CHECK(updated(s.reader) > updates);
    CHECK(missed(s.reader) >= misses + kRounds);
  }

  TEST_CASE("a_subscribed_page_goes_when_its_token_is_for_another_part") {
    Scene s;
    const auto part = [&](uint64_t page) {
      return tok_newva(s.home, s.exported.seg, s.exported.at + page * kPage, 2 * kPage, kAllRights);
    };
    REQUIRE(set_token(s.reader, s.mine.seg, part(2)).ok());
    s.until_subscribed(2 * kPage + 8);
    REQUIRE(publish(s.writer, s.his.at + 2 * kPage + 8, ++s.value));
    CHECK(load(s.reader, s.mine.at + 2 * kPage + 8).value == s.value);
    const uint64_t updates = updated(s.reader);
    REQUIRE(set_token(s.reader, s.mine.seg, part(6)).ok());
    const uint64_t published = ++s.value;
    REQUIRE(publish(s.writer, s.his.at + 2 * kPage + 8, published));
    CHECK(load(s.reader, s.mine.at + 2 * kPage + 8).cause() == CMI_ERROR_ACCESS);
    CHECK(updated(s.reader) == updates);
    s.until_subscribed(6 * kPage + 8);
    REQUIRE(set_token(s.reader, s.mine.seg, s.exported.token).ok());
    const Access back = load(s.reader, s.mine.at + 2 * kPage + 8);
    CHECK(back.cause() == Fault::kNone);
    CHECK(back.value == published);
    REQUIRE(publish(s.writer, s.his.at + 2 * kPage + 8, ++s.value));
    CHECK(load(s.reader, s.mine.at + 2 * kPage + 8).value == s.value);
  }

  TEST_CASE("a_subscribed_page_goes_when_the_break_is_below_it") {
    Scene s({}, 16, CMI_SEG_EXTENSIBLE);
    const auto is_zero = [&](uint64_t at) {
      const Access got = load(s.reader, at);
      return got.cause() == Fault::kNone && got.value == 0;
    };
    for (int round = 0; round < 3; ++round) {
      REQUIRE(seg_brk(s.home, s.exported.seg, 8 * kPage).ok());
      CHECK(is_zero(s.mine.at + 3 * kPage + 8));
      s.until_subscribed(3 * kPage + 8);
      REQUIRE(seg_brk(s.home, s.exported.seg, 2 * kPage).ok());
      CHECK(load(s.reader, s.mine.at + 3 * kPage + 8).cause() == CMI_ERROR_SEG_BRK);
      REQUIRE(seg_brk(s.home, s.exported.seg, 8 * kPage).ok());
      // Nothing of before comes back, and nothing that is published now comes over it twice.
      CHECK(is_zero(s.mine.at + 3 * kPage + 8));
      REQUIRE(publish(s.writer, s.his.at + 3 * kPage + 16, ++s.value));
      CHECK(load(s.reader, s.mine.at + 3 * kPage + 16).value == s.value);
      CHECK(is_zero(s.mine.at + 3 * kPage + 8));
    }
  }

  TEST_CASE("a_subscribed_page_goes_with_its_token_and_with_its_home") {
    Scene s;
    s.until_subscribed(8);
    REQUIRE(tok_del(s.home, s.exported.token).ok());
    CHECK(load(s.reader, s.mine.at + 8).cause() == CMI_ERROR_TOKEN);
    const Flat token = tok_new(s.home, s.exported.seg, kAllRights);
    REQUIRE(token.ok());
    REQUIRE(set_token(s.reader, s.mine.seg, token).ok());
    REQUIRE(set_token(s.writer, s.his.seg, token).ok());
    CHECK(load(s.reader, s.mine.at + 8).value == s.value);
    s.until_subscribed(8);
    s.home.kill();
    for (const Deadline end = Deadline::in(20 * kSecond); !end.passed();) {
      if (load(s.reader, s.mine.at + 8).cause() == CMI_ERROR_SINVAL) break;
    }
    CHECK(load(s.reader, s.mine.at + 8).cause() == CMI_ERROR_SINVAL);
  }
}

// The third update that the reader gets is held up before it is looked at; `more`: in the reader.
Env third_held_up(const std::string& more) {
  return {{"CMI_FAULT_POINT", "update_before_apply#3=delay:300000" + more}};
}
// Two updates have been taken in, and a third one comes next: no notification came twice.
bool two_taken_in(Scene& s) {
  s.until_subscribed(8);
  REQUIRE(publish(s.writer, s.his.at + 8, ++s.value));
  REQUIRE(load(s.reader, s.mine.at + 8).value == s.value);
  return updated(s.reader) == 2;
}
constexpr int kTries = 10;  // on a machine so busy that a notification comes twice

TEST_SUITE("subscribe-mutations") {
  // The reader's own swap comes over the other's store, whose update is still on its way.
  TEST_CASE("an_update_that_is_older_than_a_swap_of_ones_own_undoes_it_for_any_generation") {
    const auto swap = [](const std::string& mutation) {
      Scene s(third_held_up(mutation));
      if (!two_taken_in(s)) return false;
      const uint64_t next = s.value + 1;
      auto pending = s.writer.start(
          [](uint64_t at, uint64_t to) { return store64(at, to).cause() == 0 && cmi_wmb() == 0; },
          s.his.at + 8, next);
      for (const Deadline end = Deadline::in(10 * kSecond);
           load(s.home, s.exported.at + 8).value != next;) {
        REQUIRE(!end.passed());
      }
      CHECK(atm_cas(s.reader, s.mine.at + 8, next, next + 1).swapped);
      CHECK(pending.get());
      CHECK(load(s.home, s.exported.at + 8).value == next + 1);
      const uint64_t seen = load(s.reader, s.mine.at + 8).value;
      if (mutation.empty()) CHECK(seen == next + 1);
      return seen == next;
    };
    for (int i = 0; i < 3; ++i) CHECK_FALSE(swap(""));
    bool undone = false;
    for (int i = 0; i < kTries && !undone; ++i) undone = swap(";mutate_update_any_generation=fail");
    CHECK(undone);
  }

  // The home tells everybody of a swap but who asked for it, also when nobody waits there any more.
  PROCESS_CASE("the_copy_of_who_has_abandoned_a_swap_stays_old_when_it_is_kept") {
    const auto abandon = [](const Env& env) {
      Cluster cluster;
      Process &home = cluster.spawn("home"), &swapper = cluster.spawn("swapper", env);
      const Export exported = export_segment(home);
      const Import mine = import_segment(swapper, exported);
      REQUIRE(load(swapper, mine.at).value == 0);
      home.stop();
      CHECK(atm_cas(swapper, mine.at, 0, 1).fault.cause() == CMI_ERROR_TRANSIENT);
      home.signal(SIGCONT);
      // The answer to this one comes after that to the other, which another thread may be taking
      // in.
      CHECK(atm_cas(swapper, mine.at + 8, 0, 1).swapped);
      CHECK(load(home, exported.at).value == 1);
      return load_until(swapper, mine.at, 1, 5) != 1;
    };
    for (int i = 0; i < 3; ++i) CHECK_FALSE(abandon({}));
    CHECK(abandon({{"CMI_FAULT_POINT", "mutate_late_swap_kept=fail"}}));
  }

  // One thread is at the notification for long, so the home sends it again; another one, which
  // waits for an answer that does not come, takes that and what comes after it.
  TEST_CASE("an_update_that_is_taken_in_twice_undoes_a_newer_one_for_any_number") {
    const auto twice = [](const std::string& mutation) {
      Scene s(third_held_up(mutation));
      const Export own = export_segment(s.reader);
      Process& silent = s.cluster.spawn("silent");
      const Import there = import_segment(silent, own);
      REQUIRE(load(silent, there.at).value == 0);
      if (!two_taken_in(s)) return false;
      silent.stop();
      auto waiting = s.reader.start(
          [](uint64_t at) { return store64(at, 1).cause() == 0 && cmi_wmb() == 0; }, own.at);
      auto pending = s.writer.start(
          [](uint64_t at, uint64_t first) {
            return store64(at, first + 1).cause() == 0 && cmi_wmb() == 0 &&
                   store64(at, first + 2).cause() == 0 && cmi_wmb() == 0;
          },
          s.his.at + 8, s.value);
      CHECK(pending.get());
      // Whoever was held up has gone on by then.
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      silent.signal(SIGCONT);
      CHECK(waiting.get());
      const uint64_t seen = load(s.reader, s.mine.at + 8).value;
      if (mutation.empty()) CHECK(seen == s.value + 2);
      return seen == s.value + 1;
    };
    for (int i = 0; i < 2; ++i) CHECK_FALSE(twice(""));
    bool undone = false;
    for (int i = 0; i < kTries && !undone; ++i) undone = twice(";mutate_update_any_number=fail");
    CHECK(undone);
  }
}

}  // namespace

}  // namespace cmi::test::subscribe_nodes_test

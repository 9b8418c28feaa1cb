// atm_cas on imported segments and among nodes.
#include <doctest/doctest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "support/long_run.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test::cas_nodes_test {

namespace {

struct Tally {
  uint64_t swapped;
  uint64_t lost;
  uint64_t failed;
};

// Adds 1 to a word so many times, each by as many swaps as it takes.
Pending<Tally> start_counting(Process& process, uint64_t at, uint64_t times) {
  return process.start(
      [](uint64_t address, uint64_t count) {
        Tally tally{0, 0, 0};
        uint64_t guess = 0;
        while (tally.swapped < count && tally.failed == 0) {
          uint64_t old = 0;
          if (CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(address), guess,
                                         guess + 1, &old) != 0) {
            ++tally.failed;
          } else if (old == guess) {
            ++tally.swapped;
            ++guess;
          } else {
            ++tally.lost;
            guess = old;
          }
        }
        return tally;
      },
      at, times);
}

// A process that counts what it asks of homes, and whose timer takes nothing home.
struct Counted {
  Counted(Cluster& cluster, const std::string& name, const std::string& faults = "")
      : passages(cluster.scratch() + "/" + name),
        process(cluster.spawn(
            name, {{"CMI_FAULT_COUNT", passages}, {"CMI_FAULT_POINT", "no_aging=fail" + faults}})) {
  }
  // Requests that are over, and pages that were read beside them.
  uint64_t exchanges() {
    Passages all = read_passages(passages);
    return all["link_reply_before_answer"] + all["link_received_before_answer"] +
           process.run([] { return stats().load_misses; });
  }
  const std::string passages;
  Process& process;
};

// Takes the lock in the word so many times and adds 1 to the one beside it; how often that worked.
uint64_t add_locked(Process& process, uint64_t lock, uint64_t times) {
  return process.run(
      [](uint64_t at, uint64_t count) {
        auto* const word = reinterpret_cast<uint64_t*>(at);
        auto* const beside = reinterpret_cast<volatile uint64_t*>(at + 8);
        const auto swap = [word](uint64_t from, uint64_t to) {
          uint64_t found = ~from;
          return CMIFN(ctxt(), 10, atm_cas)(ctxt(), word, from, to, &found) == 0 && found == from;
        };
        uint64_t good = 0;
        for (uint64_t i = 0; i < count; ++i) {
          if (!swap(0, 1)) continue;
          *beside = *beside + 1;
          good += swap(1, 0) ? 1 : 0;
        }
        return good;
      },
      lock, times);
}

TEST_SUITE("cas") {
  TEST_CASE("a_lock_an_update_and_an_unlock_take_two_requests_once_warm") {
    constexpr uint64_t kTimes = 20;
    for (const int32_t flags : {0, CMI_SEG_CLIENT_CONSIST}) {
      CAPTURE(flags);
      Cluster cluster;
      Process& home = cluster.spawn("home");
      Process& other = cluster.spawn("other");
      Counted peer(cluster, "peer");
      const Export exported = export_segment(home, 16 * kPage, kAllRights, flags);
      const Import import = import_segment(peer.process, exported);
      const Import elsewhere = import_segment(other, exported);
      REQUIRE(add_locked(peer.process, import.at, kTimes) == kTimes);
      const uint64_t before = peer.exchanges();
      REQUIRE(add_locked(peer.process, import.at, kTimes) == kTimes);
      CHECK(peer.exchanges() - before <= 2 * kTimes);
      // With another node that locks, stores and loads in other pages.
      REQUIRE(add_locked(other, elsewhere.at + 4 * kPage, kTimes) == kTimes);
      const uint64_t alone = peer.exchanges();
      for (uint64_t i = 0; i < kTimes; ++i) {
        REQUIRE(add_locked(peer.process, import.at, 1) == 1);
        REQUIRE(add_locked(other, elsewhere.at + 4 * kPage, 1) == 1);
      }
      CHECK(peer.exchanges() - alone <= 2 * kTimes);
      CHECK(load(home, exported.at + 8).value == 3 * kTimes);
      CHECK(load(other, elsewhere.at + 8).value == 3 * kTimes);
      CHECK(load(peer.process, import.at + 4 * kPage + 8).value == 2 * kTimes);
    }
  }

  // The home has taken the token back, of which the importer has not heard.
  TEST_CASE("a_swap_whose_stores_are_refused_is_not_made_and_says_that_they_are_lost") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Counted peer(cluster, "peer", ";revoke_before_verdict=delay:1000000");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer.process, exported);
    REQUIRE(atm_cas(peer.process, import.at, 0, 1).swapped);
    REQUIRE(store(peer.process, import.at + kPage, 7).cause() == Fault::kNone);
    auto revoking = home.start(
        [](Flat token) { return CMIFN(ctxt(), 10, tok_del)(ctxt(), token.as<cmi_token>()); },
        exported.token);
    const Deadline end = Deadline::in(10 * kSecond);
    while (read_passages(peer.passages)["revoke_before_verdict"] == 0 && !end.passed()) {
    }
    const Swap swap = atm_cas(peer.process, import.at, 1, 2);
    CHECK(swap.answer.failed(CMI_ERR_STORE));
    CHECK(revoking.get() == 0);
    CHECK(load(home, exported.at).value == 1);
    CHECK(load(home, exported.at + kPage).value == 0);
  }

  // A sharer is slow to drop what was stored. Meanwhile the home is stopped until the importer
  // comes back with another session: the swap, which is due after that, is made once.
  PROCESS_CASE("a_swap_with_stores_is_made_once_though_the_session_is_replaced_before_it_is_due") {
    Cluster cluster;
    Counted home(cluster, "home"), peer(cluster, "peer");
    Counted reader(cluster, "reader", ";invalidate_before_ack=delay:2000000");
    const Export exported = export_segment(home.process);
    const Import import = import_segment(peer.process, exported);
    const Import there = import_segment(reader.process, exported);
    REQUIRE(load(reader.process, there.at + kPage).value == 0);
    REQUIRE(load(peer.process, import.at + 2 * kPage).value == 0);
    REQUIRE(store(peer.process, import.at + kPage, 7).cause() == Fault::kNone);
    auto swap = peer.process.start(
        [](uint64_t at) {
          set_on_fault([](const Fault& f) { return f.error == CMI_ERROR_TRANSIENT; });
          uint64_t found = 7;
          int result = -1;
          auto body = [&] {
            result =
                CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), 0, 1, &found);
          };
          const Fault fault = guarded(body);
          set_on_fault(nullptr);
          if (fault.cause() != Fault::kNone && fault.cause() != CMI_ERROR_TRANSIENT)
            return uint64_t{9};
          return result == 0 ? found : 8;
        },
        import.at);
    const Deadline end = Deadline::in(20 * kSecond);
    while (read_passages(reader.passages)["invalidate_before_ack"] == 0 && !end.passed()) {
    }
    const auto welcomes = [&] { return read_passages(home.passages)["server_before_welcome"]; };
    for (const uint64_t before = welcomes(); welcomes() == before && !end.passed();) {
      home.process.stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      home.process.signal(SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    CHECK(swap.get(20) == 0);
    CHECK(load(home.process, exported.at).value == 1);
    CHECK(load(home.process, exported.at + kPage).value == 7);
    CHECK(load(peer.process, import.at).value == 1);
  }

  // Dirty pages, hot ones and others, of two segments, more than a message has room for: whatever
  // travels with the swap and whatever goes before it, all of it is seen by who sees the swap.
  TEST_CASE("all_that_was_stored_is_home_when_a_swap_is_seen") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& writer = cluster.spawn("writer");
    Process& reader = cluster.spawn("reader");
    constexpr uint64_t kPages = 40;
    const Export exported = export_segment(home, kPages * kPage);
    const Export aside = export_segment(home);
    const Import here = import_segment(writer, exported), beside = import_segment(writer, aside);
    const Import there = import_segment(reader, exported), across = import_segment(reader, aside);
    for (uint64_t round = 1; round <= 40; ++round) {
      CAPTURE(round);
      const uint64_t pages = round % 4 == 0 ? kPages - 1 : round % 4;
      const bool whole = round % 3 == 0, both = round % 5 == 0;
      REQUIRE(reader.run(
          [](uint64_t at, uint64_t last) {
            for (uint64_t p = 1; p < kPages; ++p) (void)load64(at + p * kPage);
            return load64(at).value == last;
          },
          there.at, round - 1));
      REQUIRE(writer.run(
          [](uint64_t at, uint64_t count, uint64_t value, bool all) {
            for (uint64_t p = 1; p <= count; ++p) {
              for (uint64_t w = 0; w < (all ? kPage / 8 : 1); ++w) {
                *reinterpret_cast<volatile uint64_t*>(at + p * kPage + w * 8) = value;
              }
            }
            return true;
          },
          here.at, pages, round, whole));
      if (both) REQUIRE(store(writer, beside.at + kPage, round).cause() == Fault::kNone);
      REQUIRE(atm_cas(writer, here.at, round - 1, round).swapped);
      CHECK(load(reader, there.at).value == round);
      for (uint64_t p = 1; p <= pages; ++p) {
        CHECK(load(reader, there.at + p * kPage).value == round);
        CHECK(load(reader, there.at + (p + 1) * kPage - 8).value ==
              (whole ? round : load(home, exported.at + (p + 1) * kPage - 8).value));
      }
      if (both) CHECK(load(reader, across.at + kPage).value == round);
    }
  }

  TEST_CASE("atm_cas_on_an_import_swaps_when_equal_and_tells_the_old_value") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at + 8, 5));
    const Swap swap = atm_cas(peer, import.at + 8, 5, 6);
    CHECK(swap.answer.ok());
    CHECK(swap.old == 5);
    CHECK(load(home, exported.at + 8).value == 6);
    CHECK(load(peer, import.at + 8).value == 6);
  }

  TEST_CASE("atm_cas_on_an_import_leaves_an_unequal_word_and_tells_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at, 5));
    const Swap swap = atm_cas(peer, import.at, 4, 6);
    CHECK(swap.answer.ok());
    CHECK(swap.old == 5);
    CHECK(load(home, exported.at).value == 5);
    CHECK(load(peer, import.at).value == 5);
  }

  TEST_CASE("atm_cas_of_a_misaligned_address_in_an_import_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    for (uint64_t off : {1, 2, 4, 7}) {
      CHECK(atm_cas(peer, import.at + off, 0, 1).answer.failed(CMI_ERR_INVAL));
    }
    CHECK(load(home, exported.at).value == 0);
  }

  TEST_CASE("atm_cas_counts_exactly_among_home_and_importers") {
    const uint64_t times = long_run() ? 10000 : 2500;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& first = cluster.spawn("first");
    Process& second = cluster.spawn("second");
    const Export exported = export_segment(home);
    const Import here = import_segment(first, exported);
    const Import there = import_segment(second, exported);
    auto a = start_counting(first, here.at + 64, times);
    auto b = start_counting(second, there.at + 64, times);
    auto c = start_counting(home, exported.at + 64, times);
    uint64_t lost = 0;
    for (auto* pending : {&a, &b, &c}) {
      const Tally tally = pending->get(100);
      CHECK(tally.failed == 0);
      CHECK(tally.swapped == times);
      lost += tally.lost;
    }
    CHECK(lost > 0);
    CHECK(load(home, exported.at + 64).value == 3 * times);
    CHECK(load(first, here.at + 64).value == 3 * times);
    CHECK(load(second, there.at + 64).value == 3 * times);
  }

  PROCESS_CASE("four_nodes_count_to_the_same_number_with_their_stores_beside_it") {
    // Each round also stores to a byte of its own beside the counter, so that swaps meet dirty
    // pages.
    const uint64_t times = long_run() ? 1000 : 250;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    std::vector<Process*> processes{&home};
    std::vector<uint64_t> views{exported.at};
    for (const char* name : {"first", "second", "third"}) {
      processes.push_back(&cluster.spawn(name));
      views.push_back(import_segment(*processes.back(), exported).at);
    }
    std::vector<Pending<Tally>> running;
    for (size_t i = 0; i < processes.size(); ++i) {
      running.push_back(processes[i]->start(
          [](uint64_t at, uint64_t me, uint64_t count) {
            Tally tally{0, 0, 0};
            uint64_t guess = 0;
            while (tally.swapped < count && tally.failed == 0) {
              const auto value = static_cast<uint8_t>(tally.swapped);
              tally.failed += store8(at + 8 + me, value).cause() != Fault::kNone;
              uint64_t old = 0;
              tally.failed += CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at),
                                                         guess, guess + 1, &old) != 0;
              tally.failed += load8(at + 8 + me).value != value;
              tally.swapped += old == guess;
              tally.lost += old != guess;
              guess = old == guess ? guess + 1 : old;
            }
            return tally;
          },
          views[i], i, times));
    }
    for (auto& pending : running) {
      const Tally tally = pending.get(100);
      CHECK(tally.failed == 0);
      CHECK(tally.swapped == times);
    }
    for (size_t i = 0; i < processes.size(); ++i) {
      CHECK(load(*processes[i], views[i]).value == 4 * times);
      const uint64_t bytes = load(*processes[i], views[i] + 8).value;
      CHECK((bytes & 0xffffffff) == 0x01010101 * ((times - 1) & 0xff));
    }
  }

  TEST_CASE("atm_cas_never_uses_a_cached_value") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    for (uint64_t round = 1; round <= 50; ++round) {
      REQUIRE(load(peer, import.at).cause() == Fault::kNone);
      REQUIRE(store(home, exported.at, 2 * round).cause() == Fault::kNone);
      CHECK(atm_cas(peer, import.at, 2 * round, 2 * round + 1).old == 2 * round);
      CHECK(load(peer, import.at).value == 2 * round + 1);
    }
  }

  TEST_CASE("atm_cas_publishes_the_stores_before_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& writer = cluster.spawn("writer");
    Process& reader = cluster.spawn("reader");
    const Export exported = export_segment(home);
    const Import here = import_segment(writer, exported);
    const Import there = import_segment(reader, exported);
    for (uint64_t round = 1; round <= 50; ++round) {
      REQUIRE(load(reader, there.at + 2 * kPage).value == round - 1);
      REQUIRE(store(writer, here.at + 2 * kPage, round).cause() == Fault::kNone);
      REQUIRE(atm_cas(writer, here.at, round - 1, round).swapped);
      REQUIRE(load(reader, there.at).value == round);
      CHECK(load(reader, there.at + 2 * kPage).value == round);
      CHECK(load(home, exported.at + 2 * kPage).value == round);
    }
  }

  TEST_CASE("a_swap_is_at_home_when_atm_cas_returns") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    for (uint64_t round = 0; round < 50; ++round) {
      if (round % 3 != 0) REQUIRE(load(peer, import.at).cause() == Fault::kNone);
      REQUIRE(atm_cas(peer, import.at, round, round + 1).swapped);
      CHECK(load(home, exported.at).value == round + 1);
      CHECK(load(peer, import.at).value == round + 1);
    }
  }

  // The swap that is tried again has been sent. It is not denied for the sake of what is lost
  // since.
  PROCESS_CASE("a_swap_that_is_tried_again_is_told_whatever_was_lost_since") {
    Cluster cluster;
    Process &home = cluster.spawn("home"), &dying = cluster.spawn("dying");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Import lost = import_segment(peer, export_segment(dying));
    REQUIRE(atm_cas(peer, import.at, 0, 1).swapped);
    home.stop();
    auto swap = peer.start(
        [](uint64_t at, uint64_t other, int stopped, int victim) {
          static uint64_t stored;
          static std::array<int, 2> pids;
          stored = other;
          pids = {stopped, victim};
          set_on_fault([](const Fault& fault) {
            if (fault.error != CMI_ERROR_TRANSIENT) return false;
            *reinterpret_cast<volatile uint64_t*>(stored) = 1;
            ::kill(pids[1], SIGKILL);  // a barrier that is after it fails
            ::kill(pids[0], SIGCONT);
            return true;
          });
          uint64_t found = 0;
          auto body = [&] {
            if (CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), 1, 2, &found) !=
                0) {
              found = 0;
            }
          };
          const Fault fault = guarded(body);
          set_on_fault(nullptr);
          return std::array<uint64_t, 3>{static_cast<uint64_t>(fault.cause()), found,
                                         static_cast<uint64_t>(-cmi_wmb())};
        },
        import.at, lost.at, static_cast<int>(home.pid()), static_cast<int>(dying.pid()));
    const auto [cause, found, barrier] = swap.finish();
    CHECK(cause == CMI_ERROR_TRANSIENT);
    CHECK(found == 1);
    CHECK(barrier == 1);
    dying.kill();  // is so
    CHECK(load(home, exported.at).value == 2);
  }

  // The handler takes away what the swap has put there: were that made twice, it would be back.
  PROCESS_CASE("a_swap_is_made_once_though_the_handler_in_between_swaps_as_well") {
    Cluster cluster;
    Process &home = cluster.spawn("home"), &peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(atm_cas(peer, import.at + 8, 0, 1).swapped);
    home.stop();
    auto swap = peer.start(
        [](uint64_t at, int stopped) {
          static uint64_t word;
          static int pid;
          static uint64_t taken;
          word = at;
          pid = stopped;
          taken = 0;
          set_on_fault([](const Fault& fault) {
            if (fault.error != CMI_ERROR_TRANSIENT) return false;
            ::kill(pid, SIGCONT);
            const Deadline end = Deadline::in(10 * kSecond);
            for (uint64_t found = 0; found != 1 && !end.passed();) {
              if (CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(word), 1, 0,
                                             &found) == 0) {
                taken += found;
              }
            }
            return true;
          });
          uint64_t found = 7;
          int result = -1;
          auto body = [&] {
            result =
                CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), 0, 1, &found);
          };
          const Fault fault = guarded(body);
          set_on_fault(nullptr);
          return fault.cause() == CMI_ERROR_TRANSIENT && result == 0 && found == 0 && taken == 1;
        },
        import.at, static_cast<int>(home.pid()));
    CHECK(swap.finish());
    CHECK(load(home, exported.at).value == 0);
  }

  // The home takes so long that it is asked again, and itself takes away meanwhile what the swap
  // has put there. With no record of what it has done it puts that there once more.
  PROCESS_CASE("a_swap_that_is_asked_for_again_is_made_twice_when_its_home_keeps_no_record") {
    const auto made_twice = [](const std::string& mutation) {
      Cluster cluster;
      Process& home = cluster.spawn(
          "home", {{"CMI_FAULT_POINT", "server_before_reply=delay:100000" + mutation}});
      Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", "answer_time_unknown=fail"}});
      const Export exported = export_segment(home);
      const Import import = import_segment(peer, exported);
      auto swaps = peer.start(
          [](uint64_t at) {
            set_on_fault([](const Fault& f) { return f.error == CMI_ERROR_TRANSIENT; });
            // The answer to the second comes when all that was asked for before it is done.
            for (uint64_t offset : {0, 8}) {
              uint64_t found = 1;
              if (CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at + offset), 0, 1,
                                             &found) != 0 ||
                  found != 0) {
                return false;
              }
            }
            return true;
          },
          import.at);
      CHECK(load_until(home, exported.at, 1) == 1);
      CHECK(atm_cas(home, exported.at, 1, 0).swapped);
      CHECK(swaps.get());
      return load(home, exported.at).value != 0;
    };
    constexpr int kTries = 10;  // where the home itself comes too late to be in between
    for (int i = 0; i < 2; ++i) CHECK_FALSE(made_twice(""));
    bool twice = false;
    for (int i = 0; i < kTries && !twice; ++i) twice = made_twice(";mutate_repeat_executed=fail");
    CHECK(twice);
  }

  TEST_CASE("atm_cas_on_a_read_only_view_of_an_import_raises_access_error") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Answer view = seg_at(peer, import.seg, 0, CMI_SEG_READ);
    REQUIRE(view.ok());
    const Swap swap = atm_cas(peer, view.at(), 0, 1);
    CHECK(swap.fault.cause() == CMI_ERROR_ACCESS);
    CHECK(swap.fault.address == view.at());
    CHECK(load(home, exported.at).value == 0);
    CHECK(atm_cas(peer, import.at, 0, 1).swapped);
  }

  TEST_CASE("atm_cas_without_the_atomic_right_raises_access_error") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kPage, CMI_ACC_READ | CMI_ACC_WRITE);
    const Import import = import_segment(peer, exported);
    CHECK(atm_cas(peer, import.at, 0, 1).fault.cause() == CMI_ERROR_ACCESS);
    CHECK(load(home, exported.at).value == 0);
  }

  TEST_CASE("atm_cas_under_a_revoked_token_raises_token_error") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(atm_cas(peer, import.at, 0, 1).swapped);
    REQUIRE(tok_del(home, exported.token).ok());
    const Swap swap = atm_cas(peer, import.at + 8, 0, 2);
    CHECK(swap.fault.cause() == CMI_ERROR_TOKEN);
    CHECK(swap.fault.address == import.at + 8);
    CHECK(load(home, exported.at + 8).value == 0);
  }
}

}  // namespace

}  // namespace cmi::test::cas_nodes_test

// Imports whose home is on the same machine: they map its pages (CMI_LOCAL=on). What clients see is
// the same as over the network, and the existing cases say it once more under the label local; here
// stands what is about the mapping itself. Swaps, ends, refusals and liars have files of their own
// (local_*_nodes_test.cpp).
#include <cmi/ofi/cmi_sync.h>
#include <doctest/doctest.h>
#include <sched.h>

#include <string>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "support/resident.hpp"
#include "system/local_imports.hpp"

namespace cmi::test::local_nodes_test {
using namespace local_imports;

TEST_SUITE("local") {
  TEST_CASE("a_home_of_the_same_machine_is_mapped_and_nothing_is_cached") {
    Three t;
    REQUIRE(publish(t.home, t.exported.at, 41));
    CHECK(load(t.mapper, t.mapped.at).value == 41);
    CHECK(store(t.mapper, t.mapped.at + kPage, 42).cause() == Fault::kNone);
    CHECK(load(t.home, t.exported.at + kPage).value == 42);  // no barrier comes between
    CHECK(store(t.home, t.exported.at + kPage, 43).cause() == Fault::kNone);
    CHECK(load(t.mapper, t.mapped.at + kPage).value == 43);
    CHECK(maps(t.mapper));
    CHECK(load(t.cacher, t.cached.at).value == 41);
    CHECK_FALSE(maps(t.cacher));
  }

  TEST_CASE("a_third_node_hears_of_stores_to_mapped_pages_by_the_barrier") {
    Three t;
    for (uint64_t round = 1; round < 50; ++round) {
      REQUIRE(load(t.cacher, t.cached.at).cause() == Fault::kNone);
      REQUIRE(publish(t.mapper, t.mapped.at, round));
      CHECK(load(t.cacher, t.cached.at).value == round);
    }
    CHECK(maps(t.mapper));
  }

  TEST_CASE("a_third_node_misses_stores_to_mapped_pages_that_are_not_announced") {
    Three t(Env{{"CMI_FAULT_POINT", "mutate_mapped_stores_unannounced=fail"}});
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(publish(t.mapper, t.mapped.at, 51));
    CHECK(load(t.home, t.exported.at).value == 51);
    CHECK(load(t.cacher, t.cached.at).value == 0);
  }

  TEST_CASE("a_third_node_hears_of_stores_to_mapped_pages_by_the_timer") {
    Three t;
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(store(t.mapper, t.mapped.at, 51).cause() == Fault::kNone);
    CHECK(load_until(t.cacher, t.cached.at, 51) == 51);
    // Stored to again, it is found again.
    REQUIRE(store(t.mapper, t.mapped.at, 52).cause() == Fault::kNone);
    CHECK(load_until(t.cacher, t.cached.at, 52) == 52);
  }

  TEST_CASE("stores_of_a_third_node_are_seen_in_mapped_pages") {
    Three t;
    REQUIRE(load(t.mapper, t.mapped.at).value == 0);
    REQUIRE(publish(t.cacher, t.cached.at, 61));
    CHECK(load(t.mapper, t.mapped.at).value == 61);
    // Both have stored to the page: neither loses its bytes.
    REQUIRE(store(t.mapper, t.mapped.at + 8, 62).cause() == Fault::kNone);
    REQUIRE(publish(t.cacher, t.cached.at + 16, 63));
    REQUIRE(wmb(t.mapper).ok());
    for (Process* p : {&t.mapper, &t.cacher}) {
      const uint64_t at = p == &t.mapper ? t.mapped.at : t.cached.at;
      CHECK(load(*p, at + 8).value == 62);
      CHECK(load(*p, at + 16).value == 63);
    }
  }

  TEST_CASE("nobody_is_told_of_stores_and_swaps_while_all_who_use_the_segment_map_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& mapper = cluster.spawn("mapper", kLocal);
    Process& other = cluster.spawn("other", kLocal);
    const Export exported = export_segment(home, 4 * kPage);
    const Import mapped = import_segment(mapper, exported), too = import_segment(other, exported);
    REQUIRE(load(other, too.at).value == 0);
    REQUIRE(load(mapper, mapped.at).value == 0);
    uint64_t value = 0;
    for (uint64_t round = 0; round < 20; ++round, value += 2) {
      REQUIRE(publish(mapper, mapped.at, value + 1));
      CHECK(load(other, too.at).value == value + 1);
      CHECK(atm_cas(mapper, mapped.at, value + 1, value + 2).swapped);
      CHECK(load(other, too.at).value == value + 2);
    }
    CHECK(stats_of(mapper).publications == 0);
    // Somebody comes who caches pages.
    Process& cacher = cluster.spawn("cacher", kNetwork);
    const Import cached = import_segment(cacher, exported);
    for (uint64_t round = 0; round < 20; ++round, value += 2) {
      CHECK(load(cacher, cached.at).value == value);
      REQUIRE(publish(mapper, mapped.at, value + 1));
      CHECK(load(cacher, cached.at).value == value + 1);
      CHECK(atm_cas(mapper, mapped.at, value + 1, value + 2).swapped);
    }
    CHECK(stats_of(mapper).publications >= 40);
    // And goes.
    REQUIRE(cacher.end() == 0);
    const auto silent = [&] {
      const auto told = stats_of(mapper).publications;
      REQUIRE(publish(mapper, mapped.at, ++value));
      return stats_of(mapper).publications == told;
    };
    for (const Deadline end = Deadline::in(10 * kSecond); !silent();) REQUIRE(!end.passed());
    CHECK(load(other, too.at).value == value);
    CHECK(maps(mapper));
  }

  TEST_CASE("who_comes_to_cache_pages_misses_stores_when_the_home_does_not_say_so") {
    Cluster cluster;
    const Env mutated{{"CMI_FAULT_POINT", "mutate_mapped_alone_for_ever=fail"}};
    Process& home = cluster.spawn("home", with(kLocal, mutated));
    Process& mapper = cluster.spawn("mapper", kLocal);
    const Export exported = export_segment(home, 4 * kPage);
    const Import mapped = import_segment(mapper, exported);
    REQUIRE(publish(mapper, mapped.at, 1));
    Process& cacher = cluster.spawn("cacher", kNetwork);
    const Import cached = import_segment(cacher, exported);
    REQUIRE(load(cacher, cached.at).value == 1);
    REQUIRE(publish(mapper, mapped.at, 2));
    CHECK(load(home, exported.at).value == 2);
    CHECK(load(cacher, cached.at).value == 1);
  }

  TEST_CASE("a_read_token_maps_for_reading_and_raises_access_at_once") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", kLocal);
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ);
    REQUIRE(publish(home, exported.at, 71));
    const Import import = import_segment(peer, exported);
    // Before and after the page is there, with what the home stores meanwhile.
    CHECK(store(peer, import.at, 72).cause() == CMI_ERROR_ACCESS);
    CHECK(load(peer, import.at).value == 71);
    CHECK(store(peer, import.at, 72).cause() == CMI_ERROR_ACCESS);
    REQUIRE(store(home, exported.at, 73).cause() == Fault::kNone);
    CHECK(load(peer, import.at).value == 73);
    CHECK(load(home, exported.at).value == 73);
    CHECK(maps(peer));
  }

  TEST_CASE("views_of_a_mapped_import_show_the_same_and_keep_their_rights") {
    Three t;
    REQUIRE(store(t.mapper, t.mapped.at, 81).cause() == Fault::kNone);
    const Answer reading = seg_at(t.mapper, t.mapped.seg, 0, CMI_SEG_READ);
    REQUIRE(reading.ok());
    CHECK(load(t.mapper, reading.at()).value == 81);
    CHECK(store(t.mapper, reading.at(), 82).cause() == CMI_ERROR_ACCESS);
    CHECK(store(t.mapper, t.mapped.at, 83).cause() == Fault::kNone);
    CHECK(load(t.mapper, reading.at()).value == 83);
    CHECK(store(t.mapper, reading.at(), 84).cause() == CMI_ERROR_ACCESS);
    REQUIRE(seg_dt(t.mapper, t.mapped.seg, reading.at()).ok());
    CHECK(load(t.mapper, t.mapped.at).value == 83);
    CHECK(maps(t.mapper));
  }

  TEST_CASE("a_token_that_lets_stores_be_made_maps_views_anew_that_were_for_reading") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", kLocal);
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ);
    REQUIRE(publish(home, exported.at, 4));
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).value == 4);
    CHECK(store(peer, import.at, 5).cause() == CMI_ERROR_ACCESS);
    const Flat stores = tok_new(home, exported.seg, kAllRights);
    REQUIRE(set_token(peer, import.seg, stores).ok());
    CHECK(load(peer, import.at).value == 4);
    CHECK(publish(peer, import.at, 5));
    CHECK(load(home, exported.at).value == 5);
    // And back.
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(load(peer, import.at).value == 5);
    CHECK(store(peer, import.at, 6).cause() == CMI_ERROR_ACCESS);
    CHECK(maps(peer));
  }

  // Such pages stay writable over barriers while nobody caches the segment. What was stored there
  // is home, and no later barrier of the process may say that it is lost.
  TEST_CASE("who_leaves_a_mapped_segment_that_was_stored_to_again_and_again_has_lost_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", with(kLocal, {{"CMI_FAULT_POINT", "no_aging=fail"}}));
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Import other = import_segment(peer, export_segment(home));
    for (uint64_t round = 1; round < 5; ++round) REQUIRE(publish(peer, import.at, round));
    REQUIRE(store(peer, import.at, 5).cause() == Fault::kNone);
    REQUIRE(seg_rm(peer, import.seg).ok());
    REQUIRE(seg_dt(peer, import.seg, import.at).ok());
    CHECK(publish(peer, other.at, 1));
    CHECK(load(home, exported.at).value == 5);
    CHECK(maps(peer));
  }

  TEST_CASE("messages_of_a_mapped_import_go_by_memory_and_none_by_the_network") {
    Cluster cluster;
    const auto counting = [&](const char* name) {
      return with(kLocal, {{"CMI_FAULT_COUNT", cluster.scratch() + "/" + name}});
    };
    Process& home = cluster.spawn("home", counting("of_home"));
    Process& mapper = cluster.spawn("mapper", counting("of_mapper"));
    Process& cacher = cluster.spawn("cacher", kNetwork);
    const Export exported = export_segment(home, 4 * kPage);
    const Import mapped = import_segment(mapper, exported);
    const Import cached = import_segment(cacher, exported);
    const auto by_network = [&](const char* name) {
      return read_passages(cluster.scratch() + "/" + name)["port_before_send"];
    };
    const auto by_ring = [&](const char* name) {
      return read_passages(cluster.scratch() + "/" + name)["ring_before_send"];
    };
    uint64_t value = 0;
    const Deadline end = Deadline::in(10 * kSecond);
    while ((by_ring("of_mapper") == 0 || by_ring("of_home") == 0) && !end.passed()) {
      REQUIRE(load(cacher, cached.at).cause() == Fault::kNone);
      REQUIRE(publish(mapper, mapped.at, ++value));
    }
    const uint64_t network = by_network("of_mapper"), ring = by_ring("of_mapper"),
                   answers = by_ring("of_home");
    REQUIRE(ring > 0);
    constexpr uint64_t kRounds = 40;
    for (uint64_t round = 0; round < kRounds; ++round) {
      REQUIRE(load(cacher, cached.at).value == value);
      REQUIRE(publish(mapper, mapped.at, ++value));
      REQUIRE(load(cacher, cached.at).value == value);
      CHECK(atm_cas(mapper, mapped.at, value, value + 1).swapped);
      ++value;
    }
    CHECK(by_network("of_mapper") == network);
    CHECK(by_ring("of_mapper") >= ring + 2 * kRounds);
    CHECK(by_ring("of_home") >= answers + 2 * kRounds);
    CHECK(maps(mapper));
  }

  TEST_CASE("loads_in_order_map_more_and_more_pages_with_one_fault") {
    constexpr uint64_t kPages = 4096;
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    const std::string counts = cluster.scratch() + "/counts";
    Process& mapper = cluster.spawn("mapper", with(kLocal, {{"CMI_FAULT_COUNT", counts}}));
    const Export exported = export_segment(home, kPages * kPage);
    for (uint64_t page = 0; page < kPages; page += 512) {
      REQUIRE(store(home, exported.at + page * kPage, page).cause() == Fault::kNone);
    }
    const Import mapped = import_segment(mapper, exported);
    const auto faults_of = [&](uint64_t step) {
      const uint64_t before = read_passages(counts)["local_no_memory"];  // one look for each fault
      mapper.run(
          [](uint64_t at, uint64_t every) {
            for (uint64_t page = 0; page < kPages; page += every) {
              (void)__atomic_load_n(reinterpret_cast<const uint64_t*>(at + page * kPage),
                                    __ATOMIC_RELAXED);
            }
          },
          mapped.at, step);
      return read_passages(counts)["local_no_memory"] - before;
    };
    CHECK(load(mapper, mapped.at + 512 * kPage).value == 512);
    const uint64_t faults = faults_of(1);
    CHECK(faults >= kPages / 256);
    CHECK(faults <= kPages / 256 + 8);
    CHECK(faults_of(1) == 0);
    CHECK(maps(mapper));
    // Who jumps about maps the pages around alone.
    const Import other = import_segment(mapper, exported);
    REQUIRE(load(mapper, other.at).cause() == Fault::kNone);
    const uint64_t there = resident(mapper.pid(), other.at);
    REQUIRE(load(mapper, other.at + 2048 * kPage).value == 2048);
    CHECK(resident(mapper.pid(), other.at) <= there + 16);
  }

  TEST_CASE("a_first_store_to_a_mapped_page_maps_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    const std::string counts = cluster.scratch() + "/counts";
    Process& mapper = cluster.spawn("mapper", with(kLocal, {{"CMI_FAULT_COUNT", counts}}));
    const Export exported = export_segment(home, 32 * kPage);
    const Import mapped = import_segment(mapper, exported);
    const auto times_mapped = [&] { return read_passages(counts)["local_before_map"]; };
    REQUIRE(load(mapper, mapped.at).cause() == Fault::kNone);
    const uint64_t before = times_mapped();
    CHECK(before > 0);
    for (const uint64_t page : {3, 9, 5, 14}) {
      CHECK(store(mapper, mapped.at + page * kPage, page).cause() == Fault::kNone);
      CHECK(load(home, exported.at + page * kPage).value == page);
    }
    CHECK(times_mapped() == before);
    // One that is not there is mapped with the fault that lets the store go on.
    CHECK(store(mapper, mapped.at + 20 * kPage, 1).cause() == Fault::kNone);
    CHECK(times_mapped() == before + 1);
    CHECK(stats_of(mapper).store_faults >= 5);  // more where a tick came in between
  }

  TEST_CASE("who_sleeps_at_a_lock_is_woken_by_whoever_changes_it_on_this_machine") {
    Cluster cluster;
    const auto sleeper = [&](const char* name) -> Process& {
      // Nothing but a wake-up ends its sleep in time.
      return cluster.spawn(name,
                           with(kLocal, {{"CMI_FAULT_POINT", "lock_naps_are_long=fail"},
                                         {"CMI_FAULT_COUNT", cluster.scratch() + "/" + name}}));
    };
    Process& home = sleeper("home");
    Process& first = sleeper("first");
    Process& second = sleeper("second");
    const Export exported = export_segment(home, kPage);
    const uint64_t at_first = import_segment(first, exported).at;
    const uint64_t at_second = import_segment(second, exported).at;
    const auto naps = [&](const char* name) {
      return read_passages(cluster.scratch() + "/" + name)["lock_naps_are_long"];
    };
    const auto wakes = [&](Process& waiter, const char* name, uint64_t at, Process& waker,
                           uint64_t there) {
      const uint64_t before = naps(name);
      const auto latch_is_made = [](uint64_t latch) {
        return cmi_ofi_latch_init(ctxt(), reinterpret_cast<cmi_ofi_latch*>(latch), 1);
      };
      REQUIRE(waker.run(latch_is_made, there) == 0);
      auto waiting = waiter.start(
          [](uint64_t latch) {
            return cmi_ofi_latch_wait(ctxt(), reinterpret_cast<cmi_ofi_latch*>(latch), 20000);
          },
          at);
      const Deadline end = Deadline::in(10 * kSecond);
      const auto slept = [&] { return naps(name) != before; };
      while (!slept() && !end.passed()) sched_yield();
      CHECK(slept());
      const auto open = [](uint64_t latch) {
        return cmi_ofi_latch_count_down(ctxt(), reinterpret_cast<cmi_ofi_latch*>(latch), 1);
      };
      CHECK(waker.run(open, there) == 0);
      CHECK(waiting.get() == 0);
    };
    wakes(first, "first", at_first, home, exported.at);
    wakes(second, "second", at_second + 64, first, at_first + 64);
    wakes(home, "home", exported.at + 128, first, at_first + 128);
    // The home makes the swap of one that caches.
    Process& cacher = cluster.spawn("cacher", kNetwork);
    const uint64_t at_cacher = import_segment(cacher, exported).at;
    wakes(first, "first", at_first + 192, cacher, at_cacher + 192);
  }
}

}  // namespace cmi::test::local_nodes_test

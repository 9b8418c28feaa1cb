// One segment imported more than once: twice by one process, and once by two processes that share
// it. Each has a cache of its own, and to each other they are as different nodes.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>

#include "core/base/clock.hpp"
#include "system/calls.hpp"

namespace cmi::test::imports_nodes_test {

namespace {

// Two imports of a segment in one process, the second with the rights given.
struct Twice {
  explicit Twice(cmi_acc rights = kAllRights) {
    Export other = exported;
    other.token = tok_new(home, exported.seg, rights);
    REQUIRE(other.token.ok());
    second_token = other.token;
    second = import_segment(peer, other);
  }
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process& peer = cluster.spawn("peer");
  Export exported = export_segment(home);
  Import first = import_segment(peer, exported);
  Flat second_token;
  Import second;
};

struct Counts {
  uint64_t failed, swapped;
};

// Rounds of storing this process's bytes of a page, every other one, a barrier, and a swap that
// counts one up.
Pending<Counts> start_working(Process& process, uint64_t at, uint64_t offset, uint64_t rounds) {
  return process.start(
      [](uint64_t view, uint64_t first, uint64_t count) {
        Counts counts{};
        auto* bytes = reinterpret_cast<volatile unsigned char*>(view + kPage);
        const Deadline deadline = Deadline::in(25 * kSecond);
        for (uint64_t round = 1; round <= count && !deadline.passed(); ++round) {
          for (uint64_t i = first; i < kPage; i += 2) bytes[i] = static_cast<unsigned char>(round);
          counts.failed += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
          for (uint64_t i = first; i < kPage; i += 2) {
            counts.failed += bytes[i] != static_cast<unsigned char>(round);
          }
          uint64_t expected = *reinterpret_cast<volatile uint64_t*>(view), found = 0;
          while (!deadline.passed()) {
            if (CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(view), expected,
                                           expected + 1, &found) != 0) {
              ++counts.failed;
              break;
            }
            if (found == expected) {
              ++counts.swapped;
              break;
            }
            expected = found;
          }
        }
        return counts;
      },
      at, offset, rounds);
}

TEST_SUITE("imports") {
  TEST_CASE("two_imports_of_a_segment_in_one_process_have_ids_and_rights_of_their_own") {
    Twice twice(CMI_ACC_READ);
    CHECK(twice.first.seg != twice.second.seg);
    CHECK(twice.first.at != twice.second.at);
    CHECK(store(twice.peer, twice.second.at, 1).cause() == CMI_ERROR_ACCESS);
    REQUIRE(publish(twice.peer, twice.first.at, 2));
    CHECK(load(twice.peer, twice.second.at).value == 2);
    CHECK(atm_cas(twice.peer, twice.second.at, 2, 3).fault.cause() == CMI_ERROR_ACCESS);
    CHECK(atm_cas(twice.peer, twice.first.at, 2, 3).swapped);
    CHECK(load(twice.peer, twice.second.at).value == 3);
  }

  TEST_CASE("stores_through_one_of_two_imports_are_seen_through_the_other_after_a_barrier") {
    Twice twice;
    for (uint64_t round = 1; round <= 60; ++round) {
      const Import& from = round % 2 == 0 ? twice.first : twice.second;
      const Import& to = round % 2 == 0 ? twice.second : twice.first;
      const uint64_t at = round % 3 * kPage + 64;
      REQUIRE(load(twice.peer, to.at + at).cause() == Fault::kNone);  // cached, old
      REQUIRE(store(twice.peer, from.at + at, round).cause() == Fault::kNone);
      REQUIRE((round % 3 == 0 ? mb(twice.peer) : wmb(twice.peer)).ok());
      CHECK(load(twice.peer, to.at + at).value == round);
      CHECK(load(twice.home, twice.exported.at + at).value == round);
      REQUIRE(publish(twice.home, twice.exported.at + at, 1000 + round));
      CHECK(load(twice.peer, from.at + at).value == 1000 + round);
      CHECK(load(twice.peer, to.at + at).value == 1000 + round);
    }
  }

  TEST_CASE("two_imports_of_one_process_change_one_page_and_lose_no_byte") {
    Twice twice;
    for (uint64_t round = 1; round <= 40; ++round) {
      for (uint64_t i = 0; i < 16; ++i) {
        const Import& through = i % 2 == 0 ? twice.first : twice.second;
        REQUIRE(store(twice.peer, through.at + i * 8, round * 100 + i).cause() == Fault::kNone);
      }
      REQUIRE(wmb(twice.peer).ok());
      for (uint64_t i = 0; i < 16; ++i) {
        CHECK(load(twice.home, twice.exported.at + i * 8).value == round * 100 + i);
        CHECK(load(twice.peer, twice.first.at + i * 8).value == round * 100 + i);
        CHECK(load(twice.peer, twice.second.at + i * 8).value == round * 100 + i);
      }
    }
  }

  TEST_CASE("a_swap_through_one_of_two_imports_is_seen_through_the_other") {
    Twice twice;
    for (uint64_t round = 0; round < 40; ++round) {
      const Import& through = round % 2 == 0 ? twice.first : twice.second;
      const Import& other = round % 2 == 0 ? twice.second : twice.first;
      REQUIRE(load(twice.peer, other.at).value == round);
      REQUIRE(atm_cas(twice.peer, through.at, round, round + 1).swapped);
      CHECK(load(twice.peer, other.at).value == round + 1);
    }
  }

  TEST_CASE("the_token_of_one_of_two_imports_is_revoked_alone") {
    Twice twice;
    REQUIRE(publish(twice.peer, twice.first.at, 1));
    REQUIRE(load(twice.peer, twice.second.at).value == 1);
    REQUIRE(tok_del(twice.home, twice.second_token).ok());
    CHECK(load(twice.peer, twice.second.at).cause() == CMI_ERROR_TOKEN);
    REQUIRE(publish(twice.peer, twice.first.at, 2));
    CHECK(load(twice.home, twice.exported.at).value == 2);
    REQUIRE(publish(twice.home, twice.exported.at, 3));
    CHECK(load(twice.peer, twice.first.at).value == 3);
  }

  TEST_CASE("one_of_two_imports_ends_and_the_other_stays_coherent") {
    Twice twice;
    REQUIRE(load(twice.peer, twice.first.at).value == 0);
    REQUIRE(store(twice.peer, twice.second.at, 1).cause() == Fault::kNone);
    REQUIRE(seg_dt(twice.peer, twice.second.seg, twice.second.at).ok());
    REQUIRE(seg_rm(twice.peer, twice.second.seg).ok());
    REQUIRE(wmb(twice.peer).ok());
    CHECK(load(twice.home, twice.exported.at).value == 1);  // stored before the end
    CHECK(load(twice.peer, twice.first.at).value == 1);
    REQUIRE(publish(twice.home, twice.exported.at, 2));
    CHECK(load(twice.peer, twice.first.at).value == 2);
    REQUIRE(publish(twice.peer, twice.first.at, 3));
    CHECK(load(twice.home, twice.exported.at).value == 3);
  }

  TEST_CASE("processes_that_share_an_import_lose_no_byte_and_no_swap") {
    constexpr uint64_t kRounds = 40;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& first = cluster.spawn("peer");
    Process& second = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(first, exported);
    const Answer view = seg_at(second, import.seg);
    REQUIRE(view.ok());
    REQUIRE(cmi_enb(second, 1).ok());
    auto even = start_working(first, import.at, 0, kRounds);
    auto odd = start_working(second, view.at(), 1, kRounds);
    for (auto* pending : {&even, &odd}) {
      const Counts counts = pending->get();
      CHECK(counts.failed == 0);
      CHECK(counts.swapped == kRounds);
    }
    const auto wrong = [](uint64_t at) {
      auto* bytes = reinterpret_cast<volatile unsigned char*>(at + kPage);
      uint64_t count = *reinterpret_cast<volatile uint64_t*>(at) != 2 * kRounds;
      for (uint64_t i = 0; i < kPage; ++i) count += bytes[i] != kRounds % 256;
      return count;
    };
    CHECK(home.run(wrong, exported.at) == 0);
    CHECK(first.run(wrong, import.at) == 0);
    CHECK(second.run(wrong, view.at()) == 0);
  }

  TEST_CASE("processes_that_share_an_import_are_told_of_stores_at_home_each") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& first = cluster.spawn("peer");
    Process& second = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(first, exported);
    const Answer view = seg_at(second, import.seg);
    REQUIRE(view.ok());
    REQUIRE(cmi_enb(second, 1).ok());
    for (uint64_t round = 1; round <= 30; ++round) {
      REQUIRE(load(first, import.at).value == round - 1);
      REQUIRE(load(second, view.at()).value == round - 1);
      REQUIRE(publish(home, exported.at, round));
      CHECK(load(first, import.at).value == round);
      CHECK(load(second, view.at()).value == round);
    }
    // The cache of one goes with its process; the other's stays, and is told on.
    REQUIRE(store(second, view.at() + kPage, 7).cause() == Fault::kNone);
    REQUIRE(wmb(second).ok());
    second.kill();
    CHECK(load(first, import.at + kPage).value == 7);
    REQUIRE(publish(home, exported.at, 99));
    CHECK(load(first, import.at).value == 99);
  }
}

}  // namespace

}  // namespace cmi::test::imports_nodes_test

// Stores in order: the pages behind one that is stored to become writable with it, marked at their
// home before (protocol.md, rule 21). What was not stored to after all stays as it was, whatever
// comes in between.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test::dirty_ahead_nodes_test {

namespace {

constexpr uint64_t kPages = 128;
// Of pages that are stored to in order from 0 on the first seven are taken one by one. Then windows
// begin at these, of 2, 4, 8, 16 and from there on 32.
constexpr uint64_t kTwo = 7, kFour = 9, kEight = 13, kSixteen = 21, kThirtyTwo = 37;
constexpr uint64_t kFaults = 7 + 4 + 3;  // of all

const std::string kNoTimer = "mutate_timer_takes_nothing=fail";  // nothing but barriers publishes

uint64_t word_of(uint64_t page) { return 1000 + page; }

// Stores to a word of each page, in order. The first page where that failed, or `end`.
Pending<uint64_t> start_storing(Process& process, uint64_t view, uint64_t begin, uint64_t end) {
  return process.start(
      [](uint64_t at, uint64_t from, uint64_t to) {
        for (; from < to; ++from) {
          if (store64(at + from * kPage + 64, word_of(from)).cause() != Fault::kNone) break;
        }
        return from;
      },
      view, begin, end);
}
bool stores_in_order(Process& process, uint64_t view, uint64_t begin, uint64_t end) {
  return start_storing(process, view, begin, end).get() == end;
}
uint64_t pages_with_stores(Process& process, uint64_t view, uint64_t begin, uint64_t end) {
  return process.run(
      [](uint64_t at, uint64_t from, uint64_t to) {
        uint64_t n = 0;
        for (; from < to; ++from) n += load64(at + from * kPage + 64).value == word_of(from);
        return n;
      },
      view, begin, end);
}
bool load_all(Process& process, uint64_t view, uint64_t pages) {
  return process.run(
      [](uint64_t at, uint64_t n) {
        bool good = true;
        for (uint64_t p = 0; p < n; ++p) {
          good = load64(at + p * kPage).cause() == Fault::kNone && good;
        }
        return good;
      },
      view, pages);
}
uint64_t store_faults(Process& process) {
  return process.run([] { return stats().store_faults; });
}

struct Scene {
  explicit Scene(const std::string& points = kNoTimer, int32_t flags = 0, uint64_t pages = kPages)
      : home(cluster.spawn("home")),
        peer(cluster.spawn("peer", {{"CMI_FAULT_POINT", points}})),
        exported(export_segment(home, pages * kPage, kAllRights, flags)),
        import(import_segment(peer, exported)) {}

  uint64_t here(uint64_t page) const { return exported.at + page * kPage; }
  uint64_t there(uint64_t page) const { return import.at + page * kPage; }
  // What the peer has sent without waiting for an answer is at home when this is over.
  void settle() { REQUIRE(atm_cas(peer, there(kPages - 1), 0, 0).answer.ok()); }
  // How many pages the peer's death leaves in flux: from the first on, and none behind.
  uint64_t left_in_flux() {
    const uint64_t name = name_of(peer, import.at);
    peer.kill();
    REQUIRE(publish(home, here(kPages - 1) + 128, 1));  // over when the home knows of it
    await_gone(home, exported.at, name);
    const Recovery found = seg_check(home, exported.seg, exported.at, kPages * kPage);
    REQUIRE(found.answer.ok());
    if (found.size == 0) return 0;
    CHECK(found.at == exported.at);
    const uint64_t n = found.size / kPage;
    CHECK(seg_check(home, exported.seg, here(n), (kPages - n) * kPage).size == 0);
    return n;
  }

  Cluster cluster;
  Process& home;
  Process& peer;
  const Export exported;
  const Import import;
};

constexpr uint64_t kSettled = kPages - 3;  // out of order: see settle()

// What the death of an importer that has been killed leaves in flux, but for kSettled.
std::vector<uint64_t> pages_in_flux(Process& home, const Export& exported) {
  // Over when the death is known: the dead peer had this page, and has not released it.
  REQUIRE(publish(home, exported.at + (kPages - 5) * kPage + 128, 1));
  std::vector<uint64_t> pages;
  for (uint64_t p = 0; p < kPages; ++p) {
    const Recovery found = seg_check(home, exported.seg, exported.at + p * kPage, kPage);
    REQUIRE(found.answer.ok());
    if (found.size != 0 && p != kSettled) pages.push_back(p);
  }
  return pages;
}
std::vector<uint64_t> first_pages(uint64_t n) {
  std::vector<uint64_t> pages(n);
  std::iota(pages.begin(), pages.end(), 0);
  return pages;
}

// Nine of a point; false where they do not come.
bool await_passages(const std::string& counts, const std::string& point) {
  for (const Deadline end = Deadline::in(10 * kSecond); !end.passed();) {
    const Passages all = read_passages(counts);
    if (const auto it = all.find(point); it != all.end() && it->second >= 9) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// A peer with all pages cached, whose ninth request for marks, that of the four pages from kFour
// on, is held up at a point. The access may take long enough for that.
struct HeldUp {
  explicit HeldUp(const std::string& held_at)
      : goes_on(cluster.scratch() + "/goes-on"),
        counts(cluster.scratch() + "/passages"),
        point(held_at),
        home(cluster.spawn("home")),
        peer(cluster.spawn("peer",
                           {{"CMI_FAULT_POINT", kNoTimer + ";" + point + "#9=hold:" + goes_on},
                            {"CMI_FAULT_COUNT", counts}})),
        exported(export_segment(home, kPages * kPage)),
        import(import_segment(peer, exported)) {
    peer.run([] {
      cmi_ctl_cfg cfg{};
      cfg.ctl_cfg_rcfg_tout = 20'000;
      (void)CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_RECONF_TOUT, &cfg);
    });
    REQUIRE(load_all(peer, import.at, kPages));
  }
  void wait_until_held() const {
    REQUIRE_MESSAGE(await_passages(counts, point), "no ninth request for marks");
  }
  // For the peer itself.
  struct Files {
    std::array<char, 256> counts{}, goes_on{};
  };
  Files files() const {
    Files f;
    counts.copy(f.counts.data(), f.counts.size() - 1);
    goes_on.copy(f.goes_on.data(), f.goes_on.size() - 1);
    return f;
  }
  void go_on() const { std::ofstream(goes_on).put('x'); }
  uint64_t here(uint64_t page) const { return exported.at + page * kPage; }
  uint64_t there(uint64_t page) const { return import.at + page * kPage; }
  // The home has heard all that the peer has sent when this is over: it has answered what came
  // after, which took no barrier.
  void settle() { REQUIRE(store(peer, there(kSettled), 1).cause() == Fault::kNone); }
  std::vector<uint64_t> in_flux() { return pages_in_flux(home, exported); }

  Cluster cluster;
  const std::string goes_on, counts, point;
  Process& home;
  Process& peer;
  const Export exported;
  const Import import;
};

TEST_SUITE("stores_in_order") {
  TEST_CASE("stores_in_order_take_a_fault_for_a_window_of_pages") {
    for (const int32_t flags : {0, CMI_SEG_CLIENT_CONSIST}) {
      CAPTURE(flags);
      Scene s(kNoTimer, flags);
      REQUIRE(load_all(s.peer, s.import.at, kPages));
      const uint64_t before = store_faults(s.peer);
      REQUIRE(stores_in_order(s.peer, s.import.at, 0, kPages));
      CHECK(store_faults(s.peer) - before == kFaults);
      REQUIRE(wmb(s.peer).ok());
      CHECK(pages_with_stores(s.home, s.exported.at, 0, kPages) == kPages);
    }
  }

  TEST_CASE("absent_pages_are_fetched_for_who_stores_in_order_and_keep_what_the_home_has") {
    constexpr uint64_t kMany = 2000;
    Scene s(kNoTimer, 0, kMany);
    REQUIRE(s.home.run(
        [](uint64_t at, uint64_t n) {
          for (uint64_t p = 0; p < n; ++p) (void)store64(at + p * kPage + 8, p + 1);
          return CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0;
        },
        s.exported.at, kMany));
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kMany));
    const uint64_t faults = s.peer.run([] { return stats().store_faults + stats().store_misses; });
    CHECK(faults < kMany / 8);
    REQUIRE(wmb(s.peer).ok());
    CHECK(pages_with_stores(s.home, s.exported.at, 0, kMany) == kMany);
    const auto kept = [](uint64_t at, uint64_t n) {
      uint64_t good = 0;
      for (uint64_t p = 0; p < n; ++p) good += load64(at + p * kPage + 8).value == p + 1;
      return good;
    };
    CHECK(s.home.run(kept, s.exported.at, kMany) == kMany);
    CHECK(s.peer.run(kept, s.import.at, kMany) == kMany);
  }

  TEST_CASE("pages_that_were_fetched_for_stores_can_be_loaded") {
    constexpr uint64_t kMany = 3000, kStored = 200;
    Scene s("", 0, kMany);
    REQUIRE(s.home.run(
        [](uint64_t at, uint64_t n) {
          for (uint64_t p = 0; p < n; ++p) (void)store64(at + p * kPage + 8, p + 1);
          return CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0;
        },
        s.exported.at, kMany));
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kStored));
    CHECK(s.peer.run(
              [](uint64_t at, uint64_t n) {
                uint64_t good = 0;
                for (uint64_t p = 0; p < n; ++p) good += load64(at + p * kPage + 8).value == p + 1;
                return good;
              },
              s.import.at, kMany) == kMany);
  }

  TEST_CASE("only_pages_that_were_stored_to_go_home_and_the_marks_of_others_are_given_back") {
    Scene s;
    REQUIRE(load_all(s.peer, s.import.at, kPages));
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kSixteen + 1));
    const uint64_t before = s.peer.run([] { return stats().pages_written_back; });
    REQUIRE(wmb(s.peer).ok());
    CHECK(s.peer.run([] { return stats().pages_written_back; }) - before == kSixteen + 1);
    s.settle();
    CHECK(s.left_in_flux() == 0);
    CHECK(pages_with_stores(s.home, s.exported.at, 0, kPages) == kSixteen + 1);
  }

  TEST_CASE("what_the_timer_finds_unchanged_is_given_back_as_well") {
    Scene s("");
    REQUIRE(load_all(s.peer, s.import.at, kPages));
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kSixteen + 1));
    CHECK(load_until(s.home, s.here(kSixteen) + 64, word_of(kSixteen)) == word_of(kSixteen));
    // What another tick brings comes after all of that one.
    REQUIRE(store(s.peer, s.there(kPages - 2), 3).cause() == Fault::kNone);
    CHECK(load_until(s.home, s.here(kPages - 2), 3) == 3);
    s.settle();
    CHECK(s.left_in_flux() == 0);
  }

  TEST_CASE("who_dies_while_it_stores_in_order_leaves_a_window_in_flux_at_most") {
    Scene s;
    REQUIRE(load_all(s.peer, s.import.at, kPages));
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kSixteen + 3));
    CHECK(s.left_in_flux() == kThirtyTwo);
    CHECK(load(s.home, s.here(kSixteen + 2)).cause() == CMI_ERROR_CONSIST);
    CHECK(load(s.home, s.here(kThirtyTwo)).cause() == Fault::kNone);
    REQUIRE(seg_reco(s.home, s.exported.seg, s.exported.at, kThirtyTwo * kPage).ok());
    CHECK(load(s.home, s.here(kSixteen + 2)).cause() == Fault::kNone);
  }

  TEST_CASE("who_dies_after_seven_pages_in_order_leaves_these_alone_in_flux") {
    Scene s;
    REQUIRE(load_all(s.peer, s.import.at, kPages));
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kTwo));
    CHECK(s.left_in_flux() == kTwo);
  }

  TEST_CASE("pages_made_writable_before_their_marks_are_set_are_missing_from_those_in_flux") {
    Scene s(kNoTimer + ";mutate_ahead_without_intent=fail");
    REQUIRE(load_all(s.peer, s.import.at, kPages));
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kFour));
    s.peer.kill();
    REQUIRE(publish(s.home, s.here(kPages - 1), 1));
    CHECK(load(s.home, s.here(kTwo)).cause() == CMI_ERROR_CONSIST);
    CHECK(load(s.home, s.here(kTwo + 1)).cause() == Fault::kNone);  // and was stored to
  }

  TEST_CASE("a_page_that_is_dropped_before_its_turn_is_fetched_anew_and_its_mark_given_back") {
    HeldUp s("intent_granted");
    auto storing = start_storing(s.peer, s.import.at, 0, kFour + 2);
    s.wait_until_held();
    REQUIRE(publish(s.home, s.here(kFour + 2) + 8, 77));
    s.go_on();
    REQUIRE(storing.get() == kFour + 2);
    CHECK(load(s.peer, s.there(kFour + 2) + 8).value == 77);
    s.settle();
    s.peer.kill();
    CHECK(s.in_flux() == first_pages(kFour + 2));
  }

  TEST_CASE("a_page_that_another_thread_has_stored_to_meanwhile_keeps_its_mark") {
    HeldUp s("intent_granted");
    const uint64_t good = s.peer.run(
        [](uint64_t at, HeldUp::Files files) {
          std::atomic<uint64_t> stored{0};
          std::thread in_order([&] {
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
            for (uint64_t p = 0; p <= kFour; ++p) {
              stored += store64(at + p * kPage + 64, word_of(p)).cause() == Fault::kNone;
            }
            CMIFN(ctxt(), 10, fini)(ctxt());
          });
          const bool held = await_passages(files.counts.data(), "intent_granted");
          stored += store64(at + (kFour + 2) * kPage + 72, 5).cause() == Fault::kNone;
          std::ofstream(files.goes_on.data()).put('x');
          in_order.join();
          return held ? stored.load() : 0;
        },
        s.import.at, s.files());
    REQUIRE(good == kFour + 2);
    s.peer.kill();
    REQUIRE(publish(s.home, s.here(kPages - 1), 1));
    CHECK(load(s.home, s.here(kFour + 2)).cause() == CMI_ERROR_CONSIST);
  }

  TEST_CASE("a_page_in_flux_refuses_its_own_stores_and_nobody_elses") {
    HeldUp s("intent_before_send");
    Process& victim = s.cluster.spawn("victim", {{"CMI_FAULT_POINT", kNoTimer}});
    const Import other = import_segment(victim, s.exported);
    REQUIRE(store(victim, other.at + (kFour + 2) * kPage, 5).cause() == Fault::kNone);
    auto storing = start_storing(s.peer, s.import.at, 0, kPages);
    s.wait_until_held();
    victim.kill();
    // Over when the peer has heard of it as well.
    REQUIRE(publish(s.home, s.here(kPages - 1) + 8, 1));
    s.go_on();
    CHECK(storing.get() == kFour + 2);
    CHECK(load(s.peer, s.there(kFour + 2)).cause() == CMI_ERROR_CONSIST);
    REQUIRE(stores_in_order(s.peer, s.import.at, kFour + 3, kPages));
    REQUIRE(wmb(s.peer).ok());
    CHECK(pages_with_stores(s.home, s.exported.at, 0, kFour + 2) == kFour + 2);
    CHECK(pages_with_stores(s.home, s.exported.at, kFour + 3, kPages) == kPages - kFour - 3);
    REQUIRE(seg_reco(s.home, s.exported.seg, s.here(kFour + 2), kPage).ok());
    REQUIRE(stores_in_order(s.peer, s.import.at, kFour + 2, kFour + 3));
  }

  TEST_CASE("marks_that_are_refused_together_are_set_nowhere") {
    HeldUp s("intent_before_send");
    Process& victim = s.cluster.spawn("victim", {{"CMI_FAULT_POINT", kNoTimer}});
    const Import other = import_segment(victim, s.exported);
    REQUIRE(store(victim, other.at + (kFour + 2) * kPage, 5).cause() == Fault::kNone);
    auto storing = start_storing(s.peer, s.import.at, 0, kFour + 1);
    s.wait_until_held();
    victim.kill();
    REQUIRE(publish(s.home, s.here(kPages - 1) + 8, 1));
    s.go_on();
    REQUIRE(storing.get() == kFour + 1);
    s.settle();
    s.peer.kill();
    // What was stored before went home when the victim died, since all pages were dropped then.
    const std::vector<uint64_t> expected{kFour, kFour + 2};
    const Deadline soon = Deadline::in(20 * kSecond);
    while (s.in_flux() != expected && !soon.passed()) {
    }
    CHECK(s.in_flux() == expected);
  }

  TEST_CASE("marks_that_nobody_waits_for_any_more_are_given_back") {
    Cluster cluster;
    const std::string goes_on = cluster.scratch() + "/goes-on";
    Process& home =
        cluster.spawn("home", {{"CMI_FAULT_POINT", "intent_before_reply#9=hold:" + goes_on}});
    Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", kNoTimer}});
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(load_all(peer, import.at, kPages));
    CHECK(start_storing(peer, import.at, 0, kPages).get() == kFour);  // CMI_ERROR_TRANSIENT
    std::ofstream(goes_on).put('x');
    // Answered after what was sent before.
    const Deadline end = Deadline::in(10 * kSecond);
    while (store(peer, import.at + kSettled * kPage, 1).cause() != Fault::kNone) {
      REQUIRE_FALSE(end.passed());
    }
    peer.kill();
    // The first page's mark is its next store's, and so stays.
    CHECK(pages_in_flux(home, exported) == first_pages(kFour + 1));
  }

  TEST_CASE("threads_that_store_in_order_to_the_same_pages_lose_nothing") {
    for (const int32_t flags : {0, CMI_SEG_CLIENT_CONSIST}) {
      Scene s("", flags);
      const uint64_t good = s.peer.run(
          [](uint64_t at, uint64_t pages) {
            constexpr uint64_t kThreads = 4, kRounds = 20;
            std::atomic<uint64_t> stored{0};
            std::atomic<bool> failed{false};
            std::vector<std::thread> threads;
            for (uint64_t t = 0; t < kThreads; ++t) {
              threads.emplace_back([&, t] {
                CMIFN(ctxt(), 10, ini_th)(ctxt());
                CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
                for (uint64_t round = 1; round <= kRounds; ++round) {
                  for (uint64_t p = 0; p < pages; ++p) {
                    stored += store64(at + p * kPage + t * 8, round + p).cause() == Fault::kNone;
                  }
                  if ((round + t) % 3 == 0 && CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0) failed = true;
                }
                CMIFN(ctxt(), 10, fini)(ctxt());
              });
            }
            for (std::thread& t : threads) t.join();
            return failed ? 0 : stored.load();
          },
          s.import.at, kPages);
      CHECK(good == 4 * 20 * kPages);
      REQUIRE(wmb(s.peer).ok());
      CHECK(s.home.run(
                [](uint64_t at, uint64_t pages) {
                  uint64_t right = 0;
                  for (uint64_t p = 0; p < pages; ++p) {
                    for (uint64_t t = 0; t < 4; ++t) {
                      right += load64(at + p * kPage + t * 8).value == 20 + p;
                    }
                  }
                  return right;
                },
                s.exported.at, kPages) == 4 * kPages);
    }
  }

  TEST_CASE("who_stores_a_lot_in_order_takes_home_what_is_behind_him") {
    constexpr uint64_t kMany = 8000;
    for (const int32_t flags : {0, CMI_SEG_CLIENT_CONSIST}) {
      Scene s(kNoTimer, flags, 2 * kMany);
      REQUIRE(stores_in_order(s.peer, s.import.at, 0, kMany));
      CHECK(s.peer.run([] { return stats().pages_written_back; }) > kMany / 2);
      REQUIRE(wmb(s.peer).ok());
      CHECK(pages_with_stores(s.home, s.exported.at, 0, kMany) == kMany);
      CHECK(pages_with_stores(s.peer, s.import.at, 0, kMany) == kMany);
      // Whole pages, which go one-sided.
      const uint64_t bytes = s.peer.run(
          [](uint64_t at, uint64_t n) {
            for (uint64_t p = 0; p < n; ++p) {
              std::memset(reinterpret_cast<void*>(at + p * kPage), 0x55, kPage);
            }
            return stats().bytes_written_back;
          },
          s.import.at + kMany * kPage, kMany);
      CHECK(bytes > kMany / 2 * kPage);
      REQUIRE(wmb(s.peer).ok());
      CHECK(s.home.run(
                [](uint64_t at, uint64_t n) {
                  const std::vector<unsigned char> want(kPage, 0x55);
                  uint64_t right = 0;
                  for (uint64_t p = 0; p < n; ++p) {
                    right += std::memcmp(reinterpret_cast<void*>(at + p * kPage), want.data(),
                                         kPage) == 0;
                  }
                  return right;
                },
                s.exported.at + kMany * kPage, kMany) == kMany);
    }
  }

  TEST_CASE("a_working_set_that_is_stored_to_again_and_again_is_not_taken_home_before_a_barrier") {
    constexpr uint64_t kMany = 8000;
    Scene s(kNoTimer, CMI_SEG_CLIENT_CONSIST, kMany);
    const auto rewrite = [&](uint64_t value) {
      return s.peer.run(
          [](uint64_t at, uint64_t n, uint64_t v) {
            const cmi_ofi_stats before = stats();
            for (uint64_t p = 0; p < n; ++p) {
              *reinterpret_cast<volatile uint64_t*>(at + p * kPage) = v;
            }
            const cmi_ofi_stats after = stats();
            return std::array<uint64_t, 2>{after.pages_written_back - before.pages_written_back,
                                           after.store_faults - before.store_faults};
          },
          s.import.at, kMany, value);
    };
    REQUIRE(load_all(s.peer, s.import.at, kMany));
    CHECK(rewrite(1)[0] > kMany / 2);
    REQUIRE(wmb(s.peer).ok());
    CHECK(rewrite(2)[0] == 0);
    REQUIRE(wmb(s.peer).ok());
    CHECK(rewrite(3) == std::array<uint64_t, 2>{0, 0});
    REQUIRE(wmb(s.peer).ok());
    CHECK(s.home.run(
              [](uint64_t at, uint64_t n) {
                uint64_t right = 0;
                for (uint64_t p = 0; p < n; ++p) {
                  right += *reinterpret_cast<volatile uint64_t*>(at + p * kPage) == 3;
                }
                return right;
              },
              s.exported.at, kMany) == kMany);
  }

  TEST_CASE("who_stores_a_lot_in_order_does_not_wait_for_a_home_that_does_not_answer") {
    constexpr uint64_t kMany = 16000;
    Scene s(kNoTimer, CMI_SEG_CLIENT_CONSIST, kMany);
    REQUIRE(load_all(s.peer, s.import.at, kMany));
    s.home.stop();
    CHECK(start_storing(s.peer, s.import.at, 0, kMany).get(6) == kMany);
    s.home.signal(SIGCONT);
    REQUIRE(wmb(s.peer).ok());
    CHECK(pages_with_stores(s.home, s.exported.at, 0, kMany) == kMany);
  }

  TEST_CASE("stores_in_order_end_where_the_token_does") {
    Scene s;
    const Flat part =
        tok_newva(s.home, s.exported.seg, s.exported.at, (kEight + 3) * kPage, kAllRights);
    REQUIRE(part.ok());
    REQUIRE(set_token(s.peer, s.import.seg, part).ok());
    REQUIRE(load_all(s.peer, s.import.at, kEight + 3));
    CHECK(start_storing(s.peer, s.import.at, 0, kPages).get() == kEight + 3);
    CHECK(store(s.peer, s.there(kEight + 3), 1).cause() == CMI_ERROR_ACCESS);
    REQUIRE(wmb(s.peer).ok());
    CHECK(pages_with_stores(s.home, s.exported.at, 0, kPages) == kEight + 3);
  }

  TEST_CASE("stores_in_order_end_at_the_break") {
    for (const int32_t flags : {0, CMI_SEG_CLIENT_CONSIST}) {
      Scene s(kNoTimer, flags | CMI_SEG_EXTENSIBLE);
      REQUIRE(seg_brk(s.home, s.exported.seg, (kEight + 3) * kPage).ok());
      REQUIRE(load_all(s.peer, s.import.at, kEight + 3));
      CHECK(start_storing(s.peer, s.import.at, 0, kPages).get() == kEight + 3);
      CHECK(store(s.peer, s.there(kEight + 3), 1).cause() == CMI_ERROR_SEG_BRK);
      REQUIRE(wmb(s.peer).ok());
      CHECK(pages_with_stores(s.home, s.exported.at, 0, kEight + 3) == kEight + 3);
    }
  }

  TEST_CASE("a_revocation_takes_pages_that_were_made_writable_and_not_stored_to_without_a_loss") {
    Scene s;
    REQUIRE(load_all(s.peer, s.import.at, kPages));
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kSixteen + 1));
    REQUIRE(wmb(s.peer).ok());
    // The same, so nothing is lost; the last window is stored to in part.
    REQUIRE(stores_in_order(s.peer, s.import.at, 0, kEight + 2));
    REQUIRE(tok_del(s.home, s.exported.token).ok());
    CHECK(load(s.peer, s.there(0)).cause() == CMI_ERROR_TOKEN);
    CHECK(wmb(s.peer).ok());
    CHECK(pages_with_stores(s.home, s.exported.at, 0, kPages) == kSixteen + 1);
    // The home answers what is asked after the dirty intents have been given back.
    REQUIRE(set_token(s.peer, s.import.seg,
                      tok_new(s.home, s.exported.seg, CMI_ACC_READ | CMI_ACC_WRITE))
                .ok());
    REQUIRE(load(s.peer, s.there(0)).cause() == Fault::kNone);
    s.peer.kill();
    REQUIRE(publish(s.home, s.here(kPages - 1), 1));
    CHECK(seg_check(s.home, s.exported.seg, s.exported.at, kPages * kPage).size == 0);
  }
}

}  // namespace

}  // namespace cmi::test::dirty_ahead_nodes_test

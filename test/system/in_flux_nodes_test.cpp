// Pages in flux: what an importer's death leaves of its stores in a client-inconsistent segment,
// who gets CMI_ERROR_CONSIST there, and how CMI_SEG_CHECK and CMI_SEG_RECO give the pages back.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"

namespace cmi::test::in_flux_nodes_test {

namespace {

constexpr uint64_t kPages = 16;
constexpr uint64_t kKnock =
    15;  // the home's own store there makes it miss an importer that is dead

// Its invalidation rounds are answered by the home.
const Env kWithoutDirectAcks{{"CMI_FAULT_POINT", "direct_acks_not_asked_for=fail"}};
// Whatever it stores stays in its cache: the timer's first write-back never gets anywhere, and with
// it the thread that would answer notices. Stores to mapped pages are not announced by the timer.
const Env kWritesNothingBack{
    {"CMI_FAULT_POINT", mapped() ? "no_aging=fail" : "publish_before_send=delay:60000000"}};

uint64_t at_page(uint64_t view, uint64_t page) { return view + page * kPage; }

// A home, an importer that is going to die, and what is between them.
struct Scene {
  Cluster cluster;
  Process& home;
  Process& victim;
  Export exported;
  Import import;
  uint64_t name;  // of the victim
  explicit Scene(const Env& victim_env = kWritesNothingBack, const Env& home_env = {},
                 int32_t flags = 0)
      : home(cluster.spawn("home", home_env)),
        victim(cluster.spawn("victim", victim_env)),
        exported(export_segment(home, kPages * kPage, kAllRights, flags)),
        import(import_segment(victim, exported)),
        name(name_of(victim, import.at)) {}

  uint64_t here(uint64_t page) const { return at_page(exported.at, page); }
  // Returns when the home knows of the death.
  void dies() {
    victim.kill();
    knock();
    await_gone(home, exported.at, name);
  }
  void knock() {
    REQUIRE(store(home, here(kKnock), 1).cause() == Fault::kNone);
    REQUIRE(wmb(home).ok());
  }
  Recovery check(uint64_t page = 0, uint64_t pages = kPages) {
    return seg_check(home, exported.seg, here(page), pages * kPage);
  }
  Answer recover(uint64_t page = 0, uint64_t pages = kPages) {
    return seg_reco(home, exported.seg, here(page), pages * kPage);
  }
  void victim_stores(uint64_t page, uint64_t value = 7) {
    REQUIRE(store(victim, at_page(import.at, page), value).cause() == Fault::kNone);
  }
};

// Until an access ends so, which it does as soon as the process has heard.
int cause_until(Process& process, uint64_t at, int cause) {
  const Deadline deadline = Deadline::in(10 * kSecond);
  int seen = load(process, at).cause();
  while (seen != cause && !deadline.passed()) seen = load(process, at).cause();
  return seen;
}

struct Unacknowledged {
  Process& third;
  Import other;
};
// Its store to page 6 has come home, and the third process, which holds the page, is stopped.
Unacknowledged dies_beside_who_does_not_hear(Scene& s) {
  Process& third = s.cluster.spawn("third");
  const Import other = import_segment(third, s.exported);
  REQUIRE(load(third, at_page(other.at, 6)).value == 0);
  third.stop();
  s.victim_stores(6, 1);
  REQUIRE(load_until(s.home, s.here(6), 1) == 1);
  s.victim.kill();
  return {third, other};
}

TEST_SUITE("consist") {
  TEST_CASE("stores_that_a_dead_importer_has_not_written_back_leave_their_pages_in_flux") {
    Scene s;
    s.victim_stores(9);
    s.victim_stores(3);
    s.victim_stores(4);
    CHECK(s.check().size == 0);
    CHECK((seg_status(s.home, s.exported.seg).status.st_flags & CMI_SEG_ST_INCONSIST) == 0);
    s.dies();
    for (uint64_t page = 0; page < kPages; ++page) {
      CAPTURE(page);
      const bool lost = page == 3 || page == 4 || page == 9;
      const Access got = load(s.home, s.here(page) + 24);
      CHECK(got.cause() == (lost ? CMI_ERROR_CONSIST : Fault::kNone));
      CHECK(store(s.home, s.here(page) + 32, 5).cause() == got.cause());
      const Swap swap = atm_cas(s.home, s.here(page) + 40, 0, 1);
      CHECK(swap.fault.cause() == got.cause());
      CHECK(swap.swapped == !lost);
      if (!lost) continue;
      CHECK(got.fault.address == s.here(page) + 24);
      CHECK(got.fault.id == s.exported.seg);
    }
    CHECK((seg_status(s.home, s.exported.seg).status.st_flags & CMI_SEG_ST_INCONSIST) != 0);
  }

  TEST_CASE("check_finds_the_lowest_range_and_reco_gives_pages_back_piece_by_piece") {
    Scene s;
    for (const uint64_t page : {9, 3, 4}) s.victim_stores(page);
    s.dies();
    Recovery found = s.check();
    REQUIRE(found.answer.ok());
    CHECK(found.at == s.here(3));
    CHECK(found.size == 2 * kPage);
    CHECK(s.check(4, 2).at == s.here(4));
    CHECK(s.check(4, 2).size == kPage);
    CHECK(s.check(5, 4).size == 0);
    REQUIRE(s.recover(3, 1).ok());
    CHECK(load(s.home, s.here(3)).cause() == Fault::kNone);
    CHECK(store(s.home, s.here(3), 8).cause() == Fault::kNone);
    CHECK(load(s.home, s.here(4)).cause() == CMI_ERROR_CONSIST);
    found = s.check();
    CHECK(found.at == s.here(4));
    CHECK(found.size == kPage);
    REQUIRE(s.recover(4, 1).ok());
    CHECK(s.check().at == s.here(9));
    REQUIRE(s.recover().ok());
    CHECK(s.check().size == 0);
    CHECK((seg_status(s.home, s.exported.seg).status.st_flags & CMI_SEG_ST_INCONSIST) == 0);
    CHECK(load(s.home, s.here(3)).value == 8);
    CHECK(load(s.home, s.here(9)).cause() == Fault::kNone);
    CHECK(s.recover().ok());
  }

  TEST_CASE("what_was_published_before_the_death_is_not_in_flux") {
    Scene s{Env{}};
    for (const uint64_t page : {2, 5}) s.victim_stores(page, 40 + page);
    REQUIRE(wmb(s.victim).ok());
    s.dies();
    CHECK(s.check().size == 0);
    CHECK(load(s.home, s.here(2)).value == 42);
    CHECK(load(s.home, s.here(5)).value == 45);
  }

  // It stays writable over its barriers, with its dirty intent at the home.
  TEST_CASE("a_hot_page_is_in_flux_when_its_importer_dies") {
    Scene s{Env{{"CMI_FAULT_POINT", "no_aging=fail"}}};
    for (const uint64_t value : {1, 2, 3}) {
      s.victim_stores(3, value);
      REQUIRE(wmb(s.victim).ok());
    }
    s.victim_stores(6, 1);  // once: not hot
    REQUIRE(wmb(s.victim).ok());
    s.dies();
    const Recovery found = s.check();
    CHECK(found.at == s.here(3));
    CHECK(found.size == kPage);
    CHECK(s.recover().ok());
    CHECK(load(s.home, s.here(3)).value == 3);
    CHECK(load(s.home, s.here(6)).value == 1);
  }
  TEST_CASE("a_hot_page_whose_intent_is_cleared_is_not_in_flux_after_a_death") {
    Scene s{Env{{"CMI_FAULT_POINT", "no_aging=fail;mutate_hot_intent_cleared=fail"}}};
    for (const uint64_t value : {1, 2, 3}) {
      s.victim_stores(3, value);
      REQUIRE(wmb(s.victim).ok());
    }
    s.victim_stores(3, 4);
    s.dies();
    CHECK(s.check().size == 0);
    CHECK(load(s.home, s.here(3)).value == 3);  // the store is lost, and nothing says so
  }
  TEST_CASE("a_hot_page_that_is_not_stored_to_any_more_is_not_in_flux_after_some_barriers") {
    Scene s{Env{{"CMI_FAULT_POINT", "no_aging=fail"}}};
    for (const uint64_t value : {1, 2, 3}) {
      s.victim_stores(3, value);
      REQUIRE(wmb(s.victim).ok());
    }
    REQUIRE(cool(s.victim).ok());
    // Behind the message that gives the dirty intent back.
    s.victim_stores(6, 1);
    REQUIRE(wmb(s.victim).ok());
    s.dies();
    CHECK(s.check().size == 0);
    CHECK(load(s.home, s.here(3)).value == 3);
  }

  TEST_CASE("a_store_that_changed_nothing_leaves_nothing_in_flux") {
    Scene s{Env{}};
    REQUIRE(load(s.victim, at_page(s.import.at, 2)).value == 0);
    s.victim_stores(2, 0);
    REQUIRE(wmb(s.victim).ok());
    // Behind what was sent before it.
    s.victim_stores(6, 1);
    REQUIRE(wmb(s.victim).ok());
    s.dies();
    CHECK(s.check().size == 0);
  }

  TEST_CASE("an_importer_that_ends_in_good_order_leaves_nothing_in_flux") {
    Scene s{Env{}};
    s.victim_stores(5, 50);
    s.victim_stores(6, 60);
    REQUIRE(fini(s.victim).ok());
    s.knock();
    CHECK(s.check().size == 0);
    CHECK(load(s.home, s.here(5)).value == 50);
    CHECK(load(s.home, s.here(6)).value == 60);
  }

  TEST_CASE("stores_that_a_revocation_ends_leave_nothing_in_flux") {
    Scene s{Env{}};
    s.victim_stores(5);
    REQUIRE(tok_del(s.home, s.exported.token).ok());
    s.exported.token = tok_new(s.home, s.exported.seg, kAllRights);
    REQUIRE(set_token(s.victim, s.import.seg, s.exported.token).ok());
    REQUIRE(load(s.victim, at_page(s.import.at, 8)).cause() == Fault::kNone);
    s.dies();
    CHECK(s.check().size == 0);
  }

  TEST_CASE("an_importer_that_is_cut_off_with_its_stores_leaves_their_pages_in_flux") {
    Scene s;
    s.victim_stores(5);
    s.victim.stop();
    // Waits for its answer in vain.
    REQUIRE(tok_del(s.home, s.exported.token).failed(CMI_ERR_RECONFIG));
    CHECK(s.check().at == s.here(5));
    CHECK(s.check().size == kPage);
    s.victim.kill();
  }

  TEST_CASE("a_page_stored_to_again_while_its_write_back_travels_is_in_flux") {
    Scene s{Env{{"CMI_FAULT_POINT", "publish_before_send#2=delay:60000000"}}};
    Process& third = s.cluster.spawn("third");
    const Import other = import_segment(third, s.exported);
    REQUIRE(load(third, at_page(other.at, 6)).value == 0);
    third.stop();  // the answer to the write-back has to wait for it
    s.victim_stores(6, 1);
    REQUIRE(load_until(s.home, s.here(6), 1) == 1);
    s.victim_stores(6, 2);
    third.signal(SIGCONT);
    REQUIRE(load_until(third, at_page(other.at, 6), 1) == 1);  // the home has published it
    s.dies();
    CHECK(s.check().at == s.here(6));
    CHECK(s.check().size == kPage);
  }

  TEST_CASE("a_write_back_that_is_not_published_is_in_flux") {
    Scene s{kWithoutDirectAcks};
    const auto [third, other] = dies_beside_who_does_not_hear(s);
    REQUIRE(store(s.home, s.here(kKnock), 1).cause() == Fault::kNone);
    CHECK(cause_until(s.home, s.here(6), CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
    third.signal(SIGCONT);
    CHECK(cause_until(third, at_page(other.at, 6), CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
    REQUIRE(s.recover().ok());
    CHECK(load(s.home, s.here(6)).value == 1);
    CHECK(load(third, at_page(other.at, 6)).value == 1);
  }

  // With direct acks the home does not know whether the victim was told that it is over.
  TEST_CASE("a_write_back_that_may_be_over_with_direct_acks_is_not_in_flux_and_all_hear_of_it") {
    Scene s{Env{}};
    const auto [third, other] = dies_beside_who_does_not_hear(s);
    // The end of its connections tells of the death at once; it is told when the third one has
    // dropped the page.
    for (const Deadline soon = Deadline::in(300 * kMilli); !soon.passed();) {
      REQUIRE(next_event(s.home) == 0);
    }
    CHECK(s.check().size == 0);
    third.signal(SIGCONT);
    REQUIRE(await_happening(s.home).type == CMI_EVENT_RCTXT_DOWN);
    CHECK(load(third, at_page(other.at, 6)).value == 1);
    CHECK(load(s.home, s.here(6)).value == 1);
    CHECK(s.check().size == 0);
  }

  TEST_CASE("a_write_back_that_is_not_published_is_missed_when_its_mark_is_cleared_early") {
    Scene s{kWithoutDirectAcks, Env{{"CMI_FAULT_POINT", "mutate_intents_cleared_early=fail"}}};
    const auto [third, other] = dies_beside_who_does_not_hear(s);
    REQUIRE(store(s.home, s.here(kKnock), 1).cause() == Fault::kNone);
    REQUIRE(await_happening(s.home).type == CMI_EVENT_RCTXT_DOWN);
    CHECK(s.check().size == 0);
    third.signal(SIGCONT);
  }

  PROCESS_CASE("an_importer_that_dies_before_its_intent_is_known_leaves_nothing_in_flux") {
    for (const bool cached : {false, true}) {
      CAPTURE(cached);
      Scene s{Env{{"CMI_FAULT_POINT", "intent_before_send=kill"}}};
      REQUIRE(load(s.victim, at_page(s.import.at, cached ? 2 : 8)).cause() == Fault::kNone);
      CHECK_THROWS_AS((void)store(s.victim, at_page(s.import.at, 2), 1), ChildFailed);
      s.knock();
      CHECK(s.check().size == 0);
      CHECK(load(s.home, s.here(2)).value == 0);
    }
  }

  PROCESS_CASE("the_mark_is_at_the_home_before_the_page_can_be_stored_to") {
    for (const bool cached : {false, true}) {
      CAPTURE(cached);
      // Before Linux 6.4 a load passes the first of these points, too.
      const char* point = cached ? "intent_granted=kill" : "store_before_unprotect=kill";
      Scene s{Env{{"CMI_FAULT_POINT", point}}};
      const uint64_t at = at_page(s.import.at, 2);
      if (cached) REQUIRE(load(s.victim, at).cause() == Fault::kNone);
      CHECK_THROWS_AS((void)store(s.victim, at, 1), ChildFailed);
      s.knock();
      CHECK(s.check().at == s.here(2));
      CHECK(s.check().size == kPage);
    }
  }

  // The mark is waited for, or the test above would prove little.
  TEST_CASE("a_first_store_waits_for_its_mark") {
    for (const bool broken : {false, true}) {
      CAPTURE(broken);
      Scene s{broken ? Env{{"CMI_FAULT_POINT", "mutate_intent_not_awaited=fail"}} : Env{}};
      REQUIRE(load(s.victim, at_page(s.import.at, 2)).cause() == Fault::kNone);
      s.home.stop();
      const int cause = store(s.victim, at_page(s.import.at, 2), 1).cause();
      CHECK(cause == (broken ? Fault::kNone : CMI_ERROR_TRANSIENT));
      s.home.signal(SIGCONT);
      CHECK(load_until(s.victim, at_page(s.import.at, 3), 0) == 0);
      CHECK(publish(s.victim, at_page(s.import.at, 2), 2));
    }
  }

  TEST_CASE("a_page_has_a_new_intent_after_its_write_back") {
    for (const bool broken : {false, true}) {
      CAPTURE(broken);
      std::string points = "publish_before_send#2=delay:60000000";
      if (broken) points += ";mutate_intent_kept_by_write_back=fail";
      Scene s{Env{{"CMI_FAULT_POINT", points}}};
      s.victim_stores(2, 1);
      REQUIRE(load_until(s.home, s.here(2), 1) == 1);
      // The answer has come, or the second write-back would not begin.
      s.victim_stores(2, 2);
      s.dies();
      CHECK(s.check().size == (broken ? 0 : kPage));
    }
  }

  // Who alone has access sends first and protects then. Who has not protects first, so that a store
  // of another thread asks for a dirty intent of its own; else the message would take it along.
  TEST_CASE("a_store_beside_a_barrier_of_another_thread_has_a_new_intent") {
    for (const bool broken : {false, true}) {
      CAPTURE(broken);
      std::string points = "sent_before_protect=delay:60000000";
      if (broken) points += ";mutate_taken_for_exclusive=fail";
      Scene s{Env{{"CMI_FAULT_POINT", points}}};
      const uint64_t at = at_page(s.import.at, 2);
      s.victim.run(
          [](uint64_t word) {
            std::thread([word] {
              cmi_ctxt* const context = ctxt();
              if (CMIFN(context, 10, ini_th)(context) != 0) return;
              if (CMIFN(context, 10, cmi_enb)(context, 1) != 0) return;
              store64(word, 1);
              cmi_wmb();
              std::this_thread::sleep_for(std::chrono::hours(1));
            }).detach();
          },
          at);
      REQUIRE(load_until(s.home, s.here(2), 1) == 1);
      s.victim_stores(2, 2);
      s.dies();
      CHECK(s.check().size == (broken ? 0 : kPage));
    }
  }

  // Who gets access while another thread's page is on its way, and not protected yet, waits.
  TEST_CASE("who_gets_access_while_a_page_is_sent_asks_for_a_mark_of_his_own") {
    for (const bool broken : {false, true}) {
      CAPTURE(broken);
      Cluster cluster;
      struct Files {
        std::array<char, 256> counts{}, goes_on{};
      } files;
      (cluster.scratch() + "/passages").copy(files.counts.data(), files.counts.size() - 1);
      (cluster.scratch() + "/goes-on").copy(files.goes_on.data(), files.goes_on.size() - 1);
      // The barrier that is held up sends nothing more.
      std::string points = "mutate_timer_takes_nothing=fail;publish_before_send#2=delay:60000000";
      points += std::string(";sent_before_protect=hold:") + files.goes_on.data();
      if (broken) points += ";mutate_access_meanwhile=fail";
      Scene s{Env{{"CMI_FAULT_POINT", points}, {"CMI_FAULT_COUNT", files.counts.data()}}};
      const bool stored = s.victim.run(
          [](uint64_t at, Files held) {
            CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 0);
            std::thread([at] {
              CMIFN(ctxt(), 10, ini_th)(ctxt());
              CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
              store64(at, 1);
              cmi_wmb();
              std::this_thread::sleep_for(std::chrono::hours(1));
            }).detach();
            const Deadline end = Deadline::in(10 * kSecond);
            while (read_passages(held.counts.data())["sent_before_protect"] == 0) {
              if (end.passed()) return false;
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            // Let go of when the store is made, or when it seems that it has to wait.
            std::atomic<bool> done{false};
            std::thread key([&] {
              const Deadline soon = Deadline::in(300 * kMilli);
              while (!done && !soon.passed()) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              }
              std::ofstream(held.goes_on.data()).put('x');
            });
            CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
            done = store64(at, 2).cause() == Fault::kNone;
            key.join();
            return done.load();
          },
          at_page(s.import.at, 2), files);
      REQUIRE(stored);
      s.dies();
      CHECK(s.check().size == (broken ? 0 : kPage));
      if (broken) CHECK(load(s.home, s.here(2)).value == 1);
    }
  }

  TEST_CASE("who_dies_between_sending_and_protecting_leaves_nothing_in_flux") {
    Scene s{Env{{"CMI_FAULT_POINT", "sent_before_protect=kill"}}};
    s.victim_stores(2, 3);
    CHECK_THROWS_AS((void)wmb(s.victim), ChildFailed);
    s.knock();
    CHECK(s.check().size == 0);
    CHECK(load(s.home, s.here(2)).value == 3);
  }

  TEST_CASE("an_importer_that_is_not_notified_reads_a_page_in_flux") {
    Scene s{kWritesNothingBack, Env{{"CMI_FAULT_POINT", "mutate_new_importer_not_notified=fail"}}};
    s.victim_stores(5);
    s.dies();
    Process& late = s.cluster.spawn("late");
    const Import later = import_segment(late, s.exported);
    CHECK(load(late, at_page(later.at, 5)).cause() == Fault::kNone);
  }

  TEST_CASE("a_page_that_is_being_fetched_while_it_gets_in_flux_is_not_delivered") {
    Scene s;
    Process& third =
        s.cluster.spawn("third", {{"CMI_FAULT_POINT", "fetch_before_deliver#2=delay:3000000"}});
    const Import other = import_segment(third, s.exported);
    REQUIRE(load(third, at_page(other.at, 1)).cause() == Fault::kNone);
    s.victim_stores(5);
    auto pending =
        third.start([](uint64_t at) { return load64(at).cause(); }, at_page(other.at, 5));
    s.dies();
    CHECK(pending.get() == CMI_ERROR_CONSIST);
  }

  TEST_CASE("every_other_importer_gets_consist_and_can_access_after_reco") {
    Scene s;
    Process& cached = s.cluster.spawn("cached");
    Process& fresh = s.cluster.spawn("fresh");
    const Import had = import_segment(cached, s.exported);
    const Import has_not = import_segment(fresh, s.exported);
    for (uint64_t page = 0; page < kPages; ++page) {
      REQUIRE(load(cached, at_page(had.at, page)).cause() == Fault::kNone);
    }
    REQUIRE(load(fresh, at_page(has_not.at, 1)).cause() == Fault::kNone);
    s.victim_stores(5);
    s.dies();
    Process& late = s.cluster.spawn("late");
    const Import later = import_segment(late, s.exported);
    CHECK(load(late, at_page(later.at, 5)).cause() == CMI_ERROR_CONSIST);
    const std::pair<Process*, uint64_t> all[] = {
        {&cached, had.at}, {&fresh, has_not.at}, {&late, later.at}};
    for (auto& [process, view] : all) {
      CAPTURE(process->name());
      const uint64_t at = at_page(view, 5);
      CHECK(cause_until(*process, at, CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
      const Fault fault = store(*process, at + 8, 1).fault;
      CHECK(fault.cause() == CMI_ERROR_CONSIST);
      CHECK(fault.address == at + 8);
      CHECK(atm_cas(*process, at + 16, 0, 1).fault.cause() == CMI_ERROR_CONSIST);
      CHECK(load(*process, at_page(view, 4)).cause() == Fault::kNone);
      CHECK(publish(*process, at_page(view, 6), 9));
    }
    REQUIRE(s.recover(5, 1).ok());
    uint64_t value = 100;
    for (auto& [process, view] : all) {
      CAPTURE(process->name());
      CHECK(load(*process, at_page(view, 5)).cause() == Fault::kNone);
      CHECK(publish(*process, at_page(view, 5), ++value));
      CHECK(load(s.home, s.here(5)).value == value);
      CHECK(atm_cas(*process, at_page(view, 5) + 16, value - 101, value - 100).swapped);
    }
    REQUIRE(publish(s.home, s.here(5), 77));
    for (auto& [process, view] : all) CHECK(load(*process, at_page(view, 5)).value == 77);
  }

  TEST_CASE("cflush_of_an_address_in_flux_raises_consist") {
    Scene s;
    Process& third = s.cluster.spawn("third");
    const Import other = import_segment(third, s.exported);
    s.victim_stores(5);
    s.dies();
    REQUIRE(cause_until(third, at_page(other.at, 5), CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
    const auto flushed = [](uint64_t at) {
      void* addresses[] = {reinterpret_cast<void*>(at)};
      auto body = [&] { CMIFN(ctxt(), 10, cflush)(ctxt(), addresses, 1); };
      return guarded(body);
    };
    CHECK(third.run(flushed, at_page(other.at, 5)).cause() == CMI_ERROR_CONSIST);
    CHECK(s.home.run(flushed, s.here(5)).cause() == CMI_ERROR_CONSIST);
    CHECK(third.run(flushed, at_page(other.at, 4)).cause() == Fault::kNone);
    CHECK(s.home.run(flushed, s.here(4)).cause() == Fault::kNone);
  }

  TEST_CASE("cflush_of_an_address_in_flux_fails_where_the_handler_returns_without_recovering_it") {
    Scene s;
    s.victim_stores(5);
    s.dies();
    REQUIRE(cause_until(s.home, s.here(5), CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
    const auto flush = [](uint64_t at) {
      static uint64_t raised;
      raised = 0;
      set_on_fault([](const Fault& fault) {
        ++raised;
        return fault.error == CMI_ERROR_CONSIST;
      });
      void* addresses[] = {reinterpret_cast<void*>(at)};
      int64_t result = 0;
      auto body = [&] { result = CMIFN(ctxt(), 10, cflush)(ctxt(), addresses, 1); };
      guarded(body);
      const Answer a = answer(raised == 1 ? result : -2, result != 0);
      set_on_fault(nullptr);
      return a;
    };
    CHECK(s.home.run(flush, s.here(5)).failed(CMI_ERR_STORE));
    // Where it does recover the line, the call ends well.
    const auto mend = [](uint64_t at, cmi_seg seg) {
      static uint64_t line;
      static cmi_seg segment;
      line = at;
      segment = seg;
      set_on_fault([](const Fault&) {
        cmi_ds ds{};
        ds.reco.reco_addr = reinterpret_cast<void*>(line);
        ds.reco.reco_size = kPage;
        return CMIFN(ctxt(), 10, seg_ctl)(ctxt(), segment, CMI_SEG_RECO, &ds) == 0;
      });
      void* addresses[] = {reinterpret_cast<void*>(at)};
      int64_t result = -2;
      auto body = [&] { result = CMIFN(ctxt(), 10, cflush)(ctxt(), addresses, 1); };
      guarded(body);
      set_on_fault(nullptr);
      return answer(result, result != 0);
    };
    CHECK(s.home.run(mend, s.here(5), s.exported.seg).ok());
    CHECK(s.check().size == 0);
  }

  TEST_CASE("the_empty_range_that_check_answers_can_be_given_to_reco") {
    Scene s;
    const Recovery nothing = s.check();
    REQUIRE(nothing.answer.ok());
    REQUIRE(nothing.size == 0);
    CHECK(seg_reco(s.home, s.exported.seg, nothing.at, nothing.size).ok());
    CHECK(seg_reco(s.victim, s.import.seg, nothing.at, 0).failed(CMI_ERR_PERM));
  }

  TEST_CASE("stores_of_living_importers_to_a_page_in_flux_come_home") {
    Scene s;
    Process& fourth = s.cluster.spawn("fourth");
    const Import other = import_segment(fourth, s.exported);
    REQUIRE(load(fourth, at_page(other.at, 5)).cause() == Fault::kNone);
    s.victim_stores(5);
    REQUIRE(store(fourth, at_page(other.at, 5) + 64, 11).cause() == Fault::kNone);
    s.dies();
    REQUIRE(cause_until(fourth, at_page(other.at, 5), CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
    CHECK(wmb(fourth).ok());
    REQUIRE(s.recover().ok());
    CHECK(load(s.home, s.here(5) + 64).value == 11);
    CHECK(load(s.home, s.here(5)).value == 0);
  }

  TEST_CASE("two_importers_that_die_leave_the_pages_of_both_in_flux") {
    Scene s;
    Process& second = s.cluster.spawn("second", kWritesNothingBack);
    const Import other = import_segment(second, s.exported);
    s.victim_stores(2);
    REQUIRE(store(second, at_page(other.at, 3), 1).cause() == Fault::kNone);
    const uint64_t name = name_of(second, other.at);
    second.kill();
    s.dies();
    await_gone(s.home, s.exported.at, name);
    CHECK(s.check().at == s.here(2));
    CHECK(s.check().size == 2 * kPage);
    REQUIRE(s.recover().ok());
    CHECK(load(s.home, s.here(3)).cause() == Fault::kNone);
  }

  TEST_CASE("every_process_of_the_home_node_gets_consist_and_can_access_after_reco") {
    Scene s;
    Process& writer = s.cluster.spawn("home");
    Process& reader = s.cluster.spawn("home");
    const Answer both = seg_at(writer, s.exported.seg);
    const Answer read_only = seg_at(reader, s.exported.seg, 0, CMI_SEG_READ);
    const Answer second_view = seg_at(s.home, s.exported.seg, 0, CMI_SEG_READ);
    REQUIRE(both.ok());
    REQUIRE(read_only.ok());
    REQUIRE(second_view.ok());
    REQUIRE(load(writer, at_page(both.at(), 5)).cause() == Fault::kNone);
    s.victim_stores(5);
    s.dies();
    Process& late = s.cluster.spawn("home");
    const Answer later = seg_at(late, s.exported.seg);
    REQUIRE(later.ok());
    CHECK(load(late, at_page(later.at(), 5)).cause() == CMI_ERROR_CONSIST);
    const std::pair<Process*, uint64_t> all[] = {{&writer, both.at()},
                                                 {&reader, read_only.at()},
                                                 {&late, later.at()},
                                                 {&s.home, second_view.at()}};
    for (auto& [process, view] : all) {
      const uint64_t at = at_page(view, 5);
      CHECK(cause_until(*process, at, CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
      CHECK(store(*process, at + 8, 1).cause() == CMI_ERROR_CONSIST);
      CHECK(load(*process, at_page(view, 4)).cause() == Fault::kNone);
      CHECK(load(*process, at_page(view, 6)).cause() == Fault::kNone);
    }
    CHECK(atm_cas(writer, at_page(both.at(), 5), 0, 1).fault.cause() == CMI_ERROR_CONSIST);
    REQUIRE(s.recover().ok());
    for (auto& [process, view] : all) {
      CHECK(load(*process, at_page(view, 5)).cause() == Fault::kNone);
    }
    CHECK(store(reader, at_page(read_only.at(), 5), 1).cause() == CMI_ERROR_ACCESS);
    CHECK(store(s.home, at_page(second_view.at(), 5), 1).cause() == CMI_ERROR_ACCESS);
    // What they store there is noticed and published as before.
    Process& third = s.cluster.spawn("third");
    const Import other = import_segment(third, s.exported);
    uint64_t value = 50;
    for (Process* process : {&writer, &late, &s.home}) {
      const uint64_t view = process == &writer ? both.at()
                            : process == &late ? later.at()
                                               : s.exported.at;
      REQUIRE(load(third, at_page(other.at, 5)).cause() == Fault::kNone);
      REQUIRE(publish(*process, at_page(view, 5), ++value));
      CHECK(load(third, at_page(other.at, 5)).value == value);
    }
  }

  // How often the importers missed a store of a neighbour that had covered more than its owner
  // knew.
  int missed_of_neighbour(const Env& home_env) {
    Scene s{kWritesNothingBack, home_env};
    // It finds no memory to single out pages: all of them are covered there.
    Process& neighbour = s.cluster.spawn("home", {{"CMI_FAULT_POINT", "cover_no_memory=fail"}});
    const Answer view = seg_at(neighbour, s.exported.seg);
    REQUIRE(view.ok());
    Process& third = s.cluster.spawn("third");
    const Import other = import_segment(third, s.exported);
    REQUIRE(load(third, at_page(other.at, 8)).value == 0);
    s.victim_stores(5);
    s.dies();
    CHECK(cause_until(neighbour, at_page(view.at(), 8), CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
    // Its view is looked at while it is covered.
    REQUIRE(load(third, at_page(other.at, 8)).value == 0);
    REQUIRE(publish(s.home, s.here(8), 1));
    REQUIRE(s.recover().ok());
    CHECK(cause_until(neighbour, at_page(view.at(), 8), Fault::kNone) == Fault::kNone);
    int missed = 0;
    for (uint64_t value = 2; value < 5; ++value) {
      (void)load(third, at_page(other.at, 8));
      REQUIRE(publish(neighbour, at_page(view.at(), 8), value));
      missed += load(third, at_page(other.at, 8)).value != value;
    }
    return missed;
  }

  TEST_CASE("a_neighbour_that_covers_more_than_its_owner_knows_is_heard_of_again_after_reco") {
    CHECK(missed_of_neighbour({}) == 0);
  }
  TEST_CASE("a_neighbour_is_missed_when_a_view_with_holes_counts_as_ended") {
    if (!kernel_notes_stores()) return skip("the kernel does not note stores");
    CHECK(missed_of_neighbour({{"CMI_FAULT_POINT", "mutate_view_with_holes_forgotten=fail"}}) > 0);
  }

  TEST_CASE("a_revocation_that_is_not_answered_leaves_the_marks_of_other_tokens") {
    Scene s;
    const Flat token = tok_new(s.home, s.exported.seg, kAllRights);
    REQUIRE(token.ok());
    Export same = s.exported;
    same.token = token;
    const Import second = import_segment(s.victim, same);
    s.victim_stores(5);
    REQUIRE(store(s.victim, at_page(second.at, 9), 7).cause() == Fault::kNone);
    s.victim.stop();
    // Waits for its answer in vain.
    REQUIRE(tok_del(s.home, s.exported.token).failed(CMI_ERR_RECONFIG));
    CHECK(s.check().at == s.here(5));
    CHECK(s.check(6, kPages - 6).size == 0);
    s.dies();
    CHECK(s.check(6, kPages - 6).at == s.here(9));
    CHECK(s.check(6, kPages - 6).size == kPage);
  }

  TEST_CASE("a_handler_that_waits_for_reco_goes_on_where_it_was") {
    Scene s;
    s.victim_stores(5);
    s.dies();
    const auto came_through = s.home.run(
        [](uint64_t at, cmi_seg seg) {
          static cmi_seg segment;
          segment = seg;
          set_on_fault([](const Fault& fault) {
            if (fault.cause() != CMI_ERROR_CONSIST) return false;
            cmi_ds ds{};
            ds.reco.reco_addr = reinterpret_cast<void*>(fault.address / kPage * kPage);
            ds.reco.reco_size = kPage;
            return CMIFN(ctxt(), 10, seg_ctl)(ctxt(), segment, CMI_SEG_RECO, &ds) == 0;
          });
          const Access got = load64(at + 8);
          set_on_fault(nullptr);
          return got.fault.times == 1 && store64(at, 3).cause() == Fault::kNone;
        },
        s.here(5), s.exported.seg);
    CHECK(came_through);
    CHECK(s.check().size == 0);
  }

  TEST_CASE("nothing_of_a_client_consistent_segment_is_ever_in_flux") {
    // An importer that were to mark a page would be killed.
    Env env = kWritesNothingBack;
    env[0].second += ";intent_before_send=kill";
    Scene s{env, {}, CMI_SEG_CLIENT_CONSIST};
    Process& third = s.cluster.spawn("third");
    const Import other = import_segment(third, s.exported);
    REQUIRE(load(third, at_page(other.at, 5)).cause() == Fault::kNone);
    REQUIRE(load(s.victim, at_page(s.import.at, 6)).cause() == Fault::kNone);
    s.victim_stores(5);
    s.victim_stores(6);
    s.dies();
    const Recovery found = s.check();
    CHECK(found.answer.ok());
    CHECK(found.size == 0);
    CHECK(s.recover().ok());
    for (const uint64_t page : {5, 6}) {
      CHECK(load(s.home, s.here(page)).cause() == Fault::kNone);
      CHECK(store(s.home, s.here(page), 1).cause() == Fault::kNone);
      CHECK(load(third, at_page(other.at, page)).cause() == Fault::kNone);
    }
    CHECK((seg_status(s.home, s.exported.seg).status.st_flags & CMI_SEG_ST_INCONSIST) == 0);
  }

  TEST_CASE("segments_of_both_modes_live_beside_each_other") {
    Scene s;
    const Export consistent =
        export_segment(s.home, kPages * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
    const Import other = import_segment(s.victim, consistent);
    s.victim_stores(5);
    REQUIRE(store(s.victim, at_page(other.at, 5), 1).cause() == Fault::kNone);
    s.dies();
    CHECK(load(s.home, s.here(5)).cause() == CMI_ERROR_CONSIST);
    CHECK(load(s.home, at_page(consistent.at, 5)).cause() == Fault::kNone);
  }

  TEST_CASE("the_default_mode_acts_on_later_segments_alone") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Answer before = seg_get(home, kPage);
    REQUIRE(home.run([] {
      return CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_CLIENT_CONSIST, nullptr);
    }) == 0);
    const auto flags = [&](const Answer& seg) { return seg_info(home, seg.seg()).info.seg_flags; };
    CHECK(flags(before) == 0);
    CHECK(flags(seg_get(home, kPage)) == CMI_SEG_CLIENT_CONSIST);
    CHECK(flags(seg_get(home, kPage, CMI_SEG_CLIENT_INCONSIST)) == CMI_SEG_CLIENT_INCONSIST);
    CHECK(flags(seg_get(home, kPage, CMI_SEG_CLIENT_CONSIST)) == CMI_SEG_CLIENT_CONSIST);
    // And for another context of the node not at all.
    CHECK(seg_info(home, seg_get(cluster.spawn("home"), kPage).seg()).info.seg_flags == 0);
  }

  TEST_CASE("check_and_reco_are_the_makers_alone") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& beside = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Answer view = seg_at(beside, exported.seg);
    REQUIRE(view.ok());
    CHECK(seg_check(beside, exported.seg, view.at(), kPage).answer.failed(CMI_ERR_PERM));
    CHECK(seg_reco(beside, exported.seg, view.at(), kPage).failed(CMI_ERR_PERM));
    CHECK(seg_check(peer, import.seg, import.at, kPage).answer.failed(CMI_ERR_PERM));
    CHECK(seg_reco(peer, import.seg, import.at, kPage).failed(CMI_ERR_PERM));
  }

  TEST_CASE("check_and_reco_take_whole_lines_of_one_view") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home, kPages * kPage);
    const cmi_cfg_info limits = ctl_info(home).info;
    CHECK(limits.cache_line_sz == kPage);
    CHECK(limits.max_reco_segsz % kPage == 0);
    struct Range {
      uint64_t at, size;
    };
    const uint64_t begin = exported.at, end = exported.at + kPages * kPage;
    for (const Range& r :
         {Range{begin + 1, kPage}, Range{begin, kPage - 1}, Range{begin, kPage + 8},
          Range{begin, (kPages + 1) * kPage}, Range{end, kPage}, Range{begin - kPage, kPage},
          Range{end - kPage, 2 * kPage}, Range{0, kPage},
          Range{begin, limits.max_reco_segsz + kPage},
          Range{begin, ~uint64_t{0} / kPage * kPage}}) {
      CAPTURE(r.at);
      CAPTURE(r.size);
      CHECK(seg_check(home, exported.seg, r.at, r.size).answer.failed(CMI_ERR_INVAL));
      CHECK(seg_reco(home, exported.seg, r.at, r.size).failed(CMI_ERR_INVAL));
    }
    CHECK(seg_check(home, exported.seg, begin, 0).answer.failed(CMI_ERR_INVAL));
    CHECK(seg_reco(home, exported.seg, begin, 0).ok());  // what CHECK of a whole view answers
    CHECK(seg_check(home, exported.seg, end - kPage, kPage).answer.ok());
    CHECK(seg_reco(home, exported.seg, begin, kPages * kPage).ok());
    CHECK(seg_check(home, exported.seg + 1, begin, kPage).answer.failed(CMI_ERR_INVAL));
    CHECK(seg_reco(home, 0, begin, kPage).failed(CMI_ERR_INVAL));
    for (const int32_t command : {CMI_SEG_CHECK, CMI_SEG_RECO}) {
      const Answer without = home.run(
          [](cmi_seg seg, int32_t c) {
            const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, c, nullptr);
            return answer(result, result != 0);
          },
          exported.seg, command);
      CHECK(without.failed(CMI_ERR_INVAL));
    }
    REQUIRE(seg_dt(home, exported.seg, exported.at).ok());
    CHECK(seg_check(home, exported.seg, begin, kPage).answer.failed(CMI_ERR_INVAL));
    CHECK(seg_reco(home, exported.seg, begin, kPage).failed(CMI_ERR_INVAL));
  }

  TEST_CASE("a_view_attached_after_the_death_has_the_pages_in_flux_too") {
    Scene s;
    s.victim_stores(5);
    s.dies();
    const Answer view = seg_at(s.home, s.exported.seg);
    REQUIRE(view.ok());
    CHECK(load(s.home, at_page(view.at(), 5)).cause() == CMI_ERROR_CONSIST);
    CHECK(seg_check(s.home, s.exported.seg, view.at(), kPages * kPage).at == at_page(view.at(), 5));
    REQUIRE(seg_dt(s.home, s.exported.seg, s.exported.at).ok());
    REQUIRE(seg_reco(s.home, s.exported.seg, at_page(view.at(), 5), kPage).ok());
    CHECK(load(s.home, at_page(view.at(), 5)).cause() == Fault::kNone);
  }

  TEST_CASE("where_pages_cannot_be_singled_out_the_whole_segment_is_in_flux") {
    Scene s{kWritesNothingBack, Env{{"CMI_FAULT_POINT", "cover_no_memory=fail"}}};
    s.victim_stores(5);
    s.victim.kill();
    CHECK(cause_until(s.home, s.here(2), CMI_ERROR_CONSIST) == CMI_ERROR_CONSIST);
    CHECK(s.check().at == s.here(0));
    CHECK(s.check().size == kPages * kPage);
    REQUIRE(s.recover().ok());
    CHECK(load(s.home, s.here(5)).cause() == Fault::kNone);
  }

  TEST_CASE("threads_store_to_one_page_first_at_the_same_time") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    const uint64_t bad = peer.run(
        [](uint64_t at) {
          constexpr uint64_t kThreads = 4, kRounds = 200;
          std::atomic<uint64_t> failed{0};
          std::vector<std::thread> threads;
          for (uint64_t t = 0; t < kThreads; ++t) {
            threads.emplace_back([&, t] {
              CMIFN(ctxt(), 10, ini_th)(ctxt());
              CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
              for (uint64_t i = 1; i <= kRounds; ++i) {
                failed += store64(at + (i % 3) * kPage + t * 8, i).cause() != Fault::kNone;
                failed += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
              }
              CMIFN(ctxt(), 10, fini)(ctxt());
            });
          }
          for (std::thread& t : threads) t.join();
          return failed.load();
        },
        import.at);
    CHECK(bad == 0);
    for (uint64_t t = 0; t < 4; ++t) {
      CHECK(load(home, exported.at + (200 % 3) * kPage + t * 8).value == 200);
    }
    REQUIRE(cool(peer).ok());
    // Behind the message that gives the dirty intents back.
    REQUIRE(publish(peer, at_page(import.at, 7), 1));
    peer.kill();
    REQUIRE(publish(home, exported.at + kKnock * kPage, 1));
    CHECK(seg_check(home, exported.seg, exported.at, kPages * kPage).size == 0);
  }
}

}  // namespace

}  // namespace cmi::test::in_flux_nodes_test

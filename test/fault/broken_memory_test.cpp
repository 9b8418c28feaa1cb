// Memory errors at home: who accesses the page from another node is told, and neither sees its
// bytes nor dies; the home's library serves all other pages; who touches it on its own node dies.
#include "fault/broken_memory.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <csignal>

#include "core/memory/wire/wire.hpp"
#include "fault/patience.hpp"
#include "fault/stale_writer.hpp"
#include "support/skip.hpp"
#include "system/happenings.hpp"

namespace cmi::test::broken_memory_test {

namespace {

constexpr uint64_t kPages = 64;
constexpr uint64_t kBroken = 21;

bool break_at(Process& home, const Export& exported, uint64_t page) {
  return home.run([](uint64_t at, uint64_t broken) { return break_page(at, broken); }, exported.at,
                  page);
}

// A home and two importers on nodes of their own; page i of the segment begins with 100 + i.
struct Scene {
  explicit Scene(int32_t flags = 0, const Env& of_peer = {})
      : home(cluster.spawn("home")),
        peer(cluster.spawn("peer", of_peer)),
        third(cluster.spawn("third")),
        exported(export_segment(home, kPages * kPage, kAllRights, flags)),
        import(import_segment(peer, exported)),
        other(import_segment(third, exported)) {
    REQUIRE(store_pages(home, exported.at, kPages, 100) == 0);
    REQUIRE(wmb(home).ok());
  }
  void break_it() { REQUIRE(break_at(home, exported, kBroken)); }
  // All pages but the broken one are shared as ever.
  void check_the_rest() {
    for (uint64_t page : {kBroken - 1, kBroken + 1, kPages - 1}) {
      CAPTURE(page);
      CHECK(publish(peer, import.at + page * kPage, 7000 + page));
      CHECK(load(third, other.at + page * kPage).value == 7000 + page);
      CHECK(load(home, exported.at + page * kPage).value == 7000 + page);
      CHECK(publish(home, exported.at + page * kPage, 8000 + page));
      CHECK(load(peer, import.at + page * kPage).value == 8000 + page);
    }
  }

  Cluster cluster;
  Process &home, &peer, &third;
  const Export exported;
  const Import import, other;
};

uint64_t at_broken(const Import& import) { return import.at + kBroken * kPage; }

TEST_SUITE("broken_memory") {
  TEST_CASE("a_load_from_broken_memory_of_the_home_raises_ue_and_from_no_other_page") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Scene scene;
    scene.break_it();
    for (int again = 0; again < 2; ++again) {
      const Access access = load(scene.peer, at_broken(scene.import));
      CHECK(access.cause() == CMI_ERROR_UE);
      CHECK(access.fault.address == at_broken(scene.import));
      CHECK(access.fault.id == scene.import.seg);
    }
    CHECK(load(scene.third, at_broken(scene.other)).cause() == CMI_ERROR_UE);
    CHECK(store(scene.third, at_broken(scene.other), 1).cause() == CMI_ERROR_UE);
    scene.check_the_rest();
  }

  TEST_CASE("a_mapped_page_that_is_broken_before_it_is_touched_raises_ue_and_no_other_does") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Cluster cluster;
    Process& home = cluster.spawn("home", {{"CMI_LOCAL", "on"}});
    Process& peer = cluster.spawn("peer", {{"CMI_LOCAL", "on"}});
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(break_at(home, exported, kBroken));
    REQUIRE(peer.run([](uint64_t at) { return break_mapped_page(at, kBroken); }, import.at));
    for (int again = 0; again < 2; ++again) {
      const Access access = load(peer, at_broken(import));
      CHECK(access.cause() == CMI_ERROR_UE);
      CHECK(access.fault.address == at_broken(import));
      CHECK(store(peer, at_broken(import), 1).cause() == CMI_ERROR_UE);
    }
    for (uint64_t page : {kBroken - 1, kBroken + 1, kPages - 1}) {
      CAPTURE(page);
      CHECK(publish(peer, import.at + page * kPage, 7000 + page));
      CHECK(load(home, exported.at + page * kPage).value == 7000 + page);
    }
  }

  TEST_CASE("who_reads_in_order_past_broken_memory_reads_all_the_rest") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Scene scene;
    scene.break_it();
    struct Seen {
      uint64_t right, ue, other;
    };
    const Seen seen = scene.peer.run(
        [](uint64_t at) {
          Seen s{};
          for (uint64_t i = 0; i < kPages; ++i) {
            const Access access = load64(at + i * kPage);
            s.right += access.cause() == Fault::kNone && access.value == 100 + i;
            s.ue += access.cause() == CMI_ERROR_UE && i == kBroken;
            s.other += access.cause() != Fault::kNone && access.cause() != CMI_ERROR_UE;
          }
          return s;
        },
        scene.import.at);
    CHECK(seen.right == kPages - 1);
    CHECK(seen.ue == 1);
    CHECK(seen.other == 0);
    scene.check_the_rest();
  }

  TEST_CASE("memory_that_works_again_is_accessed_again") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Scene scene;
    scene.break_it();
    REQUIRE(load(scene.peer, at_broken(scene.import)).cause() == CMI_ERROR_UE);
    if (!scene.home.run([](uint64_t at) { return mend_page(at, kBroken); }, scene.exported.at)) {
      return skip("what MADV_HWPOISON has taken does not come back");
    }
    CHECK(load(scene.peer, at_broken(scene.import)).value == 100 + kBroken);
    CHECK(publish(scene.peer, at_broken(scene.import), 5));
    CHECK(load(scene.third, at_broken(scene.other)).value == 5);
  }

  TEST_CASE("stores_to_broken_memory_are_reported_as_lost_and_no_others") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    int32_t flags = 0;
    SUBCASE("of a client-inconsistent segment") {}
    SUBCASE("of a client-consistent segment") { flags = CMI_SEG_CLIENT_CONSIST; }
    // What the timer has published before the memory breaks is not lost.
    Scene scene(flags, {{"CMI_FAULT_POINT", "no_aging=fail"}});
    REQUIRE(load(scene.peer, at_broken(scene.import)).value == 100 + kBroken);
    REQUIRE(load(scene.third, at_broken(scene.other)).value == 100 + kBroken);
    REQUIRE(store(scene.peer, at_broken(scene.import), 1).cause() == Fault::kNone);
    scene.break_it();
    CHECK(wmb(scene.peer).failed(CMI_ERR_STORE));
    const Happening lost = await_happening(scene.peer);
    CHECK(lost.type == CMI_EVENT_STORE_FAILURE);
    CHECK(lost.seg == scene.import.seg);
    CHECK(load(scene.peer, at_broken(scene.import)).cause() == CMI_ERROR_UE);
    CHECK(load(scene.third, at_broken(scene.other)).cause() == CMI_ERROR_UE);
    CHECK(wmb(scene.peer).ok());
    scene.check_the_rest();
  }

  // What it is brought up to date with would be read there.
  TEST_CASE("a_subscribed_page_is_dropped_when_its_memory_breaks") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Scene scene;
    const auto updated = [&] { return scene.third.run([] { return stats().pages_updated; }); };
    const uint64_t before = updated();
    for (uint64_t value = 1; updated() == before; ++value) {
      REQUIRE(value < 100);
      REQUIRE(publish(scene.peer, at_broken(scene.import), value));
      REQUIRE(load(scene.third, at_broken(scene.other)).value == value);
    }
    const uint64_t followed = updated();
    scene.break_it();
    REQUIRE(store(scene.peer, at_broken(scene.import), 1000).cause() == Fault::kNone);
    CHECK(wmb(scene.peer).failed(CMI_ERR_STORE));
    CHECK(load(scene.third, at_broken(scene.other)).cause() == CMI_ERROR_UE);
    CHECK(updated() == followed);
    scene.check_the_rest();
  }

  TEST_CASE("cflush_of_stores_to_broken_memory_raises_ue") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Scene scene(0, {{"CMI_FAULT_POINT", "no_aging=fail"}});  // the timer leaves the store to cflush
    REQUIRE(store(scene.peer, at_broken(scene.import), 1).cause() == Fault::kNone);
    scene.break_it();
    const Fault fault = scene.peer.run(
        [](uint64_t at) {
          void* address = reinterpret_cast<void*>(at);
          auto body = [&] { CMIFN(ctxt(), 10, cflush)(ctxt(), &address, 1); };
          return guarded(body);
        },
        at_broken(scene.import));
    CHECK(fault.cause() == CMI_ERROR_UE);
    CHECK(fault.address == at_broken(scene.import));
    scene.check_the_rest();
  }

  TEST_CASE("a_swap_in_broken_memory_raises_ue") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Scene scene;
    REQUIRE(atm_cas(scene.peer, at_broken(scene.import), 100 + kBroken, 1).swapped);
    scene.break_it();
    CHECK(atm_cas(scene.peer, at_broken(scene.import), 1, 2).fault.cause() == CMI_ERROR_UE);
    CHECK(atm_cas(scene.third, at_broken(scene.other), 1, 2).fault.cause() == CMI_ERROR_UE);
    CHECK(atm_cas(scene.peer, scene.import.at, 100, 2).swapped);
    scene.check_the_rest();
  }

  TEST_CASE("a_long_run_over_broken_memory_is_refused_and_the_home_goes_on") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    // What the timer brings home before the barrier meets the broken page as well.
    Scene scene(0, {{"CMI_FAULT_POINT", "no_aging=fail"}});
    uint64_t broken = kBroken;
    SUBCASE("in its middle") {}
    SUBCASE("where it begins") { broken = 0; }
    REQUIRE(wrong_pages(scene.peer, scene.import.at, kPages, 100) == 0);
    REQUIRE(break_at(scene.home, scene.exported, broken));
    // Every byte of all pages: more than a message has room for.
    const Answer flushed = scene.peer.run(
        [](uint64_t at) {
          for (uint64_t i = 0; i < kPages * kPage; i += 8) {
            if (store64(at + i, 0x5555555555555555).cause() != Fault::kNone) return Answer{1};
          }
          const int result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
          return answer(result, result != 0);
        },
        scene.import.at);
    CHECK_MESSAGE(flushed.failed(CMI_ERR_STORE), flushed);
    CHECK(load(scene.peer, scene.import.at + broken * kPage).cause() == CMI_ERROR_UE);
    CHECK(load(scene.third, scene.other.at + broken * kPage).cause() == CMI_ERROR_UE);
    CHECK(load(scene.home, scene.exported.at + (kPages - 1) * kPage).value == 0x5555555555555555);
    scene.check_the_rest();
  }

  TEST_CASE("a_one_sided_write_to_broken_memory_does_the_home_no_harm") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Scene scene;
    Process& raw = scene.cluster.spawn_bare("raw");
    uint64_t broken = 0;
    SUBCASE("where the provider copies what it has received") {}
    SUBCASE("where the kernel does") { broken = kBroken; }
    REQUIRE(break_at(scene.home, scene.exported, broken));
    for (int again = 0; again < 2; ++again) {
      const int status = raw.run(
          [](Flat handle, Flat token) { return write_and_announce(handle, token, kPages / 2); },
          scene.exported.handle, scene.exported.token);
      // The provider sees that it failed, or the home tells.
      CHECK((status == -1 || status == static_cast<int>(memory::WireStatus::kBroken)));
    }
    CHECK(load(scene.third, scene.other.at + broken * kPage).cause() == CMI_ERROR_UE);
    CHECK(load(scene.third, scene.other.at + (kPages - 1) * kPage).value == 100 + kPages - 1);
    CHECK(load(scene.home, scene.exported.at + (kPages - 1) * kPage).value == 100 + kPages - 1);
  }

  TEST_CASE("a_clients_memory_of_which_some_is_broken_is_not_given_back_but_at_the_end") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Cluster cluster;
    Process& home = cluster.spawn("home");
    struct Seen {
      bool adopted, broken;
      Answer left, end;
      uint64_t before, after;
    };
    const Seen seen = home.run([] {
      Seen s{};
      constexpr uint64_t kOwn = 4;
      auto* const at = static_cast<std::byte*>(::mmap(reinterpret_cast<void*>(0x200000000000),
                                                      kOwn * kPage, PROT_READ | PROT_WRITE,
                                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      const auto word = [&](uint64_t page) -> volatile uint64_t& {
        return *reinterpret_cast<volatile uint64_t*>(at + page * kPage);
      };
      for (uint64_t i = 0; i < kOwn; ++i) word(i) = 100 + i;
      const cmi_seg seg = CMIFN(ctxt(), 11, seg_getva)(ctxt(), at, kOwn * kPage, 0);
      s.adopted = seg != CMI_SEG_INVALID;
      s.broken = break_page(reinterpret_cast<uint64_t>(at), 2);
      const int result = CMIFN(ctxt(), 10, seg_dt)(ctxt(), seg, at);
      s.left = answer(result, result != 0);
      word(3) = 33;  // still the segment's
      s.before = word(3);
      s.end = finish_context();
      s.after = word(3);
      return s;
    });
    REQUIRE(seen.adopted);
    REQUIRE(seen.broken);
    CHECK_MESSAGE(seen.left.failed(CMI_ERR_HW), seen.left);
    CHECK(seen.before == 33);
    CHECK(seen.end.ok());
    CHECK(seen.after == 33);
  }

  TEST_CASE("a_process_of_the_home_node_that_touches_broken_memory_is_killed") {
    if (const char* why = why_memory_cannot_break()) return skip(why);
    Scene scene;
    Process& beside = scene.cluster.spawn("home");
    const Answer view = seg_at(beside, scene.exported.seg);
    REQUIRE(view.ok());
    scene.break_it();
    const auto dies = [](Process& process, uint64_t at) {
      REQUIRE(process.run([](uint64_t a) { return break_view(a, kBroken); }, at));
      process.start(
          [](uint64_t a) { return *reinterpret_cast<volatile uint64_t*>(a + kBroken * kPage); },
          at);
      const int status = process.wait_end();
      CHECK_MESSAGE(died_by(status, SIGBUS), process.name(), ": ", describe_status(status));
    };
    // It takes nobody with it: the owner serves all that is left.
    dies(beside, view.at());
    scene.check_the_rest();
    CHECK(load(scene.peer, at_broken(scene.import)).cause() == CMI_ERROR_UE);
    dies(scene.home, scene.exported.at);
    // To the importers it is a home that has ended.
    CHECK(load(scene.peer, scene.import.at + (kBroken + 2) * kPage).cause() == CMI_ERROR_SINVAL);
  }
}

}  // namespace

}  // namespace cmi::test::broken_memory_test

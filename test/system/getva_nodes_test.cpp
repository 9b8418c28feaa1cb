// seg_getva between nodes: memory of a client's own that others import, and what they can reach of
// it after the client has freed it.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include "system/calls.hpp"

namespace cmi::test::getva_nodes_test {

namespace {

constexpr uint64_t kPages = 16;

// Where the process has its memory, and the segment that it has made of it.
struct Own {
  Answer answer;
  uint64_t at;
};
Own getva(Process& process, uint64_t pages, int32_t flags) {
  return process.run(
      [](uint64_t n, int32_t f) {
        // Where nobody maps anything by himself, so that what is unmapped there stays so.
        void* at = ::mmap(reinterpret_cast<void*>(0x200000000000), n * kPage,
                          PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (uint64_t i = 0; i < n; ++i) {
          *reinterpret_cast<uint64_t*>(static_cast<char*>(at) + i * kPage) = 100 + i;
        }
        const cmi_seg seg = CMIFN(ctxt(), 11, seg_getva)(ctxt(), at, n * kPage, f);
        return Own{answer(seg, seg == CMI_SEG_INVALID), reinterpret_cast<uint64_t>(at)};
      },
      pages, flags);
}

// Frees a page of its memory and maps a new one there, which is its own affair.
bool map_anew(Process& process, uint64_t at, uint64_t value) {
  return process.run(
      [](uint64_t a, uint64_t v) {
        void* const page = reinterpret_cast<void*>(a);
        if (::munmap(page, kPage) != 0) return false;
        if (::mmap(page, kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page) {
          return false;
        }
        *static_cast<uint64_t*>(page) = v;
        return true;
      },
      at, value);
}

struct Scene {
  Cluster cluster;
  Process& home;
  Export exported;
  explicit Scene(int32_t flags = 0) : home(cluster.spawn("home")) {
    const Own own = getva(home, kPages, flags);
    REQUIRE(own.answer.ok());
    exported = {own.answer.seg(), own.at, kPages * kPage, seg_exp(home, own.answer.seg()),
                tok_new(home, own.answer.seg(), kAllRights)};
    REQUIRE(exported.handle.ok());
    REQUIRE(exported.token.ok());
  }
  uint64_t here(uint64_t page) const { return exported.at + page * kPage; }
};

TEST_SUITE("getva") {
  TEST_CASE("memory_of_a_client_is_shared_with_other_nodes") {
    Scene s;
    Process& peer = s.cluster.spawn("peer");
    const Import import = import_segment(peer, s.exported);
    for (uint64_t i = 0; i < kPages; ++i) CHECK(load(peer, import.at + i * kPage).value == 100 + i);
    // Stores of the home by plain instructions, with a barrier and without.
    REQUIRE(publish(s.home, s.here(3), 33));
    CHECK(load(peer, import.at + 3 * kPage).value == 33);
    REQUIRE(store(s.home, s.here(3), 34).cause() == Fault::kNone);
    CHECK(load_until(peer, import.at + 3 * kPage, 34) == 34);
    REQUIRE(publish(peer, import.at + 5 * kPage, 55));
    CHECK(load(s.home, s.here(5)).value == 55);
    const Swap swap = atm_cas(peer, import.at + 6 * kPage, 106, 66);
    CHECK(swap.swapped);
    CHECK(load(s.home, s.here(6)).value == 66);
    CHECK(atm_cas(s.home, s.here(6), 66, 67).swapped);
    CHECK(load(peer, import.at + 6 * kPage).value == 67);
  }

  TEST_CASE("another_process_of_the_node_attaches_memory_of_a_client") {
    Scene s;
    Process& second = s.cluster.spawn("home");
    const Answer view = seg_at(second, s.exported.seg);
    REQUIRE(view.ok());
    CHECK(load(second, view.at() + kPage).value == 101);
    Process& peer = s.cluster.spawn("peer");
    const Import import = import_segment(peer, s.exported);
    REQUIRE(load(peer, import.at).value == 100);
    REQUIRE(publish(second, view.at(), 7));
    CHECK(load(peer, import.at).value == 7);
    CHECK(load(s.home, s.here(0)).value == 7);
    CHECK(seg_dt(second, s.exported.seg, view.at()).ok());
  }

  TEST_CASE("pages_that_the_client_maps_anew_are_never_what_a_remote_node_reaches") {
    Scene s;
    Process& peer = s.cluster.spawn("peer");
    const Import import = import_segment(peer, s.exported);
    for (uint64_t i = 0; i < kPages; ++i)
      REQUIRE(load(peer, import.at + i * kPage).value == 100 + i);
    REQUIRE(publish(s.home, s.here(8), 108));
    REQUIRE(map_anew(s.home, s.here(7), 9999));
    REQUIRE(map_anew(s.home, s.here(9), 9999));
    for (uint64_t round = 0; round < 5; ++round) {
      CAPTURE(round);
      // What is left of the memory is shared as before, on both sides of what is not.
      for (const uint64_t page :
           {uint64_t{0}, uint64_t{6}, uint64_t{8}, uint64_t{10}, kPages - 1}) {
        CAPTURE(page);
        REQUIRE(store(s.home, s.here(page), 1000 * round + page).cause() == Fault::kNone);
      }
      REQUIRE(store(s.home, s.here(7), 9000 + round).cause() == Fault::kNone);
      REQUIRE(wmb(s.home).ok());
      for (const uint64_t page :
           {uint64_t{0}, uint64_t{6}, uint64_t{8}, uint64_t{10}, kPages - 1}) {
        CAPTURE(page);
        CHECK(load(peer, import.at + page * kPage).value == 1000 * round + page);
      }
      // And the new pages are the client's, whatever others do to the segment.
      CHECK(load(peer, import.at + 9 * kPage).value == 109);
      CHECK(publish(peer, import.at + 7 * kPage, 70 + round));
      CHECK(load(peer, import.at + 7 * kPage).value == 70 + round);
      CHECK(load(s.home, s.here(7)).value == 9000 + round);
      CHECK(load(s.home, s.here(9)).value == 9999);
    }
    // Nor does who comes later reach them.
    Process& late = s.cluster.spawn("late");
    const Import other = import_segment(late, s.exported);
    CHECK(load(late, other.at + 7 * kPage).value == 74);
    CHECK(load(late, other.at + 9 * kPage).value == 109);
    REQUIRE(publish(s.home, s.here(8), 88));
    CHECK(load(late, other.at + 8 * kPage).value == 88);
    CHECK(load(peer, import.at + 8 * kPage).value == 88);
  }

  TEST_CASE("memory_given_back_is_not_reached_any_more") {
    Scene s;
    Process& peer = s.cluster.spawn("peer");
    const Import import = import_segment(peer, s.exported);
    REQUIRE(store(s.home, s.here(2), 22).cause() == Fault::kNone);
    REQUIRE(seg_dt(s.home, s.exported.seg, s.exported.at).ok());
    REQUIRE(store(s.home, s.here(2), 23).cause() == Fault::kNone);
    CHECK(load(peer, import.at + 2 * kPage).value == 22);
    CHECK(publish(peer, import.at + 3 * kPage, 5));
    CHECK(load(s.home, s.here(3)).value == 103);
    CHECK(load(s.home, s.here(2)).value == 23);
  }

  TEST_CASE("pages_in_flux_are_covered_where_the_memory_is_still_the_segments") {
    Scene s;
    Process& victim = s.cluster.spawn(
        "victim", {{"CMI_FAULT_POINT", mapped() ? "mutate_timer_takes_nothing=fail"
                                                : "publish_before_send=delay:60000000"}});
    const Import import = import_segment(victim, s.exported);
    const uint64_t name = name_of(victim, import.at);
    for (const uint64_t page : {3, 4, 5}) {
      REQUIRE(store(victim, import.at + page * kPage, 1).cause() == Fault::kNone);
    }
    REQUIRE(map_anew(s.home, s.here(4), 444));
    victim.kill();
    REQUIRE(publish(s.home, s.here(15), 1));  // returns when the home knows of the death
    await_gone(s.home, s.exported.at, name);
    CHECK(load(s.home, s.here(3)).cause() == CMI_ERROR_CONSIST);
    CHECK(load(s.home, s.here(5)).cause() == CMI_ERROR_CONSIST);
    CHECK(load(s.home, s.here(4)).value == 444);
    REQUIRE(seg_reco(s.home, s.exported.seg, s.exported.at, kPages * kPage).ok());
    // A store to a mapped page is home when it is made.
    CHECK(load(s.home, s.here(3)).value == (mapped() ? 1 : 103));
    CHECK(load(s.home, s.here(5)).value == (mapped() ? 1 : 105));
    CHECK(load(s.home, s.here(4)).value == 444);
    REQUIRE(publish(s.home, s.here(3), 333));
    Process& peer = s.cluster.spawn("peer");
    CHECK(load(peer, import_segment(peer, s.exported).at + 3 * kPage).value == 333);
  }
}

}  // namespace

}  // namespace cmi::test::getva_nodes_test

// CMI_SEG_LARGE_PAGES: pages of 2 MiB at home, which importers, the other processes of the node and
// the client's other flags do not notice but where the interface says so.
#include <doctest/doctest.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "support/large_pages.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/cmiadm.hpp"

namespace cmi::test::large_pages_nodes_test {

namespace {

const Env kOld{{"CMI_KERNEL", "6.1"}, {"CMI_FAULT", "signal"}};
// Whatever it stores stays in its cache.
const Env kWritesNothingBack{{"CMI_FAULT_POINT", "publish_before_send=delay:60000000"}};

uint64_t page_size_at(Process& process, uint64_t address) {
  return process.run([](uint64_t at) { return kernel_page_size(at); }, address);
}

bool has(Process& process, uint64_t address, uint64_t value) {
  const Access got = load(process, address);
  return got.cause() == Fault::kNone && got.value == value;
}

int cause_at(Process& process, uint64_t address) { return load(process, address).cause(); }

// Until the pool has so many free pages again, which it has when the kernel has ended a process.
bool free_again(uint64_t pages) {
  const Deadline deadline = Deadline::in(10 * kSecond);
  while (LargePages::free() != pages && !deadline.passed()) std::this_thread::yield();
  return LargePages::free() == pages;
}

// Somewhere free in the process, at `off` bytes from a multiple of a large page.
uint64_t room(Process& process, uint64_t size, uint64_t off) {
  return process.run(
             [](uint64_t span) {
               void* at = ::mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
               ::munmap(at, span);
               return (reinterpret_cast<uint64_t>(at) + kLarge - 1) / kLarge * kLarge;
             },
             size + 2 * kLarge) +
         off;
}

// A segment of large pages with views in two processes of its home and two imports.
struct Scene {
  Cluster cluster;
  Process& home;
  Process& beside;
  Process& peer;
  Process& other;
  const Export exported;
  const uint64_t there;
  const Import import, second;
  explicit Scene(uint64_t pages, const Env& home_env = {}, const Env& peer_env = {},
                 int32_t flags = 0)
      : home(cluster.spawn("home", home_env)),
        beside(cluster.spawn("home", home_env)),
        peer(cluster.spawn("peer", peer_env)),
        other(cluster.spawn("other")),
        exported(export_segment(home, pages * kLarge, kAllRights, CMI_SEG_LARGE_PAGES | flags)),
        there(seg_at(beside, exported.seg).at()),
        import(import_segment(peer, exported)),
        second(import_segment(other, exported)) {}
};

// Whether a load comes to raise this within ten seconds.
bool becomes(Process& process, uint64_t at, int cause) {
  const Deadline deadline = Deadline::in(10 * kSecond);
  int seen = load(process, at).cause();
  while (seen != cause && !deadline.passed()) seen = load(process, at).cause();
  return seen == cause;
}

TEST_SUITE("large_pages") {
  TEST_CASE("a_large_page_segment_has_pages_of_2_mib_in_every_view_at_home") {
    const LargePages pages(2);
    if (!pages.enough()) return skip(pages.reason());
    const uint64_t before = LargePages::free();
    {
      Scene s(2);
      CHECK(LargePages::free() == before - 2);
      // Also before anybody has touched it.
      CHECK(page_size_at(s.home, s.exported.at + kLarge) == kLarge);
      CHECK(page_size_at(s.beside, s.there + kLarge) == kLarge);
      CHECK(page_size_at(s.peer, s.import.at) == kPage);
      REQUIRE(publish(s.home, s.exported.at + 2 * kLarge - 8, 5));
      CHECK(has(s.beside, s.there + 2 * kLarge - 8, 5));
      CHECK(has(s.peer, s.import.at + 2 * kLarge - 8, 5));
      CHECK(LargePages::free() == before - 2);
      const Ran shown =
          cmiadm(s.cluster, {"show", "--node", "home", std::to_string(s.exported.seg)});
      CHECK(shown.says("large_pages"));
      CHECK_FALSE(shown.says("file is missing"));
      REQUIRE(seg_dt(s.home, s.exported.seg, s.exported.at).ok());
      const Answer read_only = seg_at(s.home, s.exported.seg, 0, CMI_SEG_READ);
      REQUIRE(read_only.ok());
      CHECK(page_size_at(s.home, read_only.at()) == kLarge);
      CHECK(has(s.home, read_only.at() + 2 * kLarge - 8, 5));
      CHECK(store(s.home, read_only.at() + kLarge, 1).cause() == CMI_ERROR_ACCESS);
    }
    CHECK(free_again(before));
  }

  TEST_CASE("without_enough_large_pages_seg_get_is_nomem_and_takes_none") {
    const LargePages pages(1);
    const uint64_t before = LargePages::free();
    Cluster cluster;
    Process& process = cluster.spawn("node");
    const cmi_cfg_info info = ctl_info(process).info;
    REQUIRE(info.max_mem_avail > (before + 1) * kLarge);  // that is not what it lacks
    const Answer made = seg_get(process, (before + 1) * kLarge, CMI_SEG_LARGE_PAGES);
    if (made.failed(CMI_ERR_NOTSUPP)) return skip("this kernel has no large pages");
    CHECK(made.failed(CMI_ERR_NOMEM));
    CHECK(LargePages::free() == before);
    CHECK(ctl_info(process).info.max_mem_avail == info.max_mem_avail);
    if (!pages.enough()) return;
    const Answer all = seg_get(process, before * kLarge, CMI_SEG_LARGE_PAGES);
    REQUIRE(all.ok());
    CHECK(ctl_info(process).info.max_mem_avail == info.max_mem_avail - before * kLarge);
    CHECK(seg_get(process, kPage, CMI_SEG_LARGE_PAGES).failed(CMI_ERR_NOMEM));
    REQUIRE(seg_rm(process, all.seg()).ok());
    CHECK(LargePages::free() == before);
    CHECK(ctl_info(process).info.max_mem_avail == info.max_mem_avail);
    CHECK(seg_get(process, kPage, CMI_SEG_LARGE_PAGES).ok());
  }

  TEST_CASE("large_page_segments_are_attached_at_multiples_of_seg_lrgpg_alignment_alone") {
    const LargePages pages(2);
    if (!pages.enough()) return skip(pages.reason());
    Scene s(2);
    const uint64_t alignment = ctl_info(s.home).info.seg_lrgpg_alignment;
    CHECK(alignment == kLarge);
    CHECK(ctl_info(s.peer).info.seg_alignment == kPage);
    REQUIRE(publish(s.home, s.exported.at, 9));
    struct Place {
      Process& process;
      cmi_seg seg;
      uint64_t at;
    };
    for (const Place& p :
         {Place{s.home, s.exported.seg, s.exported.at}, Place{s.beside, s.exported.seg, s.there},
          Place{s.peer, s.import.seg, s.import.at}}) {
      CAPTURE(p.process.name());
      CHECK(p.at % alignment == 0);
      CHECK(seg_info(p.process, p.seg).info.seg_align == alignment);
      CHECK(seg_info(p.process, p.seg).info.seg_flags == CMI_SEG_LARGE_PAGES);
      for (const uint64_t off : {kPage, kLarge / 2, kLarge - kPage}) {
        const uint64_t at = room(p.process, s.exported.size, off);
        CHECK(seg_at(p.process, p.seg, at).failed(CMI_ERR_INVAL));
      }
      const uint64_t wanted = room(p.process, s.exported.size, 0);
      const Answer view = seg_at(p.process, p.seg, wanted);
      REQUIRE(view.ok());
      CHECK(view.at() == wanted);
      CHECK(has(p.process, wanted, 9));
      CHECK(seg_at(p.process, p.seg, wanted).failed(CMI_ERR_NOMEM));  // in use
    }
    const Answer normal = seg_get(s.home, kPage);
    CHECK(seg_info(s.home, normal.seg()).info.seg_align == kPage);
  }

  TEST_CASE("importers_share_one_large_page_word_by_word") {
    const LargePages pages(1);
    if (!pages.enough()) return skip(pages.reason());
    Scene s(1);
    // Neighbouring words, and words of neighbouring pages, of everybody.
    for (uint64_t round = 1; round <= 10; ++round) {
      CAPTURE(round);
      const uint64_t at = round * 4096 - 16;
      REQUIRE(store(s.peer, s.import.at + at, round).cause() == Fault::kNone);
      REQUIRE(store(s.other, s.second.at + at + 8, round + 1).cause() == Fault::kNone);
      REQUIRE(store(s.home, s.exported.at + at + 16, round + 2).cause() == Fault::kNone);
      REQUIRE(store(s.beside, s.there + at + 24, round + 3).cause() == Fault::kNone);
      for (Process* p : {&s.peer, &s.other, &s.home, &s.beside}) REQUIRE(wmb(*p).ok());
      for (uint64_t word = 0; word < 4; ++word) {
        CAPTURE(word);
        CHECK(has(s.peer, s.import.at + at + 8 * word, round + word));
        CHECK(has(s.other, s.second.at + at + 8 * word, round + word));
        CHECK(has(s.home, s.exported.at + at + 8 * word, round + word));
        CHECK(has(s.beside, s.there + at + 8 * word, round + word));
      }
    }
    // One word that all of them count.
    const uint64_t word = kLarge - 8;
    uint64_t counted = 0;
    for (int round = 0; round < 3; ++round) {
      for (const auto& [process, at] : {std::pair<Process*, uint64_t>{&s.peer, s.import.at},
                                        {&s.other, s.second.at},
                                        {&s.home, s.exported.at},
                                        {&s.beside, s.there}}) {
        const Swap swap = atm_cas(*process, at + word, counted, counted + 1);
        CHECK(swap.swapped);
        ++counted;
      }
    }
    CHECK(has(s.other, s.second.at + word, counted));
  }

  TEST_CASE("stores_at_home_to_large_pages_are_seen_after_the_barrier") {
    const LargePages pages(3);
    if (!pages.enough()) return skip(pages.reason());
    for (const Env& env : {Env{}, kOld}) {
      CAPTURE(env.size());
      Scene s(3, env);
      uint64_t seed = 1;
      for (uint64_t round = 1; round <= 40; ++round) {
        CAPTURE(round);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t at = (seed >> 33) % (3 * kLarge / 8) * 8;
        const uint64_t near = at ^ 4096;  // in the same large page, which the kernel notes once
        const uint64_t far = (at + kLarge) % (3 * kLarge);
        for (const uint64_t place : {at, near, far}) {  // cached
          REQUIRE(cause_at(s.peer, s.import.at + place) == Fault::kNone);
          REQUIRE(cause_at(s.other, s.second.at + place) == Fault::kNone);
        }
        REQUIRE(store(s.home, s.exported.at + at, round).cause() == Fault::kNone);
        REQUIRE(store(s.beside, s.there + near, round + 1).cause() == Fault::kNone);
        REQUIRE(store(s.home, s.exported.at + far, round + 2).cause() == Fault::kNone);
        REQUIRE(wmb(s.beside).ok());
        CHECK(has(s.peer, s.import.at + near, round + 1));
        REQUIRE(wmb(s.home).ok());
        CHECK(has(s.peer, s.import.at + at, round));
        CHECK(has(s.other, s.second.at + far, round + 2));
        CHECK(has(s.other, s.second.at + near, round + 1));
      }
    }
  }

  // The kernel notes what the home stores by large pages: more than is sent along with a
  // notification.
  TEST_CASE("a_subscribed_page_of_a_large_page_is_updated_by_importers_and_dropped_by_the_home") {
    const LargePages pages(1);
    if (!pages.enough()) return skip(pages.reason());
    Scene s(1);
    const auto updated = [&] { return s.peer.run([] { return stats().pages_updated; }); };
    const auto missed = [&] { return s.peer.run([] { return stats().load_misses; }); };
    uint64_t value = 0;
    const auto round = [&](Process& writer, uint64_t at) {
      REQUIRE(publish(writer, at, ++value));
      REQUIRE(has(s.peer, s.import.at + 8, value));
    };
    const auto until_followed = [&] {
      const uint64_t begun = value, before = updated();
      while (updated() == before) {
        REQUIRE(value < begun + 100);
        round(s.other, s.second.at + 8);
      }
    };
    until_followed();
    const uint64_t updates = updated(), misses = missed();
    for (int i = 0; i < 20; ++i) round(s.other, s.second.at + 8);
    CHECK(updated() == updates + 20);
    CHECK(missed() == misses);
    round(s.home, s.exported.at + 8);
    CHECK(missed() == misses + 1);
    REQUIRE(publish(s.home, s.exported.at + 64 * kPage, 7));
    CHECK(has(s.peer, s.import.at + 8, value));
    CHECK(has(s.peer, s.import.at + 64 * kPage, 7));
    CHECK(updated() == updates + 20);
    until_followed();
  }

  TEST_CASE("a_large_page_segment_outlives_its_maker_and_is_gone_with_the_last_view") {
    const LargePages pages(2);
    if (!pages.enough()) return skip(pages.reason());
    const uint64_t before = LargePages::free();
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& beside = cluster.spawn("home");
    Process& late = cluster.spawn("home");
    const Answer seg = seg_get(home, 2 * kLarge, CMI_SEG_LARGE_PAGES);
    REQUIRE(seg.ok());
    const Answer view = seg_at(beside, seg.seg());
    REQUIRE(view.ok());
    REQUIRE(publish(beside, view.at() + kLarge, 77));
    home.kill();
    CHECK(seg_at(late, seg.seg()).failed(CMI_ERR_INVAL));
    CHECK(has(beside, view.at() + kLarge, 77));
    REQUIRE(store(beside, view.at(), 78).cause() == Fault::kNone);
    CHECK(page_size_at(beside, view.at()) == kLarge);
    CHECK(LargePages::free() == before - 2);
    REQUIRE(seg_dt(beside, seg.seg(), view.at()).ok());
    CHECK(free_again(before));
    // And where the last user is killed as well.
    const Answer next = seg_get(late, 2 * kLarge, CMI_SEG_LARGE_PAGES);
    REQUIRE(next.ok());
    REQUIRE(seg_at(beside, next.seg()).ok());
    late.kill();
    beside.kill();
    CHECK(free_again(before));
    cluster.spawn("home");  // cleans up
  }

  TEST_CASE("a_dead_importer_leaves_whole_large_pages_in_flux_and_they_are_recovered_as_a_whole") {
    const LargePages pages(3);
    if (!pages.enough()) return skip(pages.reason());
    for (const Env& env : {Env{}, kOld}) {
      CAPTURE(env.size());
      Scene s(3, env, kWritesNothingBack);
      Process &home = s.home, &victim = s.peer;
      const uint64_t at = s.exported.at, size = s.exported.size;
      REQUIRE(store(victim, s.import.at + kLarge + 3 * kPage, 7).cause() == Fault::kNone);
      // In the same large page, by who lives on.
      REQUIRE(store(s.other, s.second.at + kLarge + 9 * kPage, 8).cause() == Fault::kNone);
      REQUIRE(store(home, at + kLarge + 20 * kPage, 9).cause() == Fault::kNone);
      REQUIRE(store(s.beside, s.there + kLarge + 21 * kPage, 10).cause() == Fault::kNone);
      // So that the home's next barrier misses it.
      REQUIRE(cause_at(victim, s.import.at + 2 * kLarge) == Fault::kNone);
      victim.kill();
      REQUIRE(publish(home, at + 2 * kLarge, 1));
      Recovery found = seg_check(home, s.exported.seg, at, size);
      REQUIRE(found.answer.ok());
      CHECK(found.at == at + kLarge);
      CHECK(found.size == kLarge);
      found = seg_check(home, s.exported.seg, at + kLarge + 40 * kPage, kPage);
      CHECK(found.at == at + kLarge);
      CHECK(found.size == kLarge);
      CHECK(seg_check(home, s.exported.seg, at, kLarge).size == 0);
      // The others hear of it a moment after the home.
      CHECK(becomes(s.beside, s.there + kLarge, CMI_ERROR_CONSIST));
      CHECK(becomes(s.other, s.second.at + kLarge, CMI_ERROR_CONSIST));
      for (const uint64_t off : {uint64_t{0}, 3 * kPage, 20 * kPage, kLarge - 8}) {
        CAPTURE(off);
        CHECK(cause_at(home, at + kLarge + off) == CMI_ERROR_CONSIST);
        CHECK(store(s.beside, s.there + kLarge + off, 1).cause() == CMI_ERROR_CONSIST);
        CHECK(cause_at(s.other, s.second.at + kLarge + off) == CMI_ERROR_CONSIST);
        CHECK(atm_cas(home, at + kLarge + off, 0, 1).fault.cause() == CMI_ERROR_CONSIST);
      }
      for (const uint64_t off : {kLarge - 8, 2 * kLarge}) {
        CHECK(cause_at(home, at + off) == Fault::kNone);
        CHECK(store(s.beside, s.there + off + 8 * (off / kLarge), 3).cause() == Fault::kNone);
        CHECK(cause_at(s.other, s.second.at + off) == Fault::kNone);
      }
      REQUIRE(wmb(s.beside).ok());
      CHECK(has(s.other, s.second.at + 2 * kLarge + 16, 3));  // watched beside the cover
      CHECK(seg_reco(home, s.exported.seg, at + kLarge + 3 * kPage, kPage).failed(CMI_ERR_INVAL));
      CHECK(cause_at(home, at + kLarge + 3 * kPage) == CMI_ERROR_CONSIST);
      REQUIRE(seg_reco(home, s.exported.seg, at + kLarge, kLarge).ok());
      CHECK(seg_check(home, s.exported.seg, at, size).size == 0);
      CHECK(page_size_at(home, at + kLarge) == kLarge);
      CHECK(has(home, at + kLarge + 9 * kPage, 8));
      CHECK(has(s.other, s.second.at + kLarge + 20 * kPage, 9));
      CHECK(has(s.other, s.second.at + kLarge + 21 * kPage, 10));
      CHECK(becomes(s.beside, s.there + kLarge + 3 * kPage, Fault::kNone));
      CHECK(has(s.beside, s.there + kLarge + 3 * kPage, 0));
      // And is watched again, in both processes.
      for (const auto& [process, view] :
           {std::pair<Process*, uint64_t>{&home, at}, {&s.beside, s.there}}) {
        REQUIRE(cause_at(s.other, s.second.at + kLarge + 5 * kPage) == Fault::kNone);
        REQUIRE(publish(*process, view + kLarge + 5 * kPage, view));
        CHECK(has(s.other, s.second.at + kLarge + 5 * kPage, view));
      }
    }
  }

  TEST_CASE("an_extensible_large_page_segment_grows_and_shrinks_by_large_pages") {
    const LargePages pages(4);
    if (!pages.enough()) return skip(pages.reason());
    const uint64_t before = LargePages::free();
    for (const Env& env : {Env{}, kOld}) {
      CAPTURE(env.size());
      Scene s(before + 1, env, {}, CMI_SEG_EXTENSIBLE);
      const cmi_seg seg = s.exported.seg;
      const auto everywhere = [&](uint64_t off, int cause) {
        CAPTURE(off);
        CHECK(cause_at(s.home, s.exported.at + off) == cause);
        CHECK(cause_at(s.beside, s.there + off) == cause);
        CHECK(cause_at(s.peer, s.import.at + off) == cause);
      };
      CHECK(LargePages::free() == before);
      everywhere(0, CMI_ERROR_SEG_BRK);
      // Views made before there was anything to be seen through them.
      const Answer home_reads = seg_at(s.home, seg, 0, CMI_SEG_READ);
      const Answer beside_reads = seg_at(s.beside, seg, 0, CMI_SEG_READ);
      REQUIRE(home_reads.ok());
      REQUIRE(beside_reads.ok());
      for (const uint64_t brk : {1, 3, 4, 2, 3, 0, 1}) {
        CAPTURE(brk);
        REQUIRE(seg_brk(s.home, seg, brk * kLarge).ok());
        CHECK(LargePages::free() == before - brk);
        // A view made now moves nothing.
        const Answer again = seg_at(s.beside, seg);
        REQUIRE(again.ok());
        CHECK(LargePages::free() == before - brk);
        everywhere(brk * kLarge, CMI_ERROR_SEG_BRK);
        CHECK(cause_at(s.beside, again.at() + brk * kLarge) == CMI_ERROR_SEG_BRK);
        REQUIRE(seg_dt(s.beside, seg, again.at()).ok());
        if (brk == 0) continue;
        everywhere(brk * kLarge - 8, Fault::kNone);
        const uint64_t word = (brk - 1) * kLarge + 64;
        CHECK(store(s.home, home_reads.at() + word, 9).cause() == CMI_ERROR_ACCESS);
        CHECK(store(s.beside, beside_reads.at() + word, 9).cause() == CMI_ERROR_ACCESS);
        // Who has the page hears of what is stored to it, by either process.
        REQUIRE(cause_at(s.peer, s.import.at + word) == Fault::kNone);
        REQUIRE(publish(s.home, s.exported.at + word, brk + 7));
        CHECK(has(s.peer, s.import.at + word, brk + 7));
        REQUIRE(publish(s.beside, s.there + word, brk));
        CHECK(has(s.peer, s.import.at + word, brk));
        REQUIRE(publish(s.peer, s.import.at + word, brk + 1));
        CHECK(has(s.home, s.exported.at + word, brk + 1));
      }
      REQUIRE(seg_brk(s.home, seg, 0).ok());
      REQUIRE(seg_brk(s.home, seg, kLarge).ok());
      CHECK(has(s.home, s.exported.at + 64, 0));  // what grows is zero-filled
      CHECK(has(s.peer, s.import.at + 64, 0));
      CHECK(seg_brk(s.home, seg, kLarge + kPage).failed(CMI_ERR_INVAL));
      CHECK(seg_brk(s.home, seg, (before + 1) * kLarge).failed(CMI_ERR_NOMEM));
      CHECK(seg_info(s.home, seg).info.seg_brk == kLarge);
      CHECK(LargePages::free() == before - 1);
      everywhere(kLarge, CMI_ERROR_SEG_BRK);
      CHECK(seg_get(s.home, kLarge + kPage, CMI_SEG_LARGE_PAGES | CMI_SEG_EXTENSIBLE)
                .failed(CMI_ERR_INVAL));
      s.home.end();
      CHECK(seg_dt(s.beside, seg, beside_reads.at()).ok());
      CHECK(seg_dt(s.beside, seg, s.there).ok());
      CHECK(free_again(before));
    }
  }

  TEST_CASE("who_fails_to_attach_large_pages_keeps_none_of_them") {
    const LargePages pages(1);
    if (!pages.enough()) return skip(pages.reason());
    const uint64_t before = LargePages::free();
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& beside = cluster.spawn("home");
    const Answer made = seg_get(home, kLarge, CMI_SEG_LARGE_PAGES);
    REQUIRE(made.ok());
    REQUIRE(seg_at(home, made.seg()).ok());
    const uint64_t busy = beside.run([] {
      void* const at = ::mmap(nullptr, 2 * kLarge, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      return (reinterpret_cast<uint64_t>(at) + kLarge - 1) / kLarge * kLarge;
    });
    CHECK(seg_at(beside, made.seg(), busy).failed(CMI_ERR_NOMEM));
    home.end();
    CHECK(free_again(before));
  }

  TEST_CASE("a_dead_importers_pages_past_the_break_are_forgotten_by_large_pages") {
    const LargePages pages(2);
    if (!pages.enough()) return skip(pages.reason());
    Scene s(2, {}, kWritesNothingBack, CMI_SEG_EXTENSIBLE);
    const cmi_seg seg = s.exported.seg;
    REQUIRE(seg_brk(s.home, seg, 2 * kLarge).ok());
    REQUIRE(store(s.peer, s.import.at + kLarge + kPage, 7).cause() == Fault::kNone);
    REQUIRE(cause_at(s.peer, s.import.at) == Fault::kNone);
    s.peer.kill();
    REQUIRE(publish(s.home, s.exported.at, 1));
    CHECK(becomes(s.beside, s.there + kLarge, CMI_ERROR_CONSIST));
    REQUIRE(seg_brk(s.home, seg, kLarge).ok());
    CHECK(seg_check(s.home, seg, s.exported.at, 2 * kLarge).size == 0);
    for (const auto& [process, at] :
         {std::pair<Process*, uint64_t>{&s.home, s.exported.at}, {&s.beside, s.there}}) {
      CHECK(cause_at(*process, at + kLarge) == CMI_ERROR_SEG_BRK);
      CHECK(cause_at(*process, at + kLarge - 8) == Fault::kNone);
    }
    REQUIRE(seg_brk(s.home, seg, 2 * kLarge).ok());
    REQUIRE(publish(s.beside, s.there + kLarge, 4));
    CHECK(has(s.other, s.second.at + kLarge, 4));
  }

  TEST_CASE("large_pages_go_with_every_other_flag_and_attribute") {
    const LargePages pages(4);
    if (!pages.enough()) return skip(pages.reason());
    const uint64_t before = LargePages::free();
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& beside = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    home.run([] {  // large pages stay in memory without being locked
      const rlimit none{0, 0};
      ::setrlimit(RLIMIT_MEMLOCK, &none);
    });
    for (const int32_t flags :
         {CMI_SEG_LOCK, CMI_SEG_CLIENT_CONSIST, CMI_SEG_CLIENT_INCONSIST, CMI_SEG_NORESERVE,
          CMI_SEG_NORESERVE | CMI_SEG_LOCK, CMI_SEG_NORESERVE | CMI_SEG_EXTENSIBLE}) {
      CAPTURE(flags);
      const bool reserved = (flags & CMI_SEG_NORESERVE) == 0;
      const Export made = export_segment(home, 2 * kLarge, kAllRights, CMI_SEG_LARGE_PAGES | flags);
      if ((flags & CMI_SEG_EXTENSIBLE) != 0) REQUIRE(seg_brk(home, made.seg, 2 * kLarge).ok());
      CHECK(LargePages::free() == before - (reserved ? 2 : 0));
      CHECK(page_size_at(home, made.at) == kLarge);
      const Answer there = seg_at(beside, made.seg);
      REQUIRE(there.ok());
      const Import import = import_segment(peer, made);
      REQUIRE(publish(peer, import.at + kLarge, 6));
      CHECK(LargePages::free() == before - (reserved ? 2 : 1));  // what was touched
      REQUIRE(publish(beside, there.at() + kLarge + 8, 7));
      CHECK(has(peer, import.at + kLarge + 8, 7));
      CHECK(has(home, made.at + kLarge, 6));
      CHECK(seg_info(peer, import.seg).info.seg_flags == seg_info(home, made.seg).info.seg_flags);
      REQUIRE(seg_dt(peer, import.seg, import.at).ok());
      REQUIRE(seg_rm(peer, import.seg).ok());
      REQUIRE(seg_dt(beside, made.seg, there.at()).ok());
      REQUIRE(seg_dt(home, made.seg, made.at).ok());
      REQUIRE(seg_rm(home, made.seg).ok());
      CHECK(free_again(before));
    }
    if ((ctl_info(home).info.max_write_through_segs) == 0) return;
    const Answer seg = seg_get(home, kLarge, CMI_SEG_LARGE_PAGES);
    const Answer view = seg_at(home, seg.seg());
    REQUIRE(view.ok());
    const Export made{seg.seg(), view.at(), kLarge, seg_exp(home, seg.seg(), CMI_SEG_WRITE_THROUGH),
                      tok_new(home, seg.seg(), kAllRights)};
    const Import import = import_segment(peer, made);
    CHECK(import.at % kLarge == 0);
    REQUIRE(store(peer, import.at + 8 * kPage, 3).cause() == Fault::kNone);
    CHECK(has(home, view.at() + 8 * kPage, 3));
    REQUIRE(store(home, view.at() + 8 * kPage, 4).cause() == Fault::kNone);
    CHECK(has(peer, import.at + 8 * kPage, 4));
  }

  TEST_CASE("a_large_page_segment_may_end_within_a_large_page") {
    const LargePages pages(2);
    if (!pages.enough()) return skip(pages.reason());
    const uint64_t before = LargePages::free(), size = kLarge + 3 * kPage;
    for (const Env& env : {Env{}, kOld}) {
      CAPTURE(env.size());
      Cluster cluster;
      Process& home = cluster.spawn("home", env);
      Process& beside = cluster.spawn("home", env);
      Process& peer = cluster.spawn("peer", kWritesNothingBack);
      Process& other = cluster.spawn("other");
      const Export made = export_segment(home, size, kAllRights, CMI_SEG_LARGE_PAGES);
      const uint64_t last = size - 8;
      CHECK(LargePages::free() == before - 2);
      CHECK(seg_info(home, made.seg).info.seg_sz == size);
      const Answer there = seg_at(beside, made.seg);
      const Import import = import_segment(peer, made), second = import_segment(other, made);
      REQUIRE(publish(home, made.at + last, 5));
      CHECK(has(other, second.at + last, 5));
      REQUIRE(publish(beside, there.at() + last, 6));
      CHECK(has(other, second.at + last, 6));
      REQUIRE(store(peer, import.at + size - kPage, 7).cause() == Fault::kNone);
      REQUIRE(cause_at(peer, import.at) == Fault::kNone);
      peer.kill();
      REQUIRE(publish(home, made.at, 1));
      const Recovery found = seg_check(home, made.seg, made.at, size);
      CHECK(found.at == made.at + kLarge);
      CHECK(found.size == 3 * kPage);
      CHECK(becomes(beside, there.at() + last, CMI_ERROR_CONSIST));
      REQUIRE(seg_reco(home, made.seg, found.at, found.size).ok());
      CHECK(becomes(beside, there.at() + last, Fault::kNone));
      CHECK(has(beside, there.at() + last, 6));
      REQUIRE(publish(beside, there.at() + last, 8));
      CHECK(has(other, second.at + last, 8));
      REQUIRE(seg_dt(home, made.seg, made.at).ok());
      REQUIRE(seg_dt(beside, made.seg, there.at()).ok());
      REQUIRE(seg_rm(home, made.seg).ok());
      CHECK(free_again(before));
    }
  }

  TEST_CASE("a_large_page_segment_uses_nothing_of_a_memory_reservation") {
    const LargePages pages(2);
    if (!pages.enough()) return skip(pages.reason());
    Cluster cluster;
    Process& process = cluster.spawn("node");
    const auto used = [&](int32_t command, uint64_t size) {
      return process.run(
          [](int32_t c, uint64_t s) {
            cmi_ctl_cfg cfg{};
            cfg.mreq.mem_reserve = s;
            const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), c, &cfg);
            return answer(result != 0 ? -1 : static_cast<int64_t>(cfg.mreq.mem_allocd),
                          result != 0);
          },
          command, size);
    };
    REQUIRE(used(CMI_CTL_MEM_RESERVE, 4 * kLarge).ok());
    const uint64_t there = ctl_info(process).info.max_mem_avail;
    const Answer seg = seg_get(process, kLarge, CMI_SEG_LARGE_PAGES);
    const Answer grown = seg_get(process, kLarge, CMI_SEG_LARGE_PAGES | CMI_SEG_EXTENSIBLE);
    REQUIRE(seg.ok());
    REQUIRE(grown.ok());
    REQUIRE(seg_brk(process, grown.seg(), kLarge).ok());
    CHECK(used(CMI_CTL_MEM_RESERVE, 4 * kLarge).value == 0);
    CHECK(ctl_info(process).info.max_mem_avail == there - 2 * kLarge);
    REQUIRE(seg_get(process, kLarge).ok());
    CHECK(used(CMI_CTL_MEM_RESERVE, 4 * kLarge).value == static_cast<int64_t>(kLarge));
    REQUIRE(used(CMI_CTL_MEM_RESERVE_DEL, 0).ok());
  }

  TEST_CASE("an_ordinary_user_makes_and_attaches_segments_of_large_pages") {
    if (::geteuid() != 0) return skip("becoming another user takes root");
    const LargePages pages(2);
    if (!pages.enough()) return skip(pages.reason());
    constexpr uid_t kNobody = 65534;
    std::string folder = "/dev/shm/cmi-test-XXXXXX";
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    REQUIRE(::chown(folder.c_str(), kNobody, kNobody) == 0);
    {
      Cluster cluster;
      const auto start = [&]() -> Process& {
        Process& p = cluster.spawn_bare("node", {{"CMI_RUNTIME_DIR", folder}});
        const bool changed = p.run(
            [](uid_t user) {
              const rlimit locked{8 << 20, 8 << 20};
              // The files below /proc/self are the user's own only in a process that may be looked
              // at.
              return ::setrlimit(RLIMIT_MEMLOCK, &locked) == 0 && ::setgroups(0, nullptr) == 0 &&
                     ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0 &&
                     ::prctl(PR_SET_DUMPABLE, 1) == 0;
            },
            kNobody);
        REQUIRE(changed);
        REQUIRE(ini(p).ok());
        return p;
      };
      Process &home = start(), &beside = start();
      const Answer seg = seg_get(home, 2 * kLarge, CMI_SEG_LARGE_PAGES | CMI_SEG_LOCK);
      REQUIRE(seg.ok());
      const Answer here = seg_at(home, seg.seg()), there = seg_at(beside, seg.seg());
      REQUIRE(here.ok());
      REQUIRE(there.ok());
      REQUIRE(publish(home, here.at() + kLarge, 11));
      CHECK(has(beside, there.at() + kLarge, 11));
      CHECK(page_size_at(beside, there.at()) == kLarge);
      beside.end();
      home.end();
    }
    CHECK(::rmdir(folder.c_str()) == 0);
  }
}

}  // namespace
}  // namespace cmi::test::large_pages_nodes_test

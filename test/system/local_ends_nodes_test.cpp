// How mapped pages end: tokens, breaks, segments, homes and importers that go, also while the
// importer is stopped and cannot hear of it. What a dead importer stored to is in flux.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "core/base/clock.hpp"
#include "support/resident.hpp"
#include "system/local_imports.hpp"

namespace cmi::test::local_ends_nodes_test {
using namespace local_imports;

namespace {
// A second mapping of the same file, as a process that means harm would keep one: nobody watches
// it.
uint64_t keep_mapping(Process& process, uint64_t at, uint64_t size) {
  // The import maps its pages with its first access.
  REQUIRE(load(process, at).cause() == Fault::kNone);
  const uint64_t kept = process.run(
      [](uint64_t from, uint64_t bytes) {
        void* const again = ::mremap(reinterpret_cast<void*>(from), 0, bytes, MREMAP_MAYMOVE);
        return again != MAP_FAILED ? reinterpret_cast<uint64_t>(again) : 0;
      },
      at, size);
  REQUIRE(kept != 0);
  return kept;
}

// What the kernel finds at an address, without a fault of the process.
struct Peeked {
  int error = 0;
  uint64_t value = 0;
};
Peeked peek(Process& process, uint64_t at) {
  return process.run(
      [](uint64_t from) {
        int ends[2];
        Peeked found;
        if (::pipe2(ends, O_CLOEXEC) != 0) return Peeked{errno};
        const bool there = ::write(ends[1], reinterpret_cast<const void*>(from),
                                   sizeof found.value) == static_cast<ssize_t>(sizeof found.value);
        found.error = there ? 0 : errno;
        if (there && ::read(ends[0], &found.value, sizeof found.value) < 0) found.error = errno;
        ::close(ends[0]);
        ::close(ends[1]);
        return found;
      },
      at);
}

// In the child: loads one word until an access is refused. Begun, it says so in the word behind.
struct Loads {
  int cause = Fault::kNone;
  uint64_t others = 0;   // loads that brought another value than the first
  Nanos last_begun = 0;  // of those that were not refused
};
constexpr uint64_t kBegun = 77;
constexpr auto load_until_refused = [](uint64_t at) {
  Loads done;
  const uint64_t first = load64(at).value;
  done.cause = store64(at + 8, kBegun).cause();
  while (done.cause == Fault::kNone) {
    const Nanos begun = now();
    const Access one = load64(at);
    done.cause = one.cause();
    if (one.cause() != Fault::kNone) break;
    if (one.value != first) ++done.others;
    done.last_begun = begun;
  }
  return done;
};
}  // namespace

TEST_SUITE("local") {
  TEST_CASE("a_revoked_token_takes_mapped_pages_and_a_new_one_brings_them_back") {
    Three t;
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(store(t.mapper, t.mapped.at, 91).cause() == Fault::kNone);
    const Flat fresh = tok_new(t.home, t.exported.seg, kAllRights);
    REQUIRE(fresh.ok());
    REQUIRE(tok_del(t.home, t.exported.token).ok());
    CHECK(load(t.mapper, t.mapped.at).cause() == CMI_ERROR_TOKEN);
    CHECK(store(t.mapper, t.mapped.at, 92).cause() == CMI_ERROR_TOKEN);
    REQUIRE(set_token(t.cacher, t.cached.seg, fresh).ok());
    CHECK(load(t.cacher, t.cached.at).value == 91);
    REQUIRE(set_token(t.mapper, t.mapped.seg, fresh).ok());
    CHECK(load(t.mapper, t.mapped.at).value == 91);
    CHECK(publish(t.mapper, t.mapped.at, 93));
    CHECK(load(t.cacher, t.cached.at).value == 93);
    CHECK(maps(t.mapper));
  }

  // Its pages are protected by the home while it cannot answer, and the word is in force when it
  // can.
  TEST_CASE("a_stopped_importer_stores_to_no_mapped_page_once_its_token_is_revoked") {
    Three t(Env{}, CMI_SEG_CLIENT_CONSIST);
    REQUIRE(store(t.mapper, t.mapped.at, 101).cause() == Fault::kNone);
    REQUIRE(load(t.mapper, t.mapped.at + kPage).value == 0);
    // It stores all the time, so that it is stopped with pages that are writable.
    auto stores = t.mapper.start(
        [](uint64_t at) {
          uint64_t stored = 0;
          Fault f{};
          while (f.cause() == Fault::kNone) {
            auto body = [&] { reinterpret_cast<volatile uint64_t*>(at)[1] = ++stored; };
            f = guarded(body);
          }
          return f.cause();
        },
        t.mapped.at);
    CHECK(load_until(t.home, t.exported.at, 101) == 101);
    for (const Deadline end = Deadline::in(20 * kSecond);
         load(t.home, t.exported.at + 8).value == 0;) {
      REQUIRE(!end.passed());
    }
    t.mapper.stop();
    const Answer revoked = tok_del(t.home, t.exported.token);
    const Access last = load(t.home, t.exported.at + 8);
    REQUIRE(last.cause() == Fault::kNone);
    REQUIRE(last.value > 0);
    t.mapper.signal(SIGCONT);
    const int cause = stores.get();
    CAPTURE(cause);
    CHECK((cause == CMI_ERROR_TOKEN || cause == CMI_ERROR_SINVAL));
    CHECK(load(t.home, t.exported.at + 8).value == last.value);
    CHECK((revoked.ok() || revoked.failed(CMI_ERR_RECONFIG)));
  }

  TEST_CASE("what_a_killed_importer_stored_to_mapped_pages_is_in_flux") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}});
    REQUIRE(publish(t.mapper, t.mapped.at, 111));
    REQUIRE(store(t.mapper, t.mapped.at + kPage, 112).cause() == Fault::kNone);
    REQUIRE(load(t.cacher, t.cached.at).value == 111);
    t.mapper.kill();
    for (const Deadline end = Deadline::in(10 * kSecond);
         load(t.cacher, t.cached.at + kPage).cause() != CMI_ERROR_CONSIST;) {
      REQUIRE(!end.passed());
    }
    CHECK(load(t.cacher, t.cached.at).value == 111);
    CHECK(load(t.home, t.exported.at).value == 111);
    CHECK(load(t.home, t.exported.at + kPage).cause() == CMI_ERROR_CONSIST);
    REQUIRE(seg_reco(t.home, t.exported.seg, t.exported.at + kPage, kPage).ok());
    CHECK(load(t.home, t.exported.at + kPage).value == 112);
    CHECK(load(t.cacher, t.cached.at + kPage).value == 112);
  }

  TEST_CASE("a_mapped_page_in_flux_raises_consist_until_it_is_recovered") {
    Three t;
    Process& other = t.cluster.spawn("other", with(kLocal, {{"CMI_FAULT_POINT", "no_aging=fail"}}));
    const Import import = import_segment(other, t.exported);
    REQUIRE(load(t.mapper, t.mapped.at).value == 0);
    REQUIRE(load(t.mapper, t.mapped.at + kPage).value == 0);
    REQUIRE(store(other, import.at + kPage, 121).cause() == Fault::kNone);
    REQUIRE(load(t.mapper, t.mapped.at + kPage).value == 121);
    other.kill();
    for (const Deadline end = Deadline::in(10 * kSecond);
         load(t.mapper, t.mapped.at + kPage).cause() != CMI_ERROR_CONSIST;) {
      REQUIRE(!end.passed());
    }
    CHECK(load(t.mapper, t.mapped.at).value == 0);
    REQUIRE(seg_reco(t.home, t.exported.seg, t.exported.at + kPage, kPage).ok());
    CHECK(load(t.mapper, t.mapped.at + kPage).value == 121);
    CHECK(publish(t.mapper, t.mapped.at + kPage, 122));
    CHECK(load(t.home, t.exported.at + kPage).value == 122);
    CHECK(maps(t.mapper));
  }

  TEST_CASE("nothing_of_a_client_consistent_segment_that_is_mapped_is_in_flux") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}}, CMI_SEG_CLIENT_CONSIST);
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(store(t.mapper, t.mapped.at, 131).cause() == Fault::kNone);
    t.mapper.kill();
    CHECK(load_until(t.cacher, t.cached.at, 131) == 131);
    CHECK(load(t.home, t.exported.at).value == 131);
  }

  TEST_CASE("mapped_pages_end_with_their_home_when_it_is_killed") {
    Three t;
    REQUIRE(publish(t.mapper, t.mapped.at, 141));
    REQUIRE(load(t.mapper, t.mapped.at).value == 141);
    t.home.kill();
    for (const Deadline end = Deadline::in(10 * kSecond);
         load(t.mapper, t.mapped.at).cause() != CMI_ERROR_SINVAL;) {
      REQUIRE(!end.passed());
    }
    CHECK(store(t.mapper, t.mapped.at, 1).cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("a_removed_segment_takes_mapped_pages") {
    Three t;
    REQUIRE(load(t.mapper, t.mapped.at).value == 0);
    REQUIRE(seg_rm(t.home, t.exported.seg).ok());
    CHECK(load(t.mapper, t.mapped.at).cause() == CMI_ERROR_TOKEN);
  }

  // Whoever keeps a mapping of its own has nothing of it either: the file is empty.
  TEST_CASE("of_a_removed_segment_nothing_is_left_to_who_has_mapped_it_and_is_stopped") {
    bool detached_first = false;
    SUBCASE("it is removed while the home has it attached") {}
    SUBCASE("it is removed when nobody at home has it attached") { detached_first = true; }
    Cluster cluster;
    Process& home = cluster.spawn("home", with(kLocal, {{"CMI_DEAD_AFTER", "1000"}}));
    Process& peer = cluster.spawn("peer", kLocal);
    const Export exported = export_segment(home, 4 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at, 201));
    const uint64_t kept = keep_mapping(peer, import.at, 4 * kPage);
    REQUIRE(load(peer, import.at).value == 201);
    REQUIRE(peek(peer, kept).value == 201);
    auto loads = peer.start(load_until_refused, import.at);
    REQUIRE(load_until(home, exported.at + 8, kBegun) == kBegun);
    peer.stop();
    REQUIRE(resident(peer.pid(), import.at) > 0);
    const auto detach = [&] { CHECK(seg_dt(home, exported.seg, exported.at).ok()); };
    if (detached_first) detach();
    (void)seg_rm(home, exported.seg);  // RECONFIG: it did not answer
    if (!detached_first) detach();
    const Nanos over = now();
    // The next segment's memory is none that the peer can read.
    const Export next = export_segment(home, 4 * kPage);
    REQUIRE(publish(home, next.at, 202));
    CHECK(resident(peer.pid(), import.at) == 0);
    peer.signal(SIGCONT);
    const Loads loaded = loads.get();
    CHECK((loaded.cause == CMI_ERROR_SINVAL || loaded.cause == CMI_ERROR_TOKEN));
    CHECK(loaded.others == 0);
    CHECK(loaded.last_begun < over);
    CHECK(peek(peer, kept).error == EFAULT);
  }

  TEST_CASE("a_removed_segment_is_read_on_when_its_file_is_not_emptied") {
    Cluster cluster;
    Process& home = cluster.spawn(
        "home", with(kLocal, {{"CMI_FAULT_POINT", "mutate_removed_memory_stays_mapped=fail"}}));
    Process& peer = cluster.spawn("peer", kLocal);
    const Export exported = export_segment(home, 4 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at, 201));
    const uint64_t kept = keep_mapping(peer, import.at, 4 * kPage);
    REQUIRE(load(peer, import.at).value == 201);
    REQUIRE(seg_rm(home, exported.seg).ok());
    REQUIRE(seg_dt(home, exported.seg, exported.at).ok());
    CHECK(peek(peer, kept).value == 201);
  }

  TEST_CASE("past_a_break_that_comes_down_nothing_is_left_to_who_has_mapped_it_and_is_stopped") {
    Cluster cluster;
    Process& home = cluster.spawn("home", with(kLocal, {{"CMI_DEAD_AFTER", "1000"}}));
    Process& peer = cluster.spawn("peer", kLocal);
    const Answer seg = seg_get(home, 64 * kPage, CMI_SEG_EXTENSIBLE);
    REQUIRE(seg.ok());
    REQUIRE(seg_brk(home, seg.seg(), 64 * kPage).ok());
    const Answer at = seg_at(home, seg.seg());
    REQUIRE(at.ok());
    const Export exported{seg.seg(), at.at(), 64 * kPage, seg_exp(home, seg.seg()),
                          tok_new(home, seg.seg(), kAllRights)};
    const Import import = import_segment(peer, exported);
    const uint64_t kept = keep_mapping(peer, import.at, 64 * kPage);
    for (uint64_t p = 0; p < 64; ++p) {
      REQUIRE(publish(home, exported.at + p * kPage, 211));
      REQUIRE(load(peer, import.at + p * kPage).value == 211);
      REQUIRE(peek(peer, kept + p * kPage).value == 211);
    }
    auto loads = peer.start(load_until_refused, import.at + 50 * kPage);
    REQUIRE(load_until(home, exported.at + 50 * kPage + 8, kBegun) == kBegun);
    peer.stop();
    REQUIRE(resident(peer.pid(), import.at) >= 2 * 64);
    const Answer moved = seg_brk(home, exported.seg, kPage);
    const Nanos over = now();
    CHECK((moved.ok() || moved.failed(CMI_ERR_RECONFIG)));
    // Of each of its mappings one page at most.
    CHECK(resident(peer.pid(), import.at) <= 4);
    peer.signal(SIGCONT);
    const Loads loaded = loads.get();
    CHECK((loaded.cause == CMI_ERROR_SEG_BRK || loaded.cause == CMI_ERROR_TOKEN ||
           loaded.cause == CMI_ERROR_SINVAL));
    CHECK(loaded.others == 0);
    CHECK(loaded.last_begun < over);
    CHECK(peek(peer, kept + 50 * kPage).error == EFAULT);
    // What comes there later is new.
    REQUIRE(seg_brk(home, exported.seg, 64 * kPage).ok());
    CHECK(peek(peer, kept + 50 * kPage).value == 0);
  }

  TEST_CASE("mapped_pages_end_at_the_break_and_come_with_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kLocal);
    Process& peer = cluster.spawn("peer", kLocal);
    const Answer seg = seg_get(home, 8 * kPage, CMI_SEG_EXTENSIBLE);
    REQUIRE(seg.ok());
    REQUIRE(seg_brk(home, seg.seg(), 4 * kPage).ok());
    const Answer at = seg_at(home, seg.seg());
    REQUIRE(at.ok());
    Export exported{seg.seg(), at.at(), 8 * kPage, seg_exp(home, seg.seg()),
                    tok_new(home, seg.seg(), kAllRights)};
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(peer, import.at + 3 * kPage, 151));
    CHECK(load(peer, import.at + 4 * kPage).cause() == CMI_ERROR_SEG_BRK);
    REQUIRE(seg_brk(home, seg.seg(), 6 * kPage).ok());
    CHECK(load(peer, import.at + 5 * kPage).value == 0);
    REQUIRE(store(peer, import.at + 5 * kPage, 152).cause() == Fault::kNone);
    REQUIRE(seg_brk(home, seg.seg(), 2 * kPage).ok());
    CHECK(load(peer, import.at + 3 * kPage).cause() == CMI_ERROR_SEG_BRK);
    CHECK(store(peer, import.at + 5 * kPage, 1).cause() == CMI_ERROR_SEG_BRK);
    CHECK(load(peer, import.at + kPage).value == 0);
    REQUIRE(seg_brk(home, seg.seg(), 4 * kPage).ok());
    CHECK(load(peer, import.at + 3 * kPage).value == 0);
    CHECK(maps(peer));
  }
}

}  // namespace cmi::test::local_ends_nodes_test

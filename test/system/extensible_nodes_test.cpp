// Extensible segments: the break at home, in other processes of the node and at importers, up and
// down, while nobody and while everybody uses the segment.
#include <doctest/doctest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "core/base/clock.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"
#include "system/small_tmpfs.hpp"
#include "system/stopped.hpp"

namespace cmi::test::extensible_nodes_test {

namespace {

constexpr size_t kMost = 64 * kPage;

// Bytes of memory behind the file of a segment at its home.
uint64_t memory_of(const Cluster& cluster, cmi_seg seg) {
  for (const std::string& path : cluster.files()) {
    struct stat st {};
    if (!path.ends_with("/seg-" + std::to_string(seg)) || ::stat(path.c_str(), &st) != 0) continue;
    return static_cast<uint64_t>(st.st_blocks) * 512;
  }
  return UINT64_MAX;
}

int loads(Process& process, uint64_t at) { return load(process, at).cause(); }
int stores(Process& process, uint64_t at) { return store(process, at, 1).cause(); }

// Takes the write protection from pages of a view, as a fault that races with the cutting of the
// file may.
void unwatch(Process& process, uint64_t at, uint64_t size) {
  process.run(
      [](uint64_t from, uint64_t bytes) {
        char name[64];
        for (int fd = 0; fd < 1024; ++fd) {
          const std::string link = "/proc/self/fd/" + std::to_string(fd);
          const ssize_t n = ::readlink(link.c_str(), name, sizeof name);
          if (n <= 0 || !std::string(name, static_cast<size_t>(n)).ends_with("[userfaultfd]")) {
            continue;
          }
          uffdio_writeprotect none{{from, bytes}, 0};
          (void)::ioctl(fd, UFFDIO_WRITEPROTECT, &none);  // of the one that watches it
        }
      },
      at, size);
}

// In a child: the break as it is told, once it is not 0.
constexpr auto told_break = [](cmi_seg seg) {
  const Deadline deadline = Deadline::in(20 * kSecond);
  cmi_ds ds{};
  while (ds.info.seg_brk == 0 && !deadline.passed()) {
    if (CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_INFO, &ds) != 0) break;
  }
  return uint64_t{ds.info.seg_brk};
};

struct Scene {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process& beside = cluster.spawn("home");
  Process& peer = cluster.spawn("peer");
  Process& other = cluster.spawn("other");
  const Export exported = export_segment(home, kMost, kAllRights, CMI_SEG_EXTENSIBLE);
  const uint64_t there = attach_beside();
  const Import import = import_segment(peer, exported);
  const Import second = import_segment(other, exported);

  uint64_t attach_beside() {
    const Answer view = seg_at(beside, exported.seg);
    REQUIRE(view.ok());
    return view.at();
  }
  struct Place {
    Process& process;
    uint64_t at;
  };
  std::vector<Place> everywhere() {
    return {{home, exported.at}, {beside, there}, {peer, import.at}, {other, second.at}};
  }
};

TEST_SUITE("extensible") {
  TEST_CASE_FIXTURE(Scene, "a_new_extensible_segment_has_no_memory_and_allows_no_access") {
    CHECK(memory_of(cluster, exported.seg) == 0);
    for (const auto& [process, at] : everywhere()) {
      CAPTURE(process.name());
      CHECK(loads(process, at) == CMI_ERROR_SEG_BRK);
      CHECK(stores(process, at + kMost - 8) == CMI_ERROR_SEG_BRK);
    }
    const Info at_home = seg_info(home, exported.seg), imported = seg_info(peer, import.seg);
    for (const Info& info : {at_home, imported}) {
      CHECK(info.info.seg_sz == kMost);
      CHECK(info.info.seg_brk == 0);
      CHECK((info.info.seg_flags & CMI_SEG_EXTENSIBLE) != 0);
    }
  }

  TEST_CASE_FIXTURE(Scene, "everybody_may_use_a_segment_up_to_its_break_and_nobody_past_it") {
    uint64_t word = 0;
    for (const size_t pages : {3, 40, 64, 40, 41, 1}) {
      CAPTURE(pages);
      const size_t brk = pages * kPage;
      REQUIRE(seg_brk(home, exported.seg, brk).ok());
      CHECK(memory_of(cluster, exported.seg) == brk);
      CHECK(seg_info(home, exported.seg).info.seg_brk == brk);
      CHECK(seg_info(beside, exported.seg).info.seg_brk == brk);
      CHECK(seg_info(peer, import.seg).info.seg_brk == brk);
      for (const auto& [writer, at] : everywhere()) {
        CAPTURE(writer.name());
        REQUIRE(publish(writer, at + brk - 8, ++word));
        for (const auto& [reader, from] : everywhere()) {
          CHECK(load(reader, from + brk - 8).value == word);
        }
        if (brk == kMost) continue;
        const Access access = load(writer, at + brk);
        CHECK(access.cause() == CMI_ERROR_SEG_BRK);
        CHECK(access.fault.address == at + brk);
        CHECK(stores(writer, at + brk) == CMI_ERROR_SEG_BRK);
        CHECK(loads(writer, at + kMost - 8) == CMI_ERROR_SEG_BRK);
        CHECK(atm_cas(writer, at + brk, 0, 1).fault.cause() == CMI_ERROR_SEG_BRK);
        const Swap swap = atm_cas(writer, at + brk - 8, word, word + 1);
        CHECK(swap.swapped);
        ++word;
      }
    }
  }

  TEST_CASE_FIXTURE(Scene, "growth_reads_as_zero_also_where_something_was_before") {
    REQUIRE(seg_brk(home, exported.seg, 8 * kPage).ok());
    for (uint64_t page = 0; page < 8; ++page) {
      REQUIRE(publish(peer, import.at + page * kPage, 7 + page));
      CHECK(load(other, second.at + page * kPage).value == 7 + page);
      CHECK(load(beside, there + page * kPage).value == 7 + page);
    }
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
    REQUIRE(seg_brk(home, exported.seg, 16 * kPage).ok());
    for (const auto& [process, at] : everywhere()) {
      CAPTURE(process.name());
      CHECK(load(process, at + kPage).value == 8);
      for (uint64_t page = 2; page < 16; ++page) CHECK(load(process, at + page * kPage).value == 0);
    }
  }

  TEST_CASE_FIXTURE(Scene, "stores_past_a_break_that_comes_down_go_with_the_memory") {
    REQUIRE(seg_brk(home, exported.seg, 4 * kPage).ok());
    REQUIRE(store(peer, import.at + 3 * kPage, 5).cause() == Fault::kNone);
    REQUIRE(store(peer, import.at, 6).cause() == Fault::kNone);
    REQUIRE(store(other, second.at + 3 * kPage + 64, 5).cause() == Fault::kNone);
    REQUIRE(seg_brk(home, exported.seg, kPage).ok());
    CHECK(stores(peer, import.at + 3 * kPage) == CMI_ERROR_SEG_BRK);
    CHECK(loads(other, second.at + 3 * kPage) == CMI_ERROR_SEG_BRK);
    CHECK(wmb(peer).ok());
    CHECK(wmb(other).ok());
    CHECK(load(home, exported.at).value == 6);
    REQUIRE(seg_brk(home, exported.seg, 4 * kPage).ok());
    for (const auto& [process, at] : everywhere()) {
      CHECK(load(process, at + 3 * kPage).value == 0);
      CHECK(load(process, at + 3 * kPage + 64).value == 0);
    }
    CHECK(types_waiting(peer) == "");
    CHECK(types_waiting(other) == "");
  }

  TEST_CASE_FIXTURE(Scene, "a_break_that_cannot_be_is_refused") {
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
    CHECK(seg_brk(home, exported.seg, kMost + kPage).failed(CMI_ERR_INVAL));
    CHECK(seg_brk(home, exported.seg, UINT64_MAX - kPage + 1).failed(CMI_ERR_INVAL));
    for (const uint64_t odd : {uint64_t{1}, kPage + 1, 3 * kPage - 1}) {
      CHECK(seg_brk(home, exported.seg, odd).failed(CMI_ERR_INVAL));
    }
    CHECK(seg_brk(beside, exported.seg, kPage).failed(CMI_ERR_PERM));
    CHECK(seg_brk(peer, import.seg, kPage).failed(CMI_ERR_PERM));
    const Answer normal = seg_get(home, kMost);
    REQUIRE(normal.ok());
    CHECK(seg_brk(home, normal.seg(), kPage).failed(CMI_ERR_INVAL));
    CHECK(seg_brk(home, normal.seg(), kMost).failed(CMI_ERR_INVAL));
    CHECK(seg_info(home, normal.seg()).info.seg_brk == kMost);
    CHECK(seg_brk(home, exported.seg + (1 << 12), kPage).failed(CMI_ERR_INVAL));
    REQUIRE(seg_rm(home, exported.seg).ok());
    CHECK(seg_brk(home, exported.seg, kPage).failed(CMI_ERR_INVAL));
    CHECK(load(home, exported.at).value == 0);  // nothing has changed
    CHECK(loads(home, exported.at + 2 * kPage) == CMI_ERROR_SEG_BRK);
  }

  TEST_CASE_FIXTURE(Scene, "resizing_moves_no_view_and_read_only_views_keep_their_right") {
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
    const Answer here = seg_at(home, exported.seg, 0, CMI_SEG_READ);
    const Answer away = seg_at(peer, import.seg, 0, CMI_SEG_READ);
    REQUIRE(here.ok());
    REQUIRE(away.ok());
    for (const size_t pages : {2, 1, 3}) {
      REQUIRE(seg_brk(home, exported.seg, pages * kPage).ok());
      for (const auto& [process, at] : {Place{home, here.at()}, Place{peer, away.at()}}) {
        CAPTURE(process.name());
        CHECK(loads(process, at + (pages - 1) * kPage) == Fault::kNone);
        CHECK(stores(process, at + (pages - 1) * kPage) == CMI_ERROR_ACCESS);
        CHECK(stores(process, at + pages * kPage) == CMI_ERROR_SEG_BRK);
        CHECK(loads(process, at + pages * kPage) == CMI_ERROR_SEG_BRK);
      }
    }
  }

  TEST_CASE_FIXTURE(Scene, "cflush_of_an_address_past_the_break_raises_seg_brk") {
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
    for (const auto& [process, at] : everywhere()) {
      CAPTURE(process.name());
      const auto flush = [](uint64_t a) {
        auto body = [&] {
          void* addresses[] = {reinterpret_cast<void*>(a)};
          CMIFN(ctxt(), 10, cflush)(ctxt(), addresses, 1);
        };
        return guarded(body).cause();
      };
      CHECK(process.run(flush, at + 2 * kPage) == CMI_ERROR_SEG_BRK);
      CHECK(process.run(flush, at + kPage) == Fault::kNone);
    }
  }

  PROCESS_CASE("what_an_importer_cached_past_the_break_gives_its_memory_back") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    constexpr size_t kPages = 4096;
    const Export exported = export_segment(home, kPages * kPage, kAllRights, CMI_SEG_EXTENSIBLE);
    const Import import = import_segment(peer, exported);
    const auto cached = [&] {
      // Of the import's cache: a file without a name.
      return peer.run([] {
        uint64_t bytes = 0;
        for (int fd = 0; fd < 512; ++fd) {
          struct stat st {};
          if (::fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == kPages * kPage) {
            bytes += static_cast<uint64_t>(st.st_blocks) * 512;
          }
        }
        return bytes;
      });
    };
    CHECK(cached() == 0);  // a share of memory for what is there alone
    REQUIRE(seg_brk(home, exported.seg, kPages * kPage).ok());
    const auto touch_all = [](uint64_t at) {
      uint64_t faults = 0;
      for (uint64_t page = 0; page < kPages; ++page) {
        faults += load64(at + page * kPage).cause() != Fault::kNone;
      }
      return faults;
    };
    CHECK(peer.run(touch_all, import.at) == 0);
    CHECK(cached() == kPages * kPage);
    REQUIRE(seg_brk(home, exported.seg, 16 * kPage).ok());
    CHECK(cached() <= 16 * kPage);
    CHECK(memory_of(cluster, exported.seg) == 16 * kPage);
    CHECK(peer.run(touch_all, import.at) == kPages - 16);
    CHECK(load(peer, import.at).cause() == Fault::kNone);
  }

  PROCESS_CASE("sizes_may_add_up_beyond_memory_which_moves_from_one_segment_to_another") {
    Cluster cluster;
    Process& process = cluster.spawn("node", {{"CMI_MEM_MAX", "1M"}});
    constexpr size_t kAll = 1 << 20;
    const Answer one = seg_get(process, kAll, CMI_SEG_EXTENSIBLE);
    const Answer two = seg_get(process, kAll, CMI_SEG_EXTENSIBLE);
    REQUIRE(one.ok());
    REQUIRE(two.ok());
    const Answer at_one = seg_at(process, one.seg()), at_two = seg_at(process, two.seg());
    REQUIRE(seg_brk(process, one.seg(), kAll / 4).ok());
    CHECK(seg_brk(process, two.seg(), kAll).failed(CMI_ERR_NOMEM));
    CHECK(seg_info(process, two.seg()).info.seg_brk == 0);
    CHECK(loads(process, at_two.at()) == CMI_ERROR_SEG_BRK);
    REQUIRE(seg_brk(process, two.seg(), kAll / 4 * 3).ok());
    CHECK(seg_brk(process, one.seg(), kAll / 4 + kPage).failed(CMI_ERR_NOMEM));
    CHECK(ctl_info(process).info.max_mem_avail == 0);
    CHECK(loads(process, at_one.at() + kAll / 4 - 8) == Fault::kNone);
    CHECK(loads(process, at_one.at() + kAll / 4) == CMI_ERROR_SEG_BRK);
    REQUIRE(seg_brk(process, two.seg(), 0).ok());
    REQUIRE(seg_brk(process, one.seg(), kAll).ok());
    CHECK(loads(process, at_one.at() + kAll - 8) == Fault::kNone);
  }

  PROCESS_CASE("growth_on_a_full_file_system_is_nomem_and_never_a_fault_later") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 12u << 20);
    if (!small.mounted()) return skip(small.reason());
    Process& process = cluster.spawn("node", {{"CMI_RUNTIME_DIR", small.folder()}});
    constexpr size_t kSize = 16u << 20;
    const Answer seg = seg_get(process, kSize, CMI_SEG_EXTENSIBLE);
    REQUIRE(seg.ok());
    const Answer view = seg_at(process, seg.seg());
    REQUIRE(seg_brk(process, seg.seg(), kSize / 4).ok());
    CHECK(seg_brk(process, seg.seg(), kSize).failed(CMI_ERR_NOMEM));
    CHECK(seg_info(process, seg.seg()).info.seg_brk == kSize / 4);
    CHECK(loads(process, view.at() + kSize / 4) == CMI_ERROR_SEG_BRK);
    REQUIRE(seg_brk(process, seg.seg(), kSize / 2).ok());
    const uint64_t faults = process.run(
        [](uint64_t at) {
          uint64_t count = 0;
          for (uint64_t i = 0; i < kSize; i += kPage) {
            count += store64(at + i, 1).cause() == CMI_ERROR_SEG_BRK;
          }
          return count;
        },
        view.at());
    CHECK(faults == kSize / 2 / kPage);
    process.end();
  }

  TEST_CASE("a_segment_that_reserves_nothing_moves_its_break_all_the_same") {
    Cluster cluster;
    Process& home = cluster.spawn("home", {{"CMI_MEM_MAX", "1M"}});
    const Answer other = seg_get(home, 1 << 20);
    REQUIRE(other.ok());
    const Answer seg = seg_get(home, kMost, CMI_SEG_EXTENSIBLE | CMI_SEG_NORESERVE);
    const Answer view = seg_at(home, seg.seg());
    REQUIRE(view.ok());
    REQUIRE(seg_brk(home, seg.seg(), kMost).ok());
    CHECK(memory_of(cluster, seg.seg()) == 0);
    CHECK(stores(home, view.at() + 5 * kPage) == Fault::kNone);
    CHECK(memory_of(cluster, seg.seg()) == kPage);
    REQUIRE(seg_brk(home, seg.seg(), kPage).ok());
    CHECK(memory_of(cluster, seg.seg()) == 0);
    CHECK(stores(home, view.at() + 5 * kPage) == CMI_ERROR_SEG_BRK);
  }

  TEST_CASE_FIXTURE(Scene, "pages_in_flux_past_the_break_are_gone_with_it") {
    Process& dying =
        cluster.spawn("dying", {{"CMI_FAULT_POINT", "publish_before_send=delay:60000000"}});
    REQUIRE(seg_brk(home, exported.seg, 4 * kPage).ok());
    const Import third = import_segment(dying, exported);
    REQUIRE(store(dying, third.at + kPage, 1).cause() == Fault::kNone);
    REQUIRE(store(dying, third.at + 3 * kPage, 1).cause() == Fault::kNone);
    dying.kill();
    CHECK(await_happening(home).type == CMI_EVENT_RCTXT_DOWN);
    CHECK(loads(home, exported.at + kPage) == CMI_ERROR_CONSIST);
    CHECK(loads(home, exported.at + 3 * kPage) == CMI_ERROR_CONSIST);
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
    for (const auto& [process, at] : everywhere()) {
      CAPTURE(process.name());
      CHECK(loads(process, at + kPage) == CMI_ERROR_CONSIST);
      CHECK(loads(process, at + 3 * kPage) == CMI_ERROR_SEG_BRK);
    }
    REQUIRE(seg_brk(home, exported.seg, 4 * kPage).ok());
    for (const auto& [process, at] : everywhere()) {
      CAPTURE(process.name());
      CHECK(load(process, at + 3 * kPage).cause() == Fault::kNone);
    }
  }

  TEST_CASE_FIXTURE(Scene, "an_importer_that_has_died_or_does_not_answer_holds_up_no_shrinking") {
    REQUIRE(seg_brk(home, exported.seg, 4 * kPage).ok());
    REQUIRE(publish(peer, import.at + 3 * kPage, 4));
    REQUIRE(load(other, second.at + 3 * kPage).value == 4);
    SUBCASE("killed") {
      peer.kill();
      REQUIRE(seg_brk(home, exported.seg, kPage).ok());
    }
    SUBCASE("stopped") {
      peer.stop();
      REQUIRE(seg_brk(home, exported.seg, kPage).failed(CMI_ERR_RECONFIG));
    }
    CHECK(loads(other, second.at + 3 * kPage) == CMI_ERROR_SEG_BRK);
    CHECK(loads(other, second.at) == Fault::kNone);
    CHECK(memory_of(cluster, exported.seg) == kPage);
    if (!peer.ended()) {
      peer.signal(SIGCONT);
      // It hears of its exclusion before anything else; until its service thread has run, its copy
      // is what it was.
      const int cause = peer.run(
          [](uint64_t at) {
            const Deadline deadline = Deadline::in(20 * kSecond);
            int found = Fault::kNone;
            while (found == Fault::kNone && !deadline.passed()) found = load64(at).cause();
            return found;
          },
          import.at + 3 * kPage);
      CHECK(cause != Fault::kNone);
    }
  }

  TEST_CASE_FIXTURE(Scene, "an_importer_that_slept_through_a_shrinking_keeps_nothing_of_before") {
    REQUIRE(seg_brk(home, exported.seg, 8 * kPage).ok());
    for (uint64_t page = 2; page < 8; ++page) {
      REQUIRE(publish(peer, import.at + page * kPage, 4));
      REQUIRE(store(peer, import.at + page * kPage + 8, 5).cause() == Fault::kNone);
    }
    peer.stop();
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).failed(CMI_ERR_RECONFIG));
    REQUIRE(seg_brk(home, exported.seg, 16 * kPage).ok());
    peer.signal(SIGCONT);
    // Where it has been declared dead meanwhile, it accesses nothing.
    CHECK(peer.run(
        [](uint64_t at) {
          for (const Deadline deadline = Deadline::in(20 * kSecond); !deadline.passed();) {
            const int cause = load64(at + 15 * kPage).cause();
            if (cause != CMI_ERROR_SEG_BRK && cause != CMI_ERROR_TRANSIENT) break;
          }
          bool old = false;
          for (uint64_t page = 2; page < 8; ++page) {
            for (uint64_t word : {0, 8}) {
              const Access found = load64(at + page * kPage + word);
              old = old || (found.cause() == Fault::kNone && found.value != 0);
            }
          }
          return !old;
        },
        import.at));
    (void)wmb(peer);
    for (uint64_t page = 2; page < 16; ++page) {
      CHECK(load(home, exported.at + page * kPage).value == 0);
      CHECK(load(home, exported.at + page * kPage + 8).value == 0);
    }
  }

  PROCESS_CASE_FIXTURE(Scene, "what_a_silent_importer_stored_before_the_break_is_not_lost") {
    REQUIRE(seg_brk(home, exported.seg, 4 * kPage).ok());
    Process& silent = cluster.spawn("silent", {{"CMI_FAULT_POINT", "publish_before_send#1=stop"}});
    const Import third = import_segment(silent, exported);
    auto storing = silent.start([](uint64_t at) { return store64(at, 6).cause(); }, third.at);
    REQUIRE(await_stopped(silent));  // the timer publishes it
    REQUIRE(seg_brk(home, exported.seg, kPage).failed(CMI_ERR_RECONFIG));
    CHECK(load(home, exported.at).cause() == Fault::kNone);
    silent.signal(SIGCONT);
    CHECK(storing.get() == Fault::kNone);
    CHECK(load_until(home, exported.at, 6) == 6);
    CHECK(load_until(peer, import.at, 6) == 6);
  }

  TEST_CASE_FIXTURE(Scene, "growth_that_an_importer_has_not_heard_of_raises_nothing_there") {
    REQUIRE(seg_brk(home, exported.seg, kPage).ok());
    Process& slow =
        cluster.spawn("slow", {{"CMI_FAULT_POINT", "invalidate_before_zap#1=delay:3000000"}});
    const Import third = import_segment(slow, exported);
    slow.run([] {
      cmi_ctl_cfg cfg{};
      cfg.ctl_cfg_rcfg_tout = 20'000;
      (void)CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_RECONF_TOUT, &cfg);
    });
    REQUIRE(load(slow, third.at).value == 0);
    // Its service thread is busy with this for longer than anybody waits for it.
    REQUIRE(store(home, exported.at, 1).cause() == Fault::kNone);
    REQUIRE(load_until(peer, import.at, 1) == 1);
    REQUIRE(seg_brk(home, exported.seg, 8 * kPage).ok());
    CHECK(loads(slow, third.at + 7 * kPage) == Fault::kNone);
    CHECK(loads(slow, third.at + 8 * kPage) == CMI_ERROR_SEG_BRK);
  }

  TEST_CASE_FIXTURE(Scene, "other_processes_of_the_node_watch_their_views_after_a_shrinking") {
    const Answer read_only = seg_at(beside, exported.seg, 0, CMI_SEG_READ);
    REQUIRE(read_only.ok());
    REQUIRE(seg_brk(home, exported.seg, 8 * kPage).ok());
    for (uint64_t page = 0; page < 8; ++page) {
      REQUIRE(loads(beside, there + page * kPage) == Fault::kNone);
      REQUIRE(loads(beside, read_only.at() + page * kPage) == Fault::kNone);
    }
    unwatch(beside, there, kMost);
    unwatch(beside, read_only.at() + 2 * kPage, kMost - 2 * kPage);
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
    REQUIRE(seg_brk(home, exported.seg, 8 * kPage).ok());
    for (uint64_t page = 2; page < 8; ++page) {
      CHECK(stores(beside, read_only.at() + page * kPage) == CMI_ERROR_ACCESS);
      REQUIRE(load(peer, import.at + page * kPage).value == 0);
      REQUIRE(publish(beside, there + page * kPage, page));
      CHECK(load(peer, import.at + page * kPage).value == page);
    }
  }

  TEST_CASE("the_cache_of_an_extensible_import_counts_up_to_the_break") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_MEM_MAX", "1M"}});
    Process& other = cluster.spawn("other", {{"CMI_MEM_MAX", "1M"}});
    constexpr size_t kQuarter = 1 << 18;
    const Export exported = export_segment(home, 16 * kQuarter, kAllRights, CMI_SEG_EXTENSIBLE);
    const Import import = import_segment(peer, exported);
    // Counted by the service thread as soon as the registry's lock is had.
    const auto left = [](uint64_t bytes) {
      for (const Deadline deadline = Deadline::in(20 * kSecond); !deadline.passed();) {
        cmi_ctl_cfg cfg{};
        if (CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_INFO, &cfg) != 0) return false;
        if (cfg.info.max_mem_avail == bytes) return true;
      }
      return false;
    };
    REQUIRE(peer.run(left, 4 * kQuarter));
    REQUIRE(seg_brk(home, exported.seg, kQuarter).ok());
    CHECK(peer.run(left, 3 * kQuarter));
    CHECK(seg_get(peer, 4 * kQuarter).failed(CMI_ERR_NOMEM));
    // The home decides, also beyond what the importer's node has.
    REQUIRE(seg_brk(home, exported.seg, 8 * kQuarter).ok());
    CHECK(peer.run(left, uint64_t{0}));
    CHECK(loads(peer, import.at + 8 * kQuarter - 8) == Fault::kNone);
    CHECK(seg_get(peer, kPage).failed(CMI_ERR_NOMEM));
    CHECK(seg_imp(other, exported.handle).failed(CMI_ERR_NOMEM));
    REQUIRE(seg_brk(home, exported.seg, 2 * kQuarter).ok());
    CHECK(peer.run(left, 2 * kQuarter));
    CHECK(seg_imp(other, exported.handle).ok());
    CHECK(other.run(left, 2 * kQuarter));
  }

  TEST_CASE("the_break_from_before_an_import_is_told_to_all_processes_of_its_node") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& beside = cluster.spawn("peer");
    const Export exported = export_segment(home, kMost, kAllRights, CMI_SEG_EXTENSIBLE);
    REQUIRE(seg_brk(home, exported.seg, 5 * kPage).ok());
    const Import import = import_segment(peer, exported);
    CHECK(beside.run(told_break, import.seg) == 5 * kPage);
  }

  TEST_CASE("a_break_that_comes_while_somebody_has_the_registry_is_told_when_he_is_done") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kMost, kAllRights, CMI_SEG_EXTENSIBLE);
    const Import import = import_segment(peer, exported);
    Process& beside = cluster.spawn("peer", {{"CMI_FAULT_POINT", "node.create.claimed=stop"}});
    auto making = beside.start([] { return CMIFN(ctxt(), 10, seg_get)(ctxt(), kPage, 0); });
    REQUIRE(await_stopped(beside));
    REQUIRE(seg_brk(home, exported.seg, 5 * kPage).ok());
    CHECK(loads(peer, import.at + 4 * kPage) == Fault::kNone);
    beside.signal(SIGCONT);
    CHECK(making.get() > 0);
    CHECK(beside.run(told_break, import.seg) == 5 * kPage);
  }

  // Threads of everybody load, store, swap and wait for barriers on all pages while the break
  // moves.
  TEST_CASE_FIXTURE(Scene, "a_break_that_moves_under_everybody_raises_seg_brk_and_nothing_else") {
    REQUIRE(seg_brk(home, exported.seg, kMost / 2).ok());
    const auto hammer = [](uint64_t at, uint64_t seed) {
      uint64_t others = 0, random = seed;
      for (uint64_t i = 0; !called_back(); ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const uint64_t where = at + (random >> 33) % kMost / 8 * 8;
        int cause = Fault::kNone;
        if (i % 64 == 63) {
          if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0) others |= 1u << 16;
        } else if (i % 16 == 7) {
          uint64_t old = 0;
          auto body = [&] {
            CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(where), 0, 1, &old);
          };
          cause = guarded(body).cause();
        } else {
          cause = i % 2 == 0 ? load64(where).cause() : store64(where, i).cause();
        }
        if (cause != Fault::kNone && cause != CMI_ERROR_SEG_BRK) others |= uint64_t{1} << cause;
      }
      return others;  // a bit for each exception that was not SEG_BRK
    };
    auto a = beside.start(hammer, there, 1);
    auto b = peer.start(hammer, import.at, 2);
    auto c = other.start(hammer, second.at, 3);
    const uint64_t failed = home.run(
        [](cmi_seg seg) {
          uint64_t bad = 0;
          for (uint64_t i = 0; i < 60; ++i) {
            cmi_ds ds{};
            ds.brk.seg_brksz = (i * 37 + 5) % 65 * kPage;
            bad += CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_BRK, &ds) != 0;
          }
          return bad;
        },
        exported.seg);
    CHECK(failed == 0);
    CHECK(a.finish() == 0);
    CHECK(b.finish() == 0);
    CHECK(c.finish() == 0);
    REQUIRE(seg_brk(home, exported.seg, kMost).ok());
    for (const auto& [writer, at] : everywhere()) {
      CAPTURE(writer.name());
      REQUIRE(publish(writer, at + kMost - 8, at));
      for (const auto& [reader, from] : everywhere()) {
        CHECK(load(reader, from + kMost - 8).value == at);
      }
    }
    for (Process* p : {&home, &peer, &other}) CHECK(types_waiting(*p) == "");
  }

  // Pages that changed in every byte go one-sided, with the key.
  TEST_CASE_FIXTURE(Scene, "long_runs_on_their_way_when_the_break_comes_down_harm_nothing") {
    REQUIRE(seg_brk(home, exported.seg, kMost).ok());
    const auto rewrite = [](uint64_t at) {
      uint64_t others = 0;
      for (uint64_t value = 1; !called_back(); ++value) {
        for (uint64_t i = 0; i < kMost; i += 8) {
          const int cause = store64(at + i, value * 0x0101010101010101u).cause();
          others += cause != Fault::kNone && cause != CMI_ERROR_SEG_BRK;
          if (cause != Fault::kNone) break;
        }
        others += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
      }
      return others;
    };
    auto writing = peer.start(rewrite, import.at);
    for (const size_t pages : {20, 64, 1, 64, 63, 33, 64, 0, 64}) {
      CHECK(seg_brk(home, exported.seg, pages * kPage).ok());
    }
    CHECK(writing.finish() == 0);
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
    REQUIRE(seg_brk(home, exported.seg, kMost).ok());
    for (uint64_t page = 2; page < 64; ++page) {
      CHECK(load(home, exported.at + page * kPage).value == 0);
      CHECK(load(peer, import.at + page * kPage).value == 0);
    }
    CHECK(types_waiting(peer) == "");
  }
}

}  // namespace

}  // namespace cmi::test::extensible_nodes_test

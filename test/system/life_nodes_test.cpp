// The life of a segment: marked for deletion by CMI_SEG_RM or by the end of its maker or importer,
// gone with the last view.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "system/calls.hpp"

namespace cmi::test::life_nodes_test {

namespace {

// The file of a segment, as the number of files in the runtime folder that carry its id.
int segment_files(const Cluster& cluster, cmi_seg seg) {
  const std::string name = "seg-" + std::to_string(seg);
  const auto files = cluster.files();
  return static_cast<int>(std::count_if(
      files.begin(), files.end(), [&](const std::string& f) { return f.ends_with("/" + name); }));
}

// Whether a process stores and loads there.
bool works(Process& process, uint64_t at, uint64_t value) {
  return store(process, at, value).cause() == Fault::kNone && load(process, at).value == value;
}

TEST_SUITE("life") {
  TEST_CASE("a_removed_segment_stays_for_those_attached") {
    Cluster cluster;
    Process& maker = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    const Answer seg = seg_get(maker, 4 * kPage);
    const Answer here = seg_at(maker, seg.seg());
    const Answer there = seg_at(other, seg.seg());
    REQUIRE(there.ok());
    REQUIRE(store(maker, here.at(), 1).cause() == Fault::kNone);
    REQUIRE(seg_rm(maker, seg.seg()).ok());
    CHECK(load(other, there.at()).value == 1);
    CHECK(works(other, there.at() + kPage, 2));
    CHECK(load(maker, here.at() + kPage).value == 2);
    CHECK(works(maker, here.at() + 2 * kPage, 3));
  }

  TEST_CASE("a_removed_segment_is_gone_with_its_last_detach") {
    Cluster cluster;
    Process& maker = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    constexpr size_t kSize = 64 * kPage;
    const size_t before = ctl_info(maker).info.max_mem_avail;
    const Answer seg = seg_get(maker, kSize);
    const Answer here = seg_at(maker, seg.seg());
    const Answer there = seg_at(other, seg.seg());
    REQUIRE(there.ok());
    CHECK(segment_files(cluster, seg.seg()) == 1);
    REQUIRE(seg_rm(maker, seg.seg()).ok());
    REQUIRE(seg_dt(maker, seg.seg(), here.at()).ok());
    CHECK(segment_files(cluster, seg.seg()) == 1);
    CHECK(ctl_info(maker).info.max_mem_avail <= before - kSize);
    REQUIRE(seg_dt(other, seg.seg(), there.at()).ok());
    CHECK(segment_files(cluster, seg.seg()) == 0);
    CHECK(ctl_info(maker).info.max_mem_avail == before);
    CHECK_FALSE(seg_status(maker, seg.seg()).answer.ok());
  }

  PROCESS_CASE("a_segment_counts_as_removed_when_its_maker_exits") {
    Cluster cluster;
    Process& maker = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    const Answer seg = seg_get(maker, 4 * kPage);
    const Answer there = seg_at(other, seg.seg());
    REQUIRE(there.ok());
    maker.start([] { std::exit(0); });
    CHECK(maker.wait_end() == 0);
    CHECK(seg_at(other, seg.seg()).failed(CMI_ERR_INVAL));
    CHECK(seg_at(cluster.spawn("node"), seg.seg()).failed(CMI_ERR_INVAL));
    CHECK(works(other, there.at(), 4));
    CHECK((seg_status(other, seg.seg()).status.st_flags & CMI_SEG_ST_REMOVED) != 0);
  }

  TEST_CASE("a_segment_counts_as_removed_when_its_maker_is_killed") {
    Cluster cluster;
    Process& maker = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    const Answer seg = seg_get(maker, 4 * kPage);
    const Answer there = seg_at(other, seg.seg());
    REQUIRE(there.ok());
    maker.kill();
    CHECK(seg_at(other, seg.seg()).failed(CMI_ERR_INVAL));
    CHECK(works(other, there.at(), 4));
    REQUIRE(seg_dt(other, seg.seg(), there.at()).ok());
    CHECK(segment_files(cluster, seg.seg()) == 0);
    CHECK_FALSE(seg_status(other, seg.seg()).answer.ok());
  }

  TEST_CASE("an_import_counts_as_removed_when_its_importer_ends") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& user = cluster.spawn("peer");
    Process& importer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(importer, exported);
    REQUIRE(cmi_enb(user, 1).ok());
    const Answer view = seg_at(user, import.seg);
    REQUIRE(view.ok());
    REQUIRE(load(user, view.at()).cause() == Fault::kNone);
    SUBCASE("killed") { importer.kill(); }
    SUBCASE("in good order") { REQUIRE(fini(importer).ok()); }
    CHECK(seg_at(user, import.seg).failed(CMI_ERR_INVAL));
    CHECK(seg_at(cluster.spawn("peer"), import.seg).failed(CMI_ERR_INVAL));
    CHECK(works(user, view.at() + kPage, 6));
    CHECK(wmb(user).ok());
    CHECK(load(home, exported.at + kPage).value == 6);
  }

  TEST_CASE("a_segment_id_is_not_reused_while_attached") {
    Cluster cluster;
    Process& maker = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    const Answer seg = seg_get(maker, kPage);
    REQUIRE(seg_at(other, seg.seg()).ok());
    REQUIRE(seg_rm(maker, seg.seg()).ok());
    const int same = maker.run(
        [](cmi_seg taken) {
          int count = 0;
          for (int i = 0; i < 1000; ++i) {
            const cmi_seg made = CMIFN(ctxt(), 10, seg_get)(ctxt(), kPage, 0);
            if (made <= 0) return -1;
            count += made == taken;
            CMIFN(ctxt(), 10, seg_ctl)(ctxt(), made, CMI_SEG_RM, nullptr);
          }
          return count;
        },
        seg.seg());
    CHECK(same == 0);
  }

  TEST_CASE("seg_rm_by_another_process_is_perm") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& second = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& fourth = cluster.spawn("peer");
    const Export exported = export_segment(home);
    CHECK(seg_rm(second, exported.seg).failed(CMI_ERR_PERM));
    const Import import = import_segment(peer, exported);
    CHECK(seg_rm(fourth, import.seg).failed(CMI_ERR_PERM));
    CHECK(seg_at(second, exported.seg).ok());
    CHECK(seg_at(fourth, import.seg).ok());
  }

  TEST_CASE("seg_rm_of_an_import_leaves_the_export") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& first = cluster.spawn("first");
    Process& second = cluster.spawn("second");
    const Export exported = export_segment(home);
    const Import here = import_segment(first, exported);
    const Import there = import_segment(second, exported);
    REQUIRE(store(first, here.at, 1).cause() == Fault::kNone);
    REQUIRE(seg_rm(first, here.seg).ok());
    CHECK(works(first, here.at + 8, 2));
    REQUIRE(seg_dt(first, here.seg, here.at).ok());
    CHECK(works(second, there.at + 16, 3));
    CHECK(wmb(second).ok());
    CHECK(load(home, exported.at + 16).value == 3);
    CHECK_FALSE((seg_status(home, exported.seg).status.st_flags & CMI_SEG_ST_REMOVED) != 0);
    const Import again = import_segment(first, exported);
    CHECK(load(first, again.at + 16).value == 3);
  }

  TEST_CASE("no_event_comes_for_a_removed_segment") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(open_fb(peer).ok());
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    // The store and the removal race with the timer; a store that came home before is no loss.
    bool lost = false;
    for (int round = 0; round < 20 && !lost; ++round) {
      const Export next = export_segment(home);
      const Import view = import_segment(peer, next);
      REQUIRE(load(peer, view.at).cause() == Fault::kNone);
      REQUIRE(store(peer, view.at, 9).cause() == Fault::kNone);
      REQUIRE(seg_rm(home, next.seg).ok());
      const Answer flushed = flush_fb(peer);
      if (!flushed.ok()) {
        CHECK(flushed.failed(CMI_ERR_STORE));
        lost = true;
      }
    }
    CHECK(lost);
    CHECK(next_event(peer) == 0);
    CHECK(next_event(home) == 0);
  }
}

}  // namespace

}  // namespace cmi::test::life_nodes_test

// What CMI_CTL_INFO says of memory is what there is: on a small file system, beside another node on
// the same one, and after the death of a process that had some.
#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>

#include "core/base/clock.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/small_tmpfs.hpp"

namespace cmi::test::memory_limits_nodes_test {
namespace {

constexpr size_t kMiB = 1u << 20;

// In a mount namespace that this test process takes for itself. Null, or why not.
const char* put_over(const std::string& file, const char* path) {
  if (geteuid() != 0) return "mounting takes root";
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount(file.c_str(), path, nullptr, MS_BIND, nullptr) != 0) {
    return "no mounts of our own here";
  }
  return nullptr;
}

TEST_SUITE("memory_limits") {
  TEST_CASE("on_a_small_tmpfs_what_info_says_is_what_seg_get_gets") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 16 * kMiB);
    if (!small.mounted()) return skip(small.reason());
    Process& process = cluster.spawn("node", {{"CMI_RUNTIME_DIR", small.folder()}});
    const cmi_cfg_info before = ctl_info(process).info;
    CHECK(before.max_mem_cfg > 16 * kMiB);
    CHECK(before.max_mem_avail <= 16 * kMiB);
    CHECK(before.max_mem_avail > 8 * kMiB);
    CHECK(before.max_seg_sz == before.max_mem_avail);
    const Answer largest = seg_get(process, before.max_seg_sz);
    REQUIRE(largest.ok());
    const cmi_cfg_info full = ctl_info(process).info;
    CHECK(full.max_mem_avail == 0);
    CHECK(full.max_seg_sz == before.max_seg_sz);
    CHECK(seg_get(process, kPage).failed(CMI_ERR_NOMEM));
    REQUIRE(seg_rm(process, largest.seg()).ok());
    CHECK(ctl_info(process).info.max_mem_avail == before.max_mem_avail);
    process.end();
  }

  TEST_CASE("what_one_node_has_taken_of_a_file_system_is_not_there_for_another") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 16 * kMiB);
    if (!small.mounted()) return skip(small.reason());
    Process& one = cluster.spawn("one", {{"CMI_RUNTIME_DIR", small.folder()}});
    Process& two = cluster.spawn("two", {{"CMI_RUNTIME_DIR", small.folder()}});
    const size_t before = ctl_info(two).info.max_mem_avail;
    REQUIRE(seg_get(one, 4 * kMiB).ok());
    const size_t after = ctl_info(two).info.max_mem_avail;
    CHECK(before - after == 4 * kMiB);
    CHECK(ctl_info(two).info.max_seg_sz == after);
    CHECK(seg_get(two, after + kPage).failed(CMI_ERR_NOMEM));
    CHECK(seg_get(two, after).ok());
    one.end();
    two.end();
  }

  TEST_CASE("a_segment_that_reserves_nothing_counts_against_no_limit") {
    Cluster cluster;
    Process& process = cluster.spawn("node", {{"CMI_MEM_MAX", "4M"}});
    REQUIRE(seg_get(process, 2 * kMiB).ok());
    const Answer seg = seg_get(process, 4 * kMiB, CMI_SEG_NORESERVE);
    REQUIRE(seg.ok());
    const Answer view = seg_at(process, seg.seg());
    REQUIRE(view.ok());
    CHECK(process.run(
              [](uint64_t at) {
                size_t failed = 0;
                for (uint64_t i = 0; i < 4 * kMiB; i += kPage)
                  failed += store64(at + i, i).cause() != Fault::kNone;
                return failed;
              },
              view.at()) == 0);
    CHECK(ctl_info(process).info.max_mem_avail == 2 * kMiB);
    CHECK(seg_get(process, 3 * kMiB).failed(CMI_ERR_NOMEM));
  }

  TEST_CASE("the_memory_of_a_killed_process_is_available_without_another_join") {
    Cluster cluster;
    const Env env{{"CMI_MEM_MAX", "8M"}};
    Process& stays = cluster.spawn("node", env);
    Process& dies = cluster.spawn("node", env);
    REQUIRE(seg_get(dies, 5 * kMiB).ok());
    REQUIRE(ctl_info(stays).info.max_mem_avail == 3 * kMiB);
    dies.kill();
    CHECK(ctl_info(stays).info.max_mem_avail == 8 * kMiB);
  }

  TEST_CASE("an_import_counts_what_its_cache_may_take") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_MEM_MAX", "8M"}});
    const Export exported = export_segment(home, 16 * kMiB);
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_NOMEM));
    REQUIRE(set_cache(peer, CMI_SEG_ALL, 4 * kMiB).ok());
    const Import import = import_segment(peer, exported);
    CHECK(ctl_info(peer).info.max_mem_avail == 4 * kMiB);
    CHECK(set_cache(peer, import.seg, 16 * kMiB).failed(CMI_ERR_NOMEM));
    CHECK(ctl_info(peer).info.max_mem_avail == 4 * kMiB);
    REQUIRE(set_cache(peer, import.seg, 6 * kMiB).ok());
    CHECK(ctl_info(peer).info.max_mem_avail == 2 * kMiB);
    REQUIRE(set_cache(peer, import.seg, 2 * kMiB).ok());
    CHECK(ctl_info(peer).info.max_mem_avail == 6 * kMiB);
    CHECK(load(peer, import.at + 15 * kMiB).value == 0);
  }

  TEST_CASE("nodes_of_one_machine_do_not_promise_its_memory_twice") {
    Cluster cluster;
    const std::string told = cluster.scratch() + "/meminfo";
    const auto tell = [&](size_t total, size_t free) {
      std::ofstream(told) << "MemTotal: " << total / 1024 << " kB\nMemAvailable: " << free / 1024
                          << " kB\n";
    };
    tell(64 * kMiB, 60 * kMiB);
    if (const char* why = put_over(told, "/proc/meminfo")) return skip(why);
    Process& one = cluster.spawn("one");
    Process& two = cluster.spawn("two");
    CHECK(ctl_info(two).info.max_mem_avail == 56 * kMiB);
    REQUIRE(seg_get(one, 30 * kMiB).ok());
    CHECK(ctl_info(two).info.max_mem_avail == 26 * kMiB);
    CHECK(seg_get(two, 30 * kMiB).failed(CMI_ERR_NOMEM));
    CHECK(seg_get(two, 20 * kMiB).ok());
    tell(64 * kMiB, 3 * kMiB);  // whoever has taken it
    CHECK(ctl_info(two).info.max_mem_avail == kMiB);
    CHECK(seg_get(two, 2 * kMiB).failed(CMI_ERR_NOMEM));
    CHECK(seg_get(two, kMiB).ok());
  }

  TEST_CASE("an_access_that_finds_no_memory_for_its_page_gets_that_of_the_dead") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 16 * kMiB);
    if (!small.mounted()) return skip(small.reason());
    const Env env{{"CMI_RUNTIME_DIR", small.folder()}};
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", env);
    Process& dies = cluster.spawn("other", env);
    const Export exported = export_segment(home, 4 * kMiB);
    REQUIRE(set_cache(peer, CMI_SEG_ALL, 2 * kMiB).ok());  // which is taken as it is needed
    const Import import = import_segment(peer, exported);
    REQUIRE(store(home, exported.at, 7).cause() == Fault::kNone);
    REQUIRE(wmb(home).ok());
    REQUIRE(seg_get(dies, ctl_info(dies).info.max_mem_avail).ok());
    REQUIRE(ctl_info(peer).info.max_mem_avail == 0);
    dies.kill();
    const Access access = load(peer, import.at);
    CHECK(access.cause() == Fault::kNone);
    CHECK(access.value == 7);
  }
}

}  // namespace
}  // namespace cmi::test::memory_limits_nodes_test

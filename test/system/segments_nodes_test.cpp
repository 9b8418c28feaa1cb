// Making and attaching segments where other processes or nodes take part.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/small_tmpfs.hpp"

namespace cmi::test::segments_nodes_test {

namespace {

constexpr size_t kBig = 8u << 20;

TEST_SUITE("segments") {
  TEST_CASE("seg_get_without_memory_is_nomem") {
    Cluster cluster;
    Process& process = cluster.spawn("node", {{"CMI_MEM_MAX", "12M"}});
    const Answer first = seg_get(process, kBig);
    REQUIRE(first.ok());
    CHECK(seg_get(process, kBig).failed(CMI_ERR_NOMEM));
    REQUIRE(seg_rm(process, first.seg()).ok());
    CHECK(seg_get(process, kBig).ok());
  }

  PROCESS_CASE("seg_get_on_a_full_file_system_is_nomem_and_never_a_fault_later") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 12u << 20);
    if (!small.mounted()) return skip(small.reason());
    Process& process = cluster.spawn("node", {{"CMI_RUNTIME_DIR", small.folder()}});
    const Answer first = seg_get(process, kBig);
    REQUIRE(first.ok());
    CHECK(seg_get(process, kBig).failed(CMI_ERR_NOMEM));
    const Answer view = seg_at(process, first.seg());
    REQUIRE(view.ok());
    const int faults = process.run(
        [](uint64_t at, size_t size) {
          int count = 0;
          for (uint64_t page = at; page < at + size; page += kPage) {
            count += store64(page, page).cause() != Fault::kNone;
          }
          return count;
        },
        view.at(), kBig);
    CHECK(faults == 0);
    REQUIRE(seg_dt(process, first.seg(), view.at()).ok());
    REQUIRE(seg_rm(process, first.seg()).ok());
    CHECK(seg_get(process, kBig).ok());
    process.end();
  }

  TEST_CASE("seg_at_of_an_import_maps_at_the_address_asked_for") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    REQUIRE(store(home, exported.at, 5).cause() == Fault::kNone);
    const Import import = import_segment(peer, exported);
    // Where a mapping of the right size was just given up, there is room.
    const uint64_t wanted = peer.run(
        [](size_t size, size_t alignment) {
          const size_t span = size + alignment;
          void* room = ::mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          ::munmap(room, span);
          return (reinterpret_cast<uint64_t>(room) + alignment - 1) / alignment * alignment;
        },
        exported.size, seg_info(peer, import.seg).info.seg_align);
    const Answer view = seg_at(peer, import.seg, wanted);
    REQUIRE(view.ok());
    CHECK(view.at() == wanted);
    CHECK(load(peer, wanted).value == 5);
  }

  TEST_CASE("seg_at_of_an_import_at_a_misaligned_address_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Import import = import_segment(peer, export_segment(home));
    for (uint64_t off : {uint64_t{1}, uint64_t{8}, kPage - 1, kPage / 2}) {
      CHECK(seg_at(peer, import.seg, import.at + (uint64_t{1} << 30) + off).failed(CMI_ERR_INVAL));
    }
  }

  PROCESS_CASE("seg_at_without_memory_for_the_proxy_is_nomem") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 8u << 20);
    if (!small.mounted()) return skip(small.reason());
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_RUNTIME_DIR", small.folder()}});
    const Export big = export_segment(home, 32u << 20);
    const Answer imported = seg_imp(peer, big.handle);
    REQUIRE(imported.ok());
    REQUIRE(set_token(peer, imported.seg(), big.token).ok());
    CHECK(seg_at(peer, imported.seg()).failed(CMI_ERR_NOMEM));
    const Export fits = export_segment(home, 1u << 20);
    const Import import = import_segment(peer, fits);
    CHECK(load(peer, import.at + fits.size - 8).cause() == Fault::kNone);
    peer.end();
  }

  TEST_CASE("seg_at_of_a_removed_segment_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& second = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(seg_rm(home, exported.seg).ok());
    CHECK(seg_at(home, exported.seg).failed(CMI_ERR_INVAL));
    CHECK(seg_at(second, exported.seg).failed(CMI_ERR_INVAL));
    CHECK(seg_at(cluster.spawn("home"), exported.seg).failed(CMI_ERR_INVAL));
    REQUIRE(seg_rm(peer, import.seg).ok());
    CHECK(seg_at(peer, import.seg).failed(CMI_ERR_INVAL));
  }

  TEST_CASE("several_imports_attach_in_one_process") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    constexpr int kCount = 8;
    Import imports[kCount];
    for (int i = 0; i < kCount; ++i) {
      const Export exported = export_segment(home, (static_cast<size_t>(i) + 1) * 4 * kPage);
      REQUIRE(publish(home, exported.at, 100u + static_cast<uint64_t>(i)));
      imports[i] = import_segment(peer, exported);
    }
    for (int i = 0; i < kCount; ++i) {
      CHECK(load(peer, imports[i].at).value == 100u + static_cast<uint64_t>(i));
      for (int j = 0; j < i; ++j) CHECK(imports[i].at != imports[j].at);
    }
  }

  TEST_CASE("one_import_attaches_at_several_addresses") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Answer second = seg_at(peer, import.seg, 0, CMI_SEG_READ);
    REQUIRE(second.ok());
    CHECK(second.at() != import.at);
    REQUIRE(load(peer, second.at() + 64).value == 0);
    REQUIRE(store(peer, import.at + 64, 9).cause() == Fault::kNone);
    CHECK(load(peer, second.at() + 64).value == 9);
    REQUIRE(publish(home, exported.at + 64, 10));
    CHECK(wmb(peer).ok());
    REQUIRE(publish(home, exported.at + 72, 11));
    CHECK(load(peer, second.at() + 72).value == 11);
    CHECK(load(peer, import.at + 72).value == 11);
  }

  TEST_CASE("a_second_process_of_the_node_attaches_by_the_id") {
    Cluster cluster;
    Process& first = cluster.spawn("node");
    Process& second = cluster.spawn("node");
    const Answer seg = seg_get(first, 4 * kPage);
    REQUIRE(seg.ok());
    const Answer here = seg_at(first, seg.seg());
    const Answer there = seg_at(second, seg.seg());
    REQUIRE(here.ok());
    REQUIRE(there.ok());
    REQUIRE(store(first, here.at() + 8, 1).cause() == Fault::kNone);
    CHECK(load(second, there.at() + 8).value == 1);
    REQUIRE(store(second, there.at() + kPage, 2).cause() == Fault::kNone);
    CHECK(load(first, here.at() + kPage).value == 2);
  }

  TEST_CASE("home_processes_need_no_token") {
    Cluster cluster;
    Process& first = cluster.spawn("node");
    Process& second = cluster.spawn("node");
    const Answer seg = seg_get(first, 4 * kPage);
    const Answer here = seg_at(first, seg.seg());
    const Answer there = seg_at(second, seg.seg());
    REQUIRE(here.ok());
    REQUIRE(there.ok());
    REQUIRE(store(first, here.at(), 3).cause() == Fault::kNone);
    CHECK(load(second, there.at()).value == 3);
    const Flat token = tok_new(first, seg.seg(), CMI_ACC_READ);
    REQUIRE(token.ok());
    REQUIRE(tok_del(first, token).ok());
    REQUIRE(store(second, there.at(), 4).cause() == Fault::kNone);
    CHECK(load(first, here.at()).value == 4);
  }
}

}  // namespace

}  // namespace cmi::test::segments_nodes_test

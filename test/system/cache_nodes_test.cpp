// The size of an import's cache: set, told back, kept, and never a reason to lose anything.
#include <doctest/doctest.h>

#include <cstdio>

#include "system/calls.hpp"

namespace cmi::test::cache_nodes_test {

namespace {

constexpr uint64_t kPages = 2048;
constexpr size_t kSize = kPages * kPage;

// Memory that views of shared files take in the process, in bytes.
uint64_t shared_memory(Process& process) {
  return process.run([] {
    uint64_t pages = 0, resident = 0, shared = 0;
    if (FILE* f = std::fopen("/proc/self/statm", "r"); f != nullptr) {
      if (std::fscanf(f, "%lu %lu %lu", &pages, &resident, &shared) != 3)
        shared = UINT64_MAX / kPage;
      std::fclose(f);
    }
    return shared * kPage;
  });
}

// The number of pages whose first word is not as expected.
uint64_t wrong_pages(Process& process, uint64_t at, uint64_t base) {
  return process
      .start(
          [](uint64_t a, uint64_t b) {
            uint64_t wrong = 0;
            for (uint64_t i = 0; i < kPages; ++i) wrong += load64(a + i * kPage).value != b + i;
            return wrong;
          },
          at, base)
      .get(60);
}

void fill(Process& process, uint64_t at, uint64_t base) {
  process
      .start(
          [](uint64_t a, uint64_t b) {
            for (uint64_t i = 0; i < kPages; ++i) store64(a + i * kPage, b + i);
          },
          at, base)
      .get(60);
}

TEST_SUITE("cache") {
  TEST_CASE("the_cache_size_is_told_back_and_only_to_whom_it_belongs") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& sibling = cluster.spawn("peer");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    CHECK(cache_of(peer, import.seg).value == kSize);
    REQUIRE(set_cache(peer, import.seg, 1 << 20).ok());
    CHECK(cache_of(peer, import.seg).value == 1 << 20);
    CHECK(set_cache(peer, import.seg, 0).failed(CMI_ERR_INVAL));
    CHECK(cache_of(peer, import.seg).value == 1 << 20);
    CHECK(set_cache(sibling, import.seg, 1 << 20).failed(CMI_ERR_PERM));
    CHECK(cache_of(sibling, import.seg).failed(CMI_ERR_PERM));
    CHECK(set_cache(peer, 4711, 1 << 20).failed(CMI_ERR_INVAL));
    CHECK(cache_of(peer, 4711).failed(CMI_ERR_INVAL));
    CHECK(cache_of(peer, CMI_SEG_ALL).failed(CMI_ERR_INVAL));
    // At home it has no effect, and is kept.
    CHECK(cache_of(home, exported.seg).value == kSize);
    REQUIRE(set_cache(home, exported.seg, 2 << 20).ok());
    CHECK(cache_of(home, exported.seg).value == 2 << 20);
    Process& beside = cluster.spawn("home");
    CHECK(set_cache(beside, exported.seg, 1 << 20).failed(CMI_ERR_PERM));
    CHECK(cache_of(beside, exported.seg).failed(CMI_ERR_PERM));
    CHECK(cache_of(home, exported.seg).value == 2 << 20);
  }

  TEST_CASE("all_segments_get_the_size_and_so_do_later_ones") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export one = export_segment(home, kSize);
    const Export two = export_segment(home, kSize);
    const Import first = import_segment(peer, one);
    REQUIRE(set_cache(peer, CMI_SEG_ALL, 3 << 20).ok());
    CHECK(cache_of(peer, first.seg).value == 3 << 20);
    const Import second = import_segment(peer, two);
    CHECK(cache_of(peer, second.seg).value == 3 << 20);
    REQUIRE(set_cache(home, CMI_SEG_ALL, 5 << 20).ok());
    CHECK(cache_of(home, one.seg).value == 5 << 20);
    CHECK(cache_of(home, two.seg).value == 5 << 20);
  }

  PROCESS_CASE("a_small_cache_holds_a_large_segment_and_loses_no_store") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    REQUIRE(set_cache(peer, import.seg, 1 << 20).ok());
    const uint64_t before = shared_memory(peer);
    fill(home, exported.at, 1000);
    REQUIRE(wmb(home).ok());
    CHECK(wrong_pages(peer, import.at, 1000) == 0);
    fill(peer, import.at, 5000);
    CHECK(wrong_pages(peer, import.at, 5000) == 0);
    REQUIRE(wmb(peer).ok());
    CHECK(wrong_pages(home, exported.at, 5000) == 0);
    // Cached pages count twice, in both mappings; there is room for those under way.
    CHECK(shared_memory(peer) < before + (6 << 20));
    REQUIRE(set_cache(peer, import.seg, kSize).ok());
    CHECK(wrong_pages(peer, import.at, 5000) == 0);
  }

  // Each process that attaches an import has a cache of its own.
  PROCESS_CASE("a_process_that_shares_an_import_evicts_from_its_own_cache_and_loses_no_store") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    Process& sibling = cluster.spawn("peer");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(importer, exported);
    REQUIRE(set_cache(sibling, CMI_SEG_ALL, 1 << 20).ok());
    REQUIRE(cmi_enb(sibling, 1).ok());
    const Answer view = seg_at(sibling, import.seg);
    REQUIRE(view.ok());
    const auto evicted = [](Process& process) {
      return process.run([] { return stats().pages_evicted; });
    };
    const uint64_t before = shared_memory(sibling);
    fill(home, exported.at, 1000);
    REQUIRE(wmb(home).ok());
    CHECK(wrong_pages(importer, import.at, 1000) == 0);
    CHECK(wrong_pages(sibling, view.at(), 1000) == 0);
    CHECK(evicted(sibling) > kPages / 2);
    fill(sibling, view.at(), 5000);
    CHECK(wrong_pages(sibling, view.at(), 5000) == 0);
    REQUIRE(wmb(sibling).ok());
    CHECK(wrong_pages(home, exported.at, 5000) == 0);
    CHECK(wrong_pages(importer, import.at, 5000) == 0);
    // Cached pages count twice, in both mappings; there is room for those under way.
    CHECK(shared_memory(sibling) < before + (6 << 20));
    // What the importer stores it sees, too, whatever it has had to give up.
    fill(importer, import.at, 9000);
    REQUIRE(wmb(importer).ok());
    CHECK(wrong_pages(sibling, view.at(), 9000) == 0);
    CHECK(evicted(importer) == 0);
  }

  TEST_CASE("a_full_cache_loses_no_more_than_it_must") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    constexpr uint64_t kLimit = 1024;
    REQUIRE(set_cache(peer, import.seg, kLimit * kPage).ok());
    const uint64_t evicted = peer.run(
        [](uint64_t at) {
          // Every other page, so that nothing is fetched ahead; a few more than there is room for.
          for (uint64_t i = 0; i < kLimit + 16 && 2 * i < kPages; ++i)
            (void)load64(at + 2 * i * kPage);
          for (uint64_t i = 0; i < 17; ++i) (void)load64(at + (2 * i + 1) * kPage);
          return stats().pages_evicted;
        },
        import.at);
    CHECK(evicted > 0);
    CHECK(evicted < kLimit / 4);
  }

  PROCESS_CASE("a_cache_that_shrinks_gives_its_memory_back") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    fill(peer, import.at, 1);
    const uint64_t before = shared_memory(peer);
    REQUIRE(set_cache(peer, import.seg, 1 << 20).ok());
    CHECK(shared_memory(peer) + kSize / 2 < before);
    CHECK(wrong_pages(peer, import.at, 1) == 0);
    REQUIRE(wmb(peer).ok());
    CHECK(wrong_pages(home, exported.at, 1) == 0);
  }

  TEST_CASE("a_cache_that_gets_no_memory_for_a_moment_tries_again") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", "cache_no_memory#3=fail"}});
    const Export exported = export_segment(home, kSize);
    const Import import = import_segment(peer, exported);
    REQUIRE(set_cache(peer, import.seg, 1 << 20).ok());
    fill(home, exported.at, 9);
    REQUIRE(wmb(home).ok());
    CHECK(wrong_pages(peer, import.at, 9) == 0);
  }
}

}  // namespace

}  // namespace cmi::test::cache_nodes_test

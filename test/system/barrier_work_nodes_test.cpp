// The work of a barrier is in proportion to what was touched, whatever the size of the segment and
// of the cache: counted, not timed. What is counted: pages that the kernel is asked about or told
// to protect (which are then compared), other requests to it, messages, bytes, and pages of the
// process's own memory that are used meanwhile, so that a walk through a table as long as the
// segment shows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/passages.hpp"
#include "support/sanitized.hpp"
#include "system/calls.hpp"
#include "system/kernel_work.hpp"

namespace cmi::test::barrier_work_nodes_test {

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSizes[] = {kMiB, 64 * kMiB, 1024 * kMiB};
constexpr uint64_t kRegionPages = 512;  // a home knows who has what by regions of so many
constexpr uint64_t kApart = 2;          // pages that are stored to do not touch each other
// Of the process's own memory, so many pages are used by a barrier and by what else runs meanwhile,
// beside one for each page that was stored to: 17 are seen, at home 28. A walk through the states
// of the pages of 64 MiB takes 64 more, of 1 GiB 1024.
constexpr uint64_t kFewPages = 60;

// Nothing but the barriers publishes.
const Env kNoTimer{{"CMI_FAULT_POINT", "mutate_timer_takes_nothing=fail"}};

struct Work {
  KernelWork kernel;
  uint64_t publications, pages, bytes;  // written back
  uint64_t used;                        // pages of the process's own memory
  bool ok;
  bool same(const Work& other) const {
    return kernel == other.kernel && publications == other.publications && pages == other.pages &&
           bytes == other.bytes;
  }
};
std::ostream& operator<<(std::ostream& out, const Work& w) {
  return out << w.kernel.scans << " scans of " << w.kernel.scanned_pages << " pages, "
             << w.kernel.protections << " protections of " << w.kernel.protected_pages << " pages, "
             << w.kernel.others << " other requests, " << w.publications << " messages with "
             << w.bytes << " bytes of " << w.pages << " pages, " << w.used << " pages of memory";
}

// In the process. The kernel notes which pages of memory are used: from here on, and how many have
// been since, of nameless private mappings, where tables lie. False where it cannot be asked.
bool forget_used_pages() {
  std::ofstream notes("/proc/self/clear_refs");
  return static_cast<bool>(notes << "2" << std::flush);
}
uint64_t used_pages() {
  std::ifstream mappings("/proc/self/smaps");
  uint64_t kib = 0;
  bool counts = false;
  for (std::string line; std::getline(mappings, line);) {
    std::istringstream in(line);
    std::string first, rights, offset, device, inode, name;
    in >> first >> rights >> offset >> device >> inode >> name;
    if (first.find('-') != first.npos) {
      counts = inode == "0" && name.empty() && rights.ends_with('p');
    } else if (first == "Referenced:" && counts) {
      kib += std::strtoull(rights.c_str(), nullptr, 10);
    }
  }
  return kib / 4;
}

// In the process: stores to so many pages from `at` on, and the barrier, twice: its work the second
// time, so that nothing is counted which is done once. Each page's word is kStored more afterwards.
constexpr uint64_t kStored = 1 + 2;
Work store_and_flush(Process& process, uint64_t at, uint64_t pages) {
  return process.run(
      [](uint64_t address, uint64_t n) {
        Work work{};
        for (uint64_t time = 1; time <= 2; ++time) {
          for (uint64_t i = 0; i < n; ++i) {
            const uint64_t place = address + i * kApart * kPage;
            const uint64_t value = load64(place).value + time;
            if (store64(place, value).cause() != Fault::kNone) return Work{};
          }
          const cmi_ofi_stats before = stats();
          const bool noted = forget_used_pages();
          const KernelWork kernel = kernel_work();
          work.ok = cmi_wmb() == 0;
          work.kernel = kernel_work() - kernel;
          work.used = noted ? used_pages() : 0;
          const cmi_ofi_stats after = stats();
          work.publications = after.publications - before.publications;
          work.pages = after.pages_written_back - before.pages_written_back;
          work.bytes = after.bytes_written_back - before.bytes_written_back;
        }
        return work;
      },
      at, pages);
}

// Loads one word of so many pages: they are cached from then on, and their regions held. Backwards,
// so that nothing is read ahead of it.
void cache(Process& process, uint64_t at, uint64_t pages) {
  REQUIRE(process.run(
      [](uint64_t address, uint64_t n) {
        while (n-- > 0) {
          if (load64(address + n * kPage).cause() != Fault::kNone) return false;
        }
        return true;
      },
      at, pages));
}

struct Scene {
  explicit Scene(uint64_t size)
      : exported(export_segment(home, size, kAllRights, CMI_SEG_NORESERVE)),
        import(import_segment(peer, exported)) {}
  Cluster cluster;
  Process& home = cluster.spawn("home", kNoTimer);
  Process& peer = cluster.spawn("peer", kNoTimer);
  const Export exported;
  const Import import;
};

TEST_SUITE("work") {
  TEST_CASE("a_barrier_at_home_looks_at_held_regions_whatever_the_size_of_the_segment") {
    constexpr uint64_t kHeld = 64;  // pages that the importer has, of one region
    std::map<uint64_t, Work> smallest;
    for (const uint64_t size : kSizes) {
      Scene s(size);
      cache(s.peer, s.import.at, kHeld);
      uint64_t value = 0;
      for (const uint64_t dirty : {0, 1, 10}) {
        CAPTURE(size);
        CAPTURE(dirty);
        const Work work = store_and_flush(s.home, s.exported.at, dirty);
        CAPTURE(work);
        REQUIRE(work.ok);
        if (dirty != 0) value += kStored;
        CHECK(load(s.peer, s.import.at).value == value);
        if (kernel_notes_stores()) {
          CHECK(work.kernel.scans == 1);
          CHECK(work.kernel.scanned_pages == std::min(size / kPage, kRegionPages));
        }
        if (!kSanitized) CHECK(work.used <= kFewPages + dirty);
        // A region of a small segment is as long as the segment.
        Work alike = work;
        alike.kernel.scanned_pages = 0;
        const Work& first = smallest.try_emplace(dirty, alike).first->second;
        CHECK_MESSAGE(alike.same(first), "of the smallest: ", first);
      }
    }
  }

  TEST_CASE("a_barrier_at_home_looks_at_nothing_that_no_importer_holds") {
    constexpr uint64_t kRegionBytes = kRegionPages * kPage;
    Scene s(1024 * kMiB);
    // Imported and attached, and nothing of it in any cache.
    const Work unheld = store_and_flush(s.home, s.exported.at + 100 * kRegionBytes, 10);
    CAPTURE(unheld);
    CHECK(unheld.ok);
    CHECK(unheld.kernel == KernelWork{});
    for (uint64_t held = 1; held <= 3; ++held) {
      CAPTURE(held);
      cache(s.peer, s.import.at + held * 7 * kRegionBytes, 1);  // not beside each other
      const Work work = store_and_flush(s.home, s.exported.at + 100 * kRegionBytes, 10);
      CAPTURE(work);
      CHECK(work.ok);
      if (!kernel_notes_stores()) continue;
      CHECK(work.kernel.scans == held);
      CHECK(work.kernel.scanned_pages == held * kRegionPages);
    }
  }

  TEST_CASE(
      "a_barrier_at_an_importer_works_on_dirty_pages_whatever_the_size_of_segment_and_cache") {
    constexpr uint64_t kSmall = 32, kLarge = 2048;  // pages cached beforehand
    std::map<uint64_t, Work> smallest;
    for (const uint64_t size : kSizes) {
      for (const uint64_t cached : {kSmall, kLarge}) {
        Scene s(size);
        if (cached == kSmall) REQUIRE(set_cache(s.peer, s.import.seg, kMiB).ok());
        cache(s.peer, s.import.at, std::min(cached, size / kPage));
        for (const uint64_t dirty : {0, 1, 10, 100}) {
          CAPTURE(size);
          CAPTURE(cached);
          CAPTURE(dirty);
          const Work work = store_and_flush(s.peer, s.import.at, dirty);
          CAPTURE(work);
          REQUIRE(work.ok);
          CHECK(work.pages == dirty);
          CHECK(work.kernel.protected_pages == 0);  // they are stored to for the second time
          CHECK(work.kernel.scans == 0);
          if (dirty == 0) CHECK(work.kernel == KernelWork{});
          if (!kSanitized) CHECK(work.used <= kFewPages + dirty);
          const Work& first = smallest.try_emplace(dirty, work).first->second;
          CHECK_MESSAGE(work.same(first), "of the smallest: ", first);
        }
      }
    }
  }

  TEST_CASE("a_barrier_begins_something_for_imports_that_were_stored_to_and_for_no_others") {
    constexpr size_t kImports = 12;
    Cluster cluster;
    Process& home = cluster.spawn("home", kNoTimer);
    const std::string passages = cluster.scratch() + "/passages";
    Env env = kNoTimer;
    env.emplace_back("CMI_FAULT_COUNT", passages);
    Process& peer = cluster.spawn("peer", env);
    std::vector<Import> imports;
    for (size_t i = 0; i < kImports; ++i) {
      imports.push_back(import_segment(peer, export_segment(home)));
      cache(peer, imports.back().at, 1);
    }
    for (const size_t stored : {size_t{0}, size_t{1}, size_t{5}, kImports}) {
      CAPTURE(stored);
      for (size_t i = 0; i < stored; ++i) {
        REQUIRE(store(peer, imports[i].at, stored).cause() == Fault::kNone);
      }
      const uint64_t before = read_passages(passages)["write_back_begun"];
      REQUIRE(peer.run([] { return cmi_wmb() == 0; }));
      CHECK(read_passages(passages)["write_back_begun"] - before == stored);
    }
  }
}

}  // namespace

}  // namespace cmi::test::barrier_work_nodes_test

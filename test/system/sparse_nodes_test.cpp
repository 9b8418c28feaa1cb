// Segments larger than any memory, of which little is used: a miss costs what it costs in a small
// segment, and page tables grow with what is held. Counted, not timed.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "support/resident.hpp"
#include "support/sanitized.hpp"
#include "system/calls.hpp"
#include "system/kernel_work.hpp"

namespace cmi::test::sparse_nodes_test {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kLarge = kMiB << 20;
constexpr uint64_t kRegionPages = 512;
constexpr char kNoTimer[] = "mutate_timer_takes_nothing=fail";

// KiB, of the process's: its page tables (VmPTE) or its memory (VmRSS).
uint64_t status_here(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stoull(line.substr(field.size()));
  }
  return 0;
}

uint64_t page_tables(Process& process) {
  return process.run([] { return status_here("VmPTE:"); });
}
uint64_t memory_of(Process& process) {
  return process.run([] { return status_here("VmRSS:"); });
}
KernelWork work_of(Process& process) {
  return process.run([] { return kernel_work(); });
}

struct Work {
  KernelWork home, reader;
  bool operator==(const Work&) const = default;
};

struct Scene {
  explicit Scene(uint64_t size, const std::string& points = kNoTimer)
      : env{{"CMI_FAULT_POINT", points}, {"CMI_MEM_MAX", "4T"}},
        home(cluster.spawn("home", env)),
        reader(cluster.spawn("reader", env)),
        before(page_tables(home)),
        exported(export_segment(home, size, kAllRights, CMI_SEG_NORESERVE)),
        import(import_segment(reader, exported)) {}
  uint64_t grown() const { return page_tables(home) - before; }
  // The work of one load; REQUIREs the value.
  Work load_of(uint64_t offset, uint64_t value) const {
    const KernelWork at_home = work_of(home), here = work_of(reader);
    REQUIRE(load(reader, import.at + offset).value == value);
    return {work_of(home) - at_home, work_of(reader) - here};
  }
  const Env env;
  Cluster cluster;
  Process &home, &reader;
  const uint64_t before;
  const Export exported;
  const Import import;
};

TEST_SUITE("sparse") {
  TEST_CASE("of_an_import_that_is_larger_than_the_machine_a_part_is_cached") {
    Scene s(kLarge);
    const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * kPage;
    const Answer cached = cache_of(s.reader, s.import.seg);
    REQUIRE(cached.ok());
    CHECK((cached.at() < kLarge) == (memory < kLarge));
    CHECK(cached.at() >= kMiB);
    (void)s.load_of(kLarge - kPage, 0);
    // What the client says counts.
    REQUIRE(set_cache(s.reader, s.import.seg, 32 * kMiB).ok());
    CHECK(cache_of(s.reader, s.import.seg).at() == 32 * kMiB);
  }

  TEST_CASE("a_miss_in_a_segment_of_1_TiB_is_the_work_of_one_in_a_segment_of_1_MiB") {
    Scene small(kMiB), large(kLarge);
    uint64_t value = 0;
    // Of a page that is absent, in a region that is not held yet, and in one that is.
    for (const uint64_t behind : {3, 7, 11}) {
      CAPTURE(behind);
      ++value;
      const auto missed = [&](const Scene& s) {
        const uint64_t offset = s.exported.size - behind * kPage;
        REQUIRE(store(s.home, s.exported.at + offset, value).cause() == Fault::kNone);
        return s.load_of(offset, value);
      };
      const Work in_small = missed(small), in_large = missed(large);
      CHECK(in_large.reader == in_small.reader);
      // The large one is protected region by region, where the small one is looked at again.
      CHECK(in_large.home.scans == 0);
      CHECK(in_large.home.protections == in_small.home.scans + in_small.home.protections);
      CHECK(in_large.home.protected_pages <= kRegionPages);
      CHECK(in_large.home.others == in_small.home.others);
      if (value > 1) CHECK(in_large.home == KernelWork{});
    }
    if (!kernel_notes_stores()) return;
    // A region's page table in each of two views, and what leads there.
    if (!kSanitized) CHECK(large.grown() <= small.grown() + 128);
  }

  TEST_CASE("the_first_store_to_each_region_of_a_segment_of_1_TiB_takes_one_message") {
    constexpr uint64_t kStores = 8;
    for (const auto& [faults, messages] :
         {std::pair{std::string(kNoTimer), kStores},
          {kNoTimer + std::string(";no_acquire_fetch=fail"), 2 * kStores}}) {
      CAPTURE(faults);
      Scene s(kLarge, faults);
      const std::string passages = s.cluster.scratch() + "/passages";
      Env env = s.env;
      env.emplace_back("CMI_FAULT_COUNT", passages);
      Process& writer = s.cluster.spawn("writer", env);
      const Import import = import_segment(writer, s.exported);
      const auto answers = [&] { return read_passages(passages)["link_reply_before_answer"]; };
      REQUIRE(store(writer, import.at, 1).cause() == Fault::kNone);  // presents the token
      const uint64_t before = answers();
      for (uint64_t i = 1; i <= kStores; ++i) {
        REQUIRE(store(writer, import.at + i * kLarge / 16, i).cause() == Fault::kNone);
      }
      CHECK(answers() - before == messages);
      REQUIRE(wmb(writer).ok());
      for (uint64_t i = 1; i <= kStores; ++i) {
        CHECK(load(s.home, s.exported.at + i * kLarge / 16).value == i);
      }
    }
  }

  // Its first page in each region, and another one: both come by a message.
  PROCESS_CASE("a_page_that_nobody_has_stored_to_takes_no_memory_at_home_when_it_is_missed") {
    constexpr uint64_t kRegions = 8, kBeside = 37 * kPage;
    Scene s(kLarge);
    const auto at = [](uint64_t i) { return (i + 1) * (kLarge / 16); };
    const auto taken = [&] { return resident(s.home.pid(), s.exported.at); };
    const uint64_t before = taken();
    for (uint64_t i = 0; i < kRegions; ++i) {
      REQUIRE(store(s.reader, s.import.at + at(i), i + 1).cause() == Fault::kNone);
      REQUIRE(store(s.reader, s.import.at + at(i) + kBeside, i + 2).cause() == Fault::kNone);
    }
    CHECK(taken() == before);
    REQUIRE(wmb(s.reader).ok());
    CHECK(taken() == before + 2 * kRegions);
    // Where one of the region has been stored to by then, the others are read as they are.
    Process& other = s.cluster.spawn("other", s.env);
    const Import import = import_segment(other, s.exported);
    for (uint64_t i = 0; i < kRegions; ++i) {
      CHECK(load(other, import.at + at(i)).value == i + 1);
      CHECK(load(other, import.at + at(i) + kBeside).value == i + 2);
      CHECK(load(s.home, s.exported.at + at(i) + kBeside).value == i + 2);
    }
  }

  PROCESS_CASE("the_memory_of_a_missed_page_is_mapped_while_its_home_is_asked") {
    Scene s(kLarge);
    REQUIRE(store(s.reader, s.import.at, 1).cause() == Fault::kNone);  // presents the token
    // By the message that claims the region, and by one in a region that is held.
    for (const uint64_t at : {kLarge / 2, kLarge / 2 + 37 * kPage}) {
      CAPTURE(at);
      const auto taken = [&] { return resident(s.reader.pid(), s.import.at); };
      const uint64_t before = taken();
      s.home.stop();
      auto stored = s.reader.start(
          [](uint64_t page) { return store64(page, 2).cause() == Fault::kNone; }, s.import.at + at);
      for (const Deadline end = Deadline::in(5 * kSecond); taken() == before && !end.passed();) {
        std::this_thread::yield();
      }
      CHECK(taken() == before + 1);
      s.home.signal(SIGCONT);
      CHECK(stored.get(20));
    }
  }

  TEST_CASE("in_a_segment_of_1_TiB_what_is_stored_at_home_is_published_and_nothing_else") {
    Scene s(kLarge, "");
    constexpr uint64_t kApart = 100 * kMiB;  // of other regions
    constexpr uint64_t kPages = 8;
    const auto at = [](uint64_t i) { return kLarge / 2 + i * kApart; };
    for (uint64_t i = 0; i < kPages; ++i) REQUIRE(load(s.reader, s.import.at + at(i)).value == 0);
    const auto misses = [&s] { return s.reader.run([] { return stats().load_misses; }); };
    const uint64_t before = misses();
    // By the barrier, and by the timer.
    REQUIRE(publish(s.home, s.exported.at + at(3), 5));
    CHECK(load(s.reader, s.import.at + at(3)).value == 5);
    REQUIRE(store(s.home, s.exported.at + at(6), 7).cause() == Fault::kNone);
    CHECK(load_until(s.reader, s.import.at + at(6), 7) == 7);
    for (uint64_t i = 0; i < kPages; ++i) {
      CHECK(load(s.reader, s.import.at + at(i)).cause() == Fault::kNone);
      // Loads at home are no stores.
      CHECK(load(s.home, s.exported.at + at(i) + kPage).cause() == Fault::kNone);
    }
    REQUIRE(wmb(s.home).ok());
    for (uint64_t i = 0; i < kPages; ++i) {
      CHECK(load(s.reader, s.import.at + at(i)).cause() == Fault::kNone);
    }
    CHECK(misses() == before + 2);
  }

  TEST_CASE("what_takes_all_pages_of_an_import_of_1_TiB_out_of_use_touches_what_was_used") {
    for (const bool by_end : {false, true}) {
      CAPTURE(by_end);
      Scene s(kLarge);
      for (const uint64_t at : {kLarge / 3, kLarge / 2, kLarge - kPage}) {
        REQUIRE(store(s.home, s.exported.at + at / kPage * kPage, at).cause() == Fault::kNone);
        REQUIRE(load(s.reader, s.import.at + at / kPage * kPage).value == at);
      }
      const uint64_t before = memory_of(s.reader);
      if (by_end) {
        REQUIRE(seg_dt(s.reader, s.import.seg, s.import.at).ok());
        REQUIRE(seg_rm(s.reader, s.import.seg).ok());
      } else {
        REQUIRE(tok_del(s.home, s.exported.token).ok());
        CHECK(load(s.reader, s.import.at).cause() == CMI_ERROR_TOKEN);
      }
      CHECK(memory_of(s.reader) <= before + 16 * 1024);
    }
  }

  TEST_CASE("what_takes_pages_out_of_use_one_by_one_touches_the_whole_table") {
    Scene s(kLarge / 128, std::string(kNoTimer) + ";all_touched=fail");
    REQUIRE(load(s.reader, s.import.at).value == 0);
    const uint64_t before = memory_of(s.reader);
    REQUIRE(tok_del(s.home, s.exported.token).ok());
    CHECK(load(s.reader, s.import.at).cause() == CMI_ERROR_TOKEN);
    CHECK(memory_of(s.reader) > before + 16 * 1024);
  }

  TEST_CASE("a_process_that_attaches_a_segment_of_1_TiB_late_has_its_stores_published") {
    Scene s(kLarge, "");
    constexpr uint64_t kAt = kLarge / 3 / kMiB * kMiB;
    REQUIRE(load(s.reader, s.import.at + kAt).value == 0);
    REQUIRE(load(s.reader, s.import.at + kAt + kPage).value == 0);
    const auto misses = [&s] { return s.reader.run([] { return stats().load_misses; }); };
    const uint64_t before = misses();
    Process& neighbour = s.cluster.spawn("home", s.env);
    const uint64_t view = seg_at(neighbour, s.exported.seg).at();
    REQUIRE(load(neighbour, view + kAt).value == 0);
    REQUIRE(wmb(neighbour).ok());
    REQUIRE(store(neighbour, view + kAt, 9).cause() == Fault::kNone);
    CHECK(load_until(s.reader, s.import.at + kAt, 9) == 9);
    REQUIRE(publish(neighbour, view + kAt, 10));
    CHECK(load(s.reader, s.import.at + kAt).value == 10);
    // What nobody has stored to is published neither by the attachment nor by loads.
    CHECK(load(s.reader, s.import.at + kAt + kPage).value == 0);
    CHECK(misses() == before + 2);
  }
}

}  // namespace

}  // namespace cmi::test::sparse_nodes_test

// More dirty pages than should be under way at once: what is sent waits for answers.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>

#include <vector>

#include "system/calls.hpp"

namespace cmi::test::back_pressure_nodes_test {

namespace {

constexpr uint64_t kPages = 8192;  // one byte in two of each: some 12 fit into a message
constexpr uint64_t kMessages = 600;
// Those of a barrier and those of the timer, each with the last run of pages that it looks at.
constexpr uint64_t kMostUnanswered = 256;

struct Counts {
  bool good;
  uint64_t messages, most_unanswered;
};

// Changes half of the bytes of each page, with a barrier at the end.
Counts store_stripes(Process& process, uint64_t at, uint64_t value) {
  return process
      .start(
          [](uint64_t view, uint64_t to) {
            auto* words = reinterpret_cast<volatile uint64_t*>(view);
            // Cached first: what the home is slow to answer does not slow down the stores then.
            for (uint64_t p = 0; p < kPages; ++p) (void)words[p * kPage / 8];
            for (uint64_t i = 0; i < kPages * kPage / 8; ++i) words[i] = to * 0x0001000100010001;
            const bool good = CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0;
            cmi_ofi_stats stats{};
            stats.size = sizeof stats;
            if (::cmi_ofi_get_stats(ctxt(), &stats) != 0) return Counts{};
            return Counts{good, stats.publications, stats.most_unanswered};
          },
          at, value)
      .get(60);
}

uint64_t count_wrong(Process& process, uint64_t at, uint64_t value) {
  return process
      .start(
          [](uint64_t view, uint64_t want) {
            auto* words = reinterpret_cast<volatile uint64_t*>(view);
            uint64_t wrong = 0;
            for (uint64_t i = 0; i < kPages * kPage / 8; ++i) {
              wrong += words[i] != want * 0x0001000100010001;
            }
            return wrong;
          },
          at, value)
      .get(60);
}

// A home that takes its time for each answer, so that whoever does not wait is far ahead of it.
struct Flood {
  explicit Flood(const char* fault_point = "")
      : importer(cluster.spawn("importer", {{"CMI_FAULT_POINT", fault_point}})) {}
  Cluster cluster;
  Process& home = cluster.spawn("home", {{"CMI_FAULT_POINT", "server_before_reply=delay:3000"}});
  Process& importer;
  // Client-consistent: stores do not wait for the slow home, page by page.
  Export exported = export_segment(home, kPages* kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
  Import import = import_segment(importer, exported);
};

TEST_SUITE("back-pressure") {
  TEST_CASE("a_flood_of_dirty_pages_waits_for_answers") {
    Flood flood;
    const Counts counts = store_stripes(flood.importer, flood.import.at, 1);
    CHECK(counts.good);
    CHECK(counts.messages >= kMessages);
    CHECK(counts.most_unanswered <= kMostUnanswered);
    CHECK(count_wrong(flood.home, flood.exported.at, 1) == 0);
  }

  TEST_CASE("a_flood_that_waits_for_nothing_is_seen") {
    Flood flood("collector_never_full=fail");
    const Counts counts = store_stripes(flood.importer, flood.import.at, 1);
    CHECK(counts.good);
    CHECK(counts.most_unanswered > kMostUnanswered);
    CHECK(count_wrong(flood.home, flood.exported.at, 1) == 0);
  }

  TEST_CASE("the_end_of_a_context_writes_everything_back_as_long_as_the_home_answers") {
    // Longer in all than it waits for one answer.
    Cluster cluster;
    Process& home = cluster.spawn("home", {{"CMI_FAULT_POINT", "server_before_reply=delay:5000"}});
    Process& importer = cluster.spawn("importer", {{"CMI_FAULT_POINT", "no_aging=fail"}});
    const Export exported =
        export_segment(home, kPages * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
    const Import import = import_segment(importer, exported);
    const bool good = importer
                          .start(
                              [](uint64_t at) {
                                auto* words = reinterpret_cast<volatile uint64_t*>(at);
                                for (uint64_t p = 0; p < kPages; ++p) (void)words[p * kPage / 8];
                                for (uint64_t i = 0; i < kPages * kPage / 8; ++i) {
                                  words[i] = 0x0001000100010001;
                                }
                                return finish_context().ok();
                              },
                              import.at)
                          .get(60);
    CHECK(good);
    CHECK(count_wrong(home, exported.at, 1) == 0);
  }

  TEST_CASE("first_stores_for_which_there_is_no_memory_publish_others_before_them") {
    constexpr uint64_t kUsed = 3072, kTwins = 1024;  // a quarter of CMI_MEM_MAX
    Cluster cluster;
    Process& home = cluster.spawn("home");
    // Nothing else publishes: neither the timer, nor threads that store in order.
    Process& importer = cluster.spawn(
        "importer",
        {{"CMI_MEM_MAX", "16M"}, {"CMI_FAULT_POINT", "no_aging=fail;no_write_behind=fail"}});
    for (const int32_t flags : {0, CMI_SEG_CLIENT_CONSIST}) {
      CAPTURE(flags);
      const Export exported = export_segment(home, kUsed * kPage, kAllRights, flags);
      const Import import = import_segment(importer, exported);
      const auto store_all = [&](uint64_t pages, uint64_t times, bool barriers) {
        return importer
            .start(
                [](uint64_t at, uint64_t to, uint64_t rounds, bool publishes) {
                  const uint64_t before = stats().twins_short;
                  uint64_t failed = 0;
                  for (uint64_t round = 0; round < rounds; ++round) {
                    for (uint64_t p = to; p-- > 0;) {
                      failed += store64(at + p * kPage, p + 1 + round).cause() != Fault::kNone;
                    }
                    if (publishes) failed += ::cmi_wmb() != 0;
                  }
                  return Counts{failed == 0, 0, stats().twins_short - before};
                },
                import.at, pages, times, barriers)
            .get(60);
      };
      const Counts many = store_all(kUsed, 1, false);
      CHECK(many.good);
      CHECK(many.most_unanswered >= 2);
      CHECK(many.most_unanswered <= 2 * (kUsed - kTwins) / 256);
      // Those of a working set that is stored to again after each barrier are all in use.
      const Counts hot = store_all(kTwins, 3, true);
      CHECK(hot.good);
      const Counts beside = store_all(kUsed, 1, true);
      CHECK(beside.good);
      CHECK(beside.most_unanswered >= 2);
      const uint64_t wrong = home.run(
          [](uint64_t at) {
            uint64_t count = 0;
            for (uint64_t p = 0; p < kUsed; ++p) count += load64(at + p * kPage).value != p + 1;
            return count;
          },
          exported.at);
      CHECK(wrong == 0);
      REQUIRE(seg_dt(importer, import.seg, import.at).ok());
      REQUIRE(seg_rm(importer, import.seg).ok());
    }
  }

  TEST_CASE("cflush_of_many_pages_packs_them") {
    constexpr uint64_t kNamed = 512;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    // On a machine that is overloaded the timer would send them one by one before.
    Process& importer = cluster.spawn("importer", {{"CMI_FAULT_POINT", "no_aging=fail"}});
    const Export exported = export_segment(home, kNamed * kPage);
    const Import import = import_segment(importer, exported);
    const Counts counts = importer.run(
        [](uint64_t at) {
          std::vector<void*> named;
          for (uint64_t p = 0; p < kNamed; ++p) {
            // Backwards, and each twice.
            const uint64_t word = at + (kNamed - 1 - p) * kPage;
            store64(word, p + 1);
            named.insert(named.end(), 2, reinterpret_cast<void*>(word));
          }
          const int result =
              CMIFN(ctxt(), 10, cflush)(ctxt(), named.data(), static_cast<int32_t>(named.size()));
          cmi_ofi_stats stats{};
          stats.size = sizeof stats;
          const bool known = ::cmi_ofi_get_stats(ctxt(), &stats) == 0;
          return Counts{result == 0 && known, stats.publications, stats.most_unanswered};
        },
        import.at);
    CHECK(counts.good);
    CHECK(counts.messages < kNamed / 4);
    const uint64_t wrong = home.run(
        [](uint64_t at) {
          uint64_t count = 0;
          for (uint64_t p = 0; p < kNamed; ++p) {
            count += load64(at + p * kPage).value != kNamed - p;
          }
          return count;
        },
        exported.at);
    CHECK(wrong == 0);
  }
}

}  // namespace

}  // namespace cmi::test::back_pressure_nodes_test

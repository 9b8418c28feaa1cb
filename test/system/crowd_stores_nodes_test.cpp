// Many importers that store to words of the same pages and publish them all the time: each barrier
// has all of them drop those pages. A home that is behind sends each of them one notification with
// all that is new, instead of one for each barrier (protocol.md, rule 14).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "system/calls.hpp"
#include "system/cmiadm.hpp"

namespace cmi::test::crowd_stores_nodes_test {

namespace {

constexpr uint64_t kPages = 8, kWords = kPages * kPage / sizeof(uint64_t);
constexpr uint64_t kBarriers = 20;
constexpr int kWait = 280;  // seconds, of all barriers

uint64_t value_of(uint64_t importer, uint64_t round) { return (importer + 1) * 1000 + round; }

// What has gone wrong in one importer.
struct Storing {
  uint64_t failed_stores = 0, failed_barriers = 0;
  int cause = Fault::kNone;  // of the last store that failed
  int error = 0;             // of the last barrier that failed
};

// What the home has counted of the segment.
struct Counted {
  uint64_t publications = 0, notifications = 0;
};
Counted counted(const Cluster& cluster, const Process& home, const Export& exported) {
  const Ran ran = cmiadm(cluster, {"top", "--json", "--wait", "20"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Value all = parse_json(ran.out);
  const Value* const context = all["contexts"].find("pid", static_cast<uint64_t>(home.pid()));
  REQUIRE(context != nullptr);
  const Value* const segment = (*context)["homes"].find("id", static_cast<uint64_t>(exported.seg));
  REQUIRE(segment != nullptr);
  return {(*segment)["publications"].number, (*segment)["notifications"].number};
}

// So many importers, each on a node of its own, store to their words of all pages, every `count`th
// one, and call a barrier, 20 times. At most `most` notifications are sent for each publication.
void crowd(uint64_t count, uint64_t most) {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  const Export exported = export_segment(home, kPages * kPage);
  std::vector<Process*> importers;
  std::vector<Import> imports;
  for (uint64_t i = 0; i < count; ++i) {
    importers.push_back(&cluster.spawn("importer" + std::to_string(i)));
    imports.push_back(import_segment(*importers.back(), exported));
    for (uint64_t page = 0; page < kPages; ++page) {
      REQUIRE(load(*importers.back(), imports.back().at + page * kPage).cause() == Fault::kNone);
    }
  }
  const Counted before = counted(cluster, home, exported);
  std::vector<Pending<Storing>> storing;
  for (uint64_t i = 0; i < count; ++i) {
    storing.push_back(importers[i]->start(
        [](uint64_t at, uint64_t importer, uint64_t step) {
          Storing s;
          for (uint64_t round = 1; round <= kBarriers; ++round) {
            for (uint64_t word = importer; word < kWords; word += step) {
              const uint64_t to = at + word * sizeof(uint64_t);
              const int cause = store64(to, value_of(importer, round)).cause();
              if (cause == Fault::kNone) continue;
              ++s.failed_stores;
              s.cause = cause;
            }
            if (cmi_wmb() == 0) continue;
            ++s.failed_barriers;
            s.error = static_cast<int>(cmi_get_error(ctxt()));
          }
          return s;
        },
        imports[i].at, i, count));
  }
  for (uint64_t i = 0; i < count; ++i) {
    CAPTURE(i);
    const Storing s = storing[i].get(kWait);
    CHECK(s.failed_stores == 0);
    CHECK(s.cause == Fault::kNone);
    CHECK(s.failed_barriers == 0);
    CHECK(s.error == 0);
  }
  const uint64_t wrong = home.run(
      [](uint64_t at, uint64_t step) {
        uint64_t bad = 0;
        for (uint64_t word = 0; word < kWords; ++word) {
          const Access got = load64(at + word * sizeof(uint64_t));
          if (got.cause() != Fault::kNone || got.value != value_of(word % step, kBarriers)) ++bad;
        }
        return bad;
      },
      exported.at, count);
  CHECK(wrong == 0);
  const Counted after = counted(cluster, home, exported);
  const uint64_t sent = after.notifications - before.notifications;
  const uint64_t publications = after.publications - before.publications;
  MESSAGE(publications, " publications, ", sent, " notifications, ", count * kBarriers,
          " barriers");
  CHECK(publications > 0);
  CHECK(sent <= most * publications);
}

TEST_SUITE("crowd") {
  TEST_CASE("sixty_importers_that_store_to_the_same_pages_are_sent_what_is_new_together") {
    crowd(60, 2);
  }
}

}  // namespace

}  // namespace cmi::test::crowd_stores_nodes_test

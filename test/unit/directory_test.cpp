// The directory by region: who is told of what, and that letting go and coming back do not cross.
#include "core/memory/page/directory.hpp"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace cmi::memory {

namespace {

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

Pairs pairs(const std::vector<PageRange>& ranges) {
  Pairs out;
  for (auto& r : ranges) out.emplace_back(r.first, r.count);
  return out;
}

TEST_SUITE("regions") {
  TEST_CASE("a_region_is_held_from_the_grant_on") {
    ImportRegions regions(4);
    regions.enter(2);
    CHECK(!regions.shared(2));
    regions.claim(2, 7);
    CHECK(!regions.shared(2));
    regions.granted(2);
    CHECK(regions.shared(2));
    CHECK(!regions.shared(1));
    regions.leave(2);
    CHECK(regions.shared(2));
  }

  TEST_CASE("a_region_with_a_page_is_not_let_go_of") {
    ImportRegions regions(1);
    regions.enter(0);
    regions.enter(0);
    regions.claim(0, 9);
    regions.granted(0);
    uint32_t epoch = 0;
    CHECK(!regions.release(0, &epoch));
    regions.leave(0);
    CHECK(!regions.release(0, &epoch));
    CHECK(regions.shared(0));
    regions.leave(0);
    CHECK(regions.release(0, &epoch));
    CHECK(epoch == 9);
    CHECK(!regions.shared(0));
    // A notification that comes again is told the same.
    CHECK(regions.release(0, &epoch));
    CHECK(epoch == 9);
  }

  TEST_CASE("the_largest_epoch_survives_beside_the_entries") {
    ImportRegions regions(1);
    regions.enter(0);
    regions.claim(0, kMaxEpoch);
    regions.granted(0);
    regions.leave(0);
    uint32_t epoch = 0;
    CHECK(regions.release(0, &epoch));
    CHECK(epoch == kMaxEpoch);
  }

  TEST_CASE("the_directory_tells_what_anybody_holds") {
    Directory directory;
    SharedRegions a, b;
    CHECK(directory.shared(5000).empty());
    CHECK(pairs(directory.hold(a, 1, 2, 1, 5000)) == Pairs{{512, 1024}});
    CHECK(directory.hold(b, 2, 1, 1, 5000).empty());
    CHECK(pairs(directory.hold(b, 9, 1, 2, 5000)) == Pairs{{4608, 392}});
    CHECK(pairs(directory.shared(5000)) == Pairs{{512, 1024}, {4608, 392}});
    directory.drop_all(a);
    CHECK(a.empty());
    CHECK(pairs(directory.shared(5000)) == Pairs{{1024, 512}, {4608, 392}});
    directory.drop(b, 2, 1);
    directory.drop(b, 9, 2);
    CHECK(directory.shared(5000).empty());
  }

  TEST_CASE("an_acknowledgement_of_an_earlier_time_drops_nothing") {
    Directory directory;
    SharedRegions a;
    directory.hold(a, 3, 1, 1, 5000);
    directory.hold(a, 3, 1, 2,
                   5000);  // let go of and back, the acknowledgement is still on its way
    directory.drop(a, 3, 1);
    CHECK(pairs(directory.shared(5000)) == Pairs{{1536, 512}});
    directory.drop(a, 4, 2);  // never held
    directory.drop(a, 3, 2);
    CHECK(directory.shared(5000).empty());
    directory.drop(a, 3, 2);
    CHECK(directory.shared(5000).empty());
  }

  TEST_CASE("a_holder_is_told_of_its_own_regions_alone") {
    Directory directory;
    SharedRegions a;
    directory.hold(a, 0, 1, 1, 5000);
    directory.hold(a, 2, 2, 2, 5000);
    CHECK(pairs(Directory::shared_of(a, {{0, 5000}})) == Pairs{{0, 512}, {1024, 1024}});
    CHECK(pairs(Directory::shared_of(a, {{511, 2}})) == Pairs{{511, 1}});
    CHECK(pairs(Directory::shared_of(a, {{600, 3}, {4000, 1}})).empty());
    CHECK(pairs(Directory::shared_of(a, {{1500, 100}})) == Pairs{{1500, 100}});
    CHECK(pairs(Directory::shared_of(a, {{2000, 100}, {5, 1}})) == Pairs{{2000, 48}, {5, 1}});
  }
}

}  // namespace

}  // namespace cmi::memory

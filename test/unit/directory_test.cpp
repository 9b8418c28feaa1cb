// The directory by region: who is told of what, and that letting go and coming back do not cross.
#include "core/memory/page/directory.hpp"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "core/memory/page/page.hpp"

namespace cmi::memory::directory_test {

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

  TEST_CASE("a_region_with_a_page_is_not_released") {
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
    CHECK(pairs(directory.acquire(a, 1, 2, 1, 5000, 1)) == Pairs{{512, 1024}});
    CHECK(directory.acquire(b, 2, 1, 1, 5000, 1).empty());
    CHECK(pairs(directory.acquire(b, 9, 1, 2, 5000, 1)) == Pairs{{4608, 392}});
    CHECK(pairs(directory.shared(5000)) == Pairs{{512, 1024}, {4608, 392}});
    directory.drop_all(a);
    CHECK(a.empty());
    CHECK(pairs(directory.shared(5000)) == Pairs{{1024, 512}, {4608, 392}});
    directory.drop(b, 2, 1);
    directory.drop(b, 9, 2);
    CHECK(directory.shared(5000).empty());
  }

  TEST_CASE("the_directory_is_gone_through_in_parts") {
    Directory directory;
    SharedRegions a;
    directory.acquire(a, 1, 3, 1, 5000, 1);
    directory.acquire(a, 7, 1, 1, 5000, 1);
    directory.acquire(a, 9, 1, 1, 5000, 1);
    uint32_t next = 0;
    CHECK(pairs(directory.shared(5000, 0, 1024, &next)) == Pairs{{512, 1024}});
    REQUIRE(next == 1536);
    CHECK(pairs(directory.shared(5000, next, 1535, &next)) == Pairs{{1536, 512}, {3584, 512}});
    REQUIRE(next == 4608);
    CHECK(pairs(directory.shared(5000, next, 1, &next)) == Pairs{{4608, 392}});
    CHECK(next == kNoPage);
    CHECK(directory.shared(5000, 4999, 512, &next).size() == 1);  // of its whole region
    directory.drop(a, 9, 1);
    CHECK(directory.shared(5000, 4608, 512, &next).empty());
    CHECK(next == kNoPage);
  }

  TEST_CASE("an_acknowledgement_of_an_earlier_time_drops_nothing") {
    Directory directory;
    SharedRegions a;
    directory.acquire(a, 3, 1, 1, 5000, 1);
    directory.acquire(a, 3, 1, 2, 5000,
                      1);  // let go of and back, the acknowledgement is still on its way
    directory.drop(a, 3, 1);
    CHECK(pairs(directory.shared(5000)) == Pairs{{1536, 512}});
    directory.drop(a, 4, 2);  // never held
    directory.drop(a, 3, 2);
    CHECK(directory.shared(5000).empty());
    directory.drop(a, 3, 2);
    CHECK(directory.shared(5000).empty());
  }

  TEST_CASE("a_sharer_is_notified_of_its_own_regions_alone") {
    Directory directory;
    SharedRegions a;
    directory.acquire(a, 0, 1, 1, 5000, 1);
    directory.acquire(a, 2, 2, 2, 5000, 1);
    CHECK(pairs(a.of({{0, 5000}})) == Pairs{{0, 512}, {1024, 1024}});
    CHECK(pairs(a.of({{511, 2}})) == Pairs{{511, 1}});
    CHECK(pairs(a.of({{600, 3}, {4000, 1}})).empty());
    CHECK(pairs(a.of({{1500, 100}})) == Pairs{{1500, 100}});
    CHECK(pairs(a.of({{2000, 100}, {5, 1}})) == Pairs{{2000, 48}, {5, 1}});
  }

  TEST_CASE("a_released_page_is_not_notified_until_it_enters_again") {
    SharedRegions a;
    a.acquire(1, 1, 10);
    a.release(600, 10);
    CHECK(a.refined() == 1);
    CHECK_FALSE(a.may_have(600));
    CHECK(a.may_have(599));
    CHECK(a.may_have(601));
    CHECK_FALSE(a.may_have(88));  // of a region that is not held
    CHECK(pairs(a.of({{600, 1}})).empty());
    CHECK(pairs(a.of({{600, 3}})) == Pairs{{601, 2}});
    CHECK(pairs(a.of({{598, 3}})) == Pairs{{598, 2}});
    CHECK(pairs(a.of({{598, 5}})) == Pairs{{598, 5}});  // one range, though not all may be there
    a.enter({599, 3}, 11);
    CHECK(a.may_have(600));
    CHECK(pairs(a.of({{600, 1}})) == Pairs{{600, 1}});
  }

  TEST_CASE("a_release_of_before_the_page_entered_does_nothing") {
    SharedRegions a;
    a.acquire(0, 1, 10);
    a.release(7, 9);  // of an earlier time of the region
    CHECK(a.may_have(7));
    CHECK(a.refined() == 0);
    a.enter({7, 1}, 20);  // nothing of the region is released yet: all its pages enter
    a.release(7, 19);
    a.release(8, 19);
    CHECK(a.may_have(7));
    CHECK(a.may_have(8));
    a.release(7, 20);
    CHECK_FALSE(a.may_have(7));
    a.release(8, 20);
    a.enter({7, 1}, 30);
    a.release(7, 29);  // late, or a copy
    CHECK(a.may_have(7));
    CHECK_FALSE(a.may_have(8));
    a.release(7, 30);
    CHECK_FALSE(a.may_have(7));
  }

  TEST_CASE("a_region_that_is_held_anew_has_all_of_its_pages") {
    SharedRegions a;
    a.acquire(0, 1, 10);
    a.release(7, 10);
    CHECK_FALSE(a.acquire(0, 2, 40));  // the acknowledgement that drops it is on its way
    CHECK(a.may_have(7));
    CHECK(a.refined() == 0);
    CHECK_FALSE(a.drop(0, 1));
    a.release(7, 39);
    CHECK(a.may_have(7));
    a.release(7, 40);
    CHECK_FALSE(a.may_have(7));
    CHECK(a.drop(0, 2));
    CHECK(a.refined() == 0);
    CHECK(a.empty());
    a.release(7, 50);
    a.enter({7, 1}, 50);
    CHECK(a.empty());
    CHECK(a.acquire(0, 3, 50));
    CHECK(a.may_have(7));
  }

  TEST_CASE("the_memory_for_released_pages_of_a_sharer_is_bounded") {
    SharedRegions a;
    for (uint32_t r = 0; r <= SharedRegions::kMaxRefined; ++r) {
      a.acquire(r, 1, 1);
      a.release(r * kRegionPages, 1);
    }
    const auto last = static_cast<uint32_t>(SharedRegions::kMaxRefined) * kRegionPages;
    CHECK(a.refined() == SharedRegions::kMaxRefined);
    CHECK_FALSE(a.may_have(0));
    CHECK(a.may_have(last));
    CHECK(a.drop(5, 1));  // makes room
    a.release(last, 1);
    CHECK_FALSE(a.may_have(last));
    size_t regions = 0;
    a.clear([&](uint32_t) { ++regions; });
    CHECK(regions == SharedRegions::kMaxRefined);
    CHECK(a.refined() == 0);
  }
}

}  // namespace

}  // namespace cmi::memory::directory_test

// Invalidation rounds of a home whose sharers are behind: what goes out, what waits, and what ends
// a wait. No client has a session, so nothing is received: answers are given by hand.
#include "core/memory/home/rounds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/fault_point.hpp"
#include "fabric/fake/fake.hpp"
#include "unit/deaf_home.hpp"

namespace cmi::test::rounds_test {
using namespace cmi::memory;
using test::Deaf;
using test::NoWatch;

namespace {

// A home of one segment of 16 pages with so many sharers, all of which may have any of its pages.
struct Scene {
  explicit Scene(size_t sharers) {
    auto opened = fabric::Server::open(*fabric, ContextId{99, 99}, deaf);
    REQUIRE(opened);
    server = opened.take();
    rounds.emplace(segments, shared, *server, watch);
    SegmentFacts facts;
    facts.id = 1;
    facts.uid = kUid;
    facts.size = 16 * kPageSize;
    facts.owned = true;
    segment = segments.add(facts);
    for (size_t i = 1; i <= sharers; ++i) {
      Sharer* const h = segment->sharers.add({client(i), NodeId{}, 1, false});
      h->token = 1;
      segment->directory.acquire(h->regions, 0, 1, 1, segment->pages(), 1);
    }
  }

  static constexpr uint64_t kUid = 7;
  static ContextId client(size_t i) { return {i, i}; }
  static SharerKey key(size_t i) { return {client(i), kUid, 1}; }
  // The i-th sharer has stored to the page. The flag becomes true when its round is over.
  std::shared_ptr<bool> publish(size_t i, uint32_t page) {
    const RoundPtr p = rounds->publish(*segment, client(i), 1, {{page, 1}});
    REQUIRE(p != nullptr);
    auto over = std::make_shared<bool>(false);
    p->finished = [over] { *over = true; };
    return over;
  }
  // Those that the i-th sharer has not acknowledged, the oldest first.
  std::vector<uint64_t> pending(size_t i) {
    return rounds->table().matching([&](const Notification& n) { return n.client == client(i); });
  }
  std::vector<uint32_t> pages_of(uint64_t number) {
    InvalidateNotification m;
    REQUIRE(decode(rounds->table().find(number)->payload, &m));
    std::vector<uint32_t> pages;
    const PageRangeList ranges = m.ranges();
    for (size_t k = 0; k < ranges.size(); ++k) {
      const PageRange r = ranges[k];
      for (uint32_t page = r.first; page < r.first + r.count; ++page) pages.push_back(page);
    }
    return pages;
  }
  void acknowledge(size_t i, uint64_t number) {
    Finished done;
    rounds->acknowledged(client(i), number, &done);
    run(done);
  }
  void all_acknowledge(size_t sharers) {
    for (size_t i = 1; i <= sharers; ++i) {
      while (!pending(i).empty()) acknowledge(i, pending(i).front());
    }
  }

  Deaf deaf;
  NoWatch watch;
  std::unique_ptr<fabric::Fabric> fabric = fabric::FakeNet::make({})->open();
  std::unique_ptr<fabric::Server> server;
  SegmentTable segments;
  SharedSegments shared;
  std::optional<InvalidationRounds> rounds;
  SegmentPtr segment;
};

constexpr size_t kCrowd = 12;

}  // namespace

TEST_CASE("rounds_of_a_crowd_are_merged_behind_the_one_under_way") {
  Scene s(kCrowd);
  std::vector<std::shared_ptr<bool>> over;
  for (size_t i = 1; i <= kCrowd; ++i) over.push_back(s.publish(i, static_cast<uint32_t>(i)));
  // Of 12 times 11 notifications, those of the first publication and one to its publisher are sent.
  CHECK(s.segment->counts.notifications == kCrowd);
  for (size_t i = 2; i <= kCrowd; ++i) {
    REQUIRE(s.pending(i).size() == 1);
    CHECK(s.pages_of(s.pending(i).front()) == std::vector<uint32_t>{1});
  }
  CHECK(s.pages_of(s.pending(1).front()) == std::vector<uint32_t>{2});
  s.all_acknowledge(kCrowd);
  CHECK(std::all_of(over.begin(), over.end(), [](const auto& o) { return *o; }));
  // And one more to each with all the rest.
  CHECK(s.segment->counts.notifications == 2 * kCrowd);
  CHECK(s.segment->counts.publications == kCrowd);
}

TEST_CASE("what_goes_out_later_names_each_page_once_and_none_of_the_sharers_own_alone") {
  Scene s(kCrowd);
  s.publish(1, 1);
  s.publish(2, 5);
  s.publish(3, 5);
  s.publish(4, 9);
  s.acknowledge(2, s.pending(2).front());
  REQUIRE(s.pending(2).size() == 1);
  CHECK(s.pages_of(s.pending(2).front()) == std::vector<uint32_t>{5, 9});
  s.acknowledge(4, s.pending(4).front());
  CHECK(s.pages_of(s.pending(4).front()) == std::vector<uint32_t>{5});
  s.acknowledge(5, s.pending(5).front());
  CHECK(s.pages_of(s.pending(5).front()) == std::vector<uint32_t>{5, 9});
}

// The acknowledgement of the notification before says nothing of what was published behind it.
TEST_CASE("a_round_that_waits_is_over_when_what_was_sent_behind_its_data_is_acknowledged") {
  for (const bool broken : {false, true}) {
    CAPTURE(broken);
    if (broken) {
      setenv("CMI_FAULT_POINT", "mutate_waiting_counts_as_notified=fail", 1);
      arm_fault_points();
    }
    Scene s(kCrowd);
    const auto first = s.publish(1, 1), second = s.publish(2, 2);
    for (size_t i = 1; i <= kCrowd; ++i) {
      if (!s.pending(i).empty()) s.acknowledge(i, s.pending(i).front());
    }
    CHECK(*first);
    CHECK(*second == broken);
    CHECK(s.pending(1).empty());
    for (size_t i = 3; i <= kCrowd; ++i) {
      REQUIRE(s.pending(i).size() == 1);
      CHECK(s.pages_of(s.pending(i).front()) == std::vector<uint32_t>{2});
    }
    s.all_acknowledge(kCrowd);
    CHECK(*second);
    unsetenv("CMI_FAULT_POINT");
    arm_fault_points();
  }
}

TEST_CASE("four_invalidations_of_each_of_a_few_sharers_are_under_way") {
  Scene s(3);
  std::vector<std::shared_ptr<bool>> over;
  for (uint32_t page = 1; page <= 6; ++page) over.push_back(s.publish(1, page));
  CHECK(s.pending(2).size() == 4);
  s.acknowledge(2, s.pending(2).front());
  REQUIRE(s.pending(2).size() == 4);
  CHECK(s.pages_of(s.pending(2).back()) == std::vector<uint32_t>{5, 6});
  s.all_acknowledge(3);
  CHECK(std::all_of(over.begin(), over.end(), [](const auto& o) { return *o; }));
}

TEST_CASE("an_invalidation_of_a_page_that_the_answer_before_it_releases_is_not_sent") {
  Scene scene(3);
  SharedRegions& has = scene.segment->sharers.find(Scene::client(1), 1)->regions;
  const auto first = scene.publish(2, 4), second = scene.publish(3, 4), other = scene.publish(3, 5);
  // Of the second sharer and the third nothing is under way.
  scene.acknowledge(2, scene.pending(2).front());
  scene.acknowledge(2, scene.pending(2).front());
  scene.acknowledge(3, scene.pending(3).front());
  REQUIRE(scene.pending(1).size() == 1);
  const uint64_t number = scene.pending(1).front();
  SUBCASE("released") {
    has.release(4, number);
    scene.acknowledge(1, number);
    CHECK(*first);
    CHECK(!*second);  // the other page waits with it
    REQUIRE(scene.pending(1).size() == 1);
    CHECK(scene.pages_of(scene.pending(1).front()) == std::vector<uint32_t>{5});
    scene.acknowledge(1, scene.pending(1).front());
  }
  SUBCASE("released_and_entered_again") {
    has.release(4, number);
    has.enter({4, 1}, scene.rounds->table().next_number());
    scene.acknowledge(1, number);
    CHECK(!*second);
    REQUIRE(scene.pending(1).size() == 1);
    CHECK(scene.pages_of(scene.pending(1).front()) == std::vector<uint32_t>{4, 5});
    scene.acknowledge(1, scene.pending(1).front());
  }
  SUBCASE("all_released") {
    has.release(4, number);
    has.release(5, number);
    scene.acknowledge(1, number);
  }
  CHECK(*first);
  CHECK(*second);
  CHECK(*other);
  CHECK(scene.pending(1).empty());
}

TEST_CASE("no_round_waits_for_a_sharer_that_has_left_or_whose_client_is_gone") {
  for (const bool client_gone : {false, true}) {
    CAPTURE(client_gone);
    Scene s(kCrowd);
    const auto first = s.publish(1, 1), second = s.publish(2, 2);
    Finished done;
    for (size_t i = 3; i <= kCrowd; ++i) {
      if (client_gone) s.rounds->forget(s.client(i), &done);
      if (!client_gone) s.rounds->forget(s.key(i), &done);
      CHECK(s.pending(i).empty());
    }
    run(done);
    CHECK(!*first);
    CHECK(!*second);
    s.all_acknowledge(2);
    CHECK(*first);
    CHECK(*second);
    CHECK(s.rounds->table().empty());
  }
}

TEST_CASE("what_waits_goes_out_and_no_more_waits_beside_a_list_of_pages_in_flux") {
  Scene s(kCrowd);
  s.publish(1, 1);
  const auto second = s.publish(2, 2);
  Sharer* const listed = s.segment->sharers.find(s.client(3), 1);
  const RoundPtr list = begin_round();
  s.rounds->notify_ranges(list, *s.segment, *listed, NotificationType::kInFlux, {{8, 1}});
  for (size_t i = 4; i <= kCrowd; ++i) CHECK(s.pending(i).size() == 2);
  CHECK(s.pending(3).size() == 3);
  // The receiver of the list owes its answer no sooner than its own publication is over, carried
  // though that is by another round.
  std::map<ContextId, Nanos> since;
  s.acknowledge(3, s.pending(3).front());
  s.acknowledge(3, s.pending(3).front());
  s.rounds->table().unacknowledged_since(&since, 10 * kSecond);
  CHECK(since.count(s.client(3)) == 1);
  const auto own = s.publish(3, 3);
  for (size_t i = 4; i <= kCrowd; ++i) CHECK(s.pending(i).size() == 3);
  since.clear();
  s.rounds->table().unacknowledged_since(&since, 10 * kSecond);
  CHECK(since.count(s.client(3)) == 0);
  s.all_acknowledge(kCrowd);
  CHECK(*second);
  CHECK(*own);
}

TEST_CASE("a_publication_that_was_carried_by_another_round_keeps_its_publisher_from_a_list") {
  Scene s(kCrowd);
  s.publish(1, 1);
  const auto waited = s.publish(2, 2);
  const RoundPtr list = begin_round();
  Sharer* const listed = s.segment->sharers.find(s.client(2), 1);
  s.rounds->notify_ranges(list, *s.segment, *listed, NotificationType::kInFlux, {{8, 1}});
  while (s.pending(2).size() > 1) s.acknowledge(2, s.pending(2).front());
  std::map<ContextId, Nanos> since;
  s.rounds->table().unacknowledged_since(&since, 10 * kSecond);
  CHECK(since.count(s.client(2)) == 0);
  for (size_t i = 1; i <= kCrowd; ++i) {
    while (i != 2 && !s.pending(i).empty()) s.acknowledge(i, s.pending(i).front());
  }
  CHECK(*waited);
  since.clear();
  s.rounds->table().unacknowledged_since(&since, 10 * kSecond);
  CHECK(since.count(s.client(2)) == 1);
}

TEST_CASE("the_end_of_a_home_waits_for_rounds_that_wait_and_for_those_that_are_carried") {
  Scene s(kCrowd);
  s.publish(1, 1);
  s.publish(2, 2);
  auto all = s.rounds->unanswered();
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  CHECK(all.size() == 2);
  for (size_t i = 1; i <= kCrowd; ++i) {
    if (!s.pending(i).empty()) s.acknowledge(i, s.pending(i).front());
  }
  all = s.rounds->unanswered();
  CHECK(!all.empty());
  s.all_acknowledge(kCrowd);
  CHECK(s.rounds->unanswered().empty());
}

// What waits for a sharer is kept as well: one that never answers is not waited for without end.
TEST_CASE("a_sharer_for_which_too_many_rounds_wait_owes_too_many") {
  Scene s(2);
  const auto owes_too_many = [&] {
    std::map<ContextId, Nanos> since;
    s.rounds->table().unacknowledged_since(&since, 10 * kSecond);
    return since.at(s.client(2)) == NotificationTable::kOwesTooMany;
  };
  // Four pages under way, and others that wait.
  for (uint32_t i = 0; i + 1 < kMaxNotifications; ++i) s.publish(1, i < 4 ? i : 4 + i % 8);
  CHECK(s.pending(2).size() == 4);
  CHECK(!owes_too_many());
  s.publish(1, 1);
  CHECK(owes_too_many());
  s.acknowledge(2, s.pending(2).front());
  CHECK(!owes_too_many());
  s.publish(1, 2);
  Finished done;
  s.rounds->forget(s.client(2), &done);
  run(done);
  CHECK(s.rounds->table().empty());
}

}  // namespace cmi::test::rounds_test

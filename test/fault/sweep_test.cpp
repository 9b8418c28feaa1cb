// The fault sweep: a workload that comes past every fault point of the library, played once for
// each of them with a process killed there, or with the point failing where it can fail. Each time
// those that live on end with the right answer or with an error that says why, nobody hangs or
// crashes, nothing is left behind, and the nodes share memory again with the processes that come
// after. A point that no process of the workload comes past fails the sweep: one is killed there,
// or its count of passages says that it was made to fail (core/base/fault_count.hpp). A play
// before, in which nothing fails, shows who comes past which point, and how often.
//
// With mapped pages (CMI_TEST_LOCAL=on) nobody comes past the points of caches: there it is enough
// that each share has points which somebody comes past.
//
// The list of points is made from the library's sources when this is built
// (cmake/fault_points.cmake), so that a new point is swept without a word here. The cases are equal
// shares of the list, for ctest to run side by side. CMI_SWEEP_POINT names one to be played alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fault/sweep_play.hpp"

namespace cmi::test::sweep_test {
using namespace sweep;

namespace {

constexpr Point kPoints[] = {
#define FAULT_POINT(name, fails) {name, fails},
#include "fault_points.inc"
#undef FAULT_POINT
};
constexpr int kShares = 12;

// Who comes past a point is tried in this order.
std::vector<Role> candidates(std::string_view name) {
  if (name.starts_with(kOfTokens)) return {kPeer, kHome};
  if (name.starts_with(kOfAttachments)) return {kHome, kThird, kSecond};
  if (std::any_of(std::begin(kPassedAtHome), std::end(kPassedAtHome),
                  [&](std::string_view begin) { return name.starts_with(begin); })) {
    return {kHome, kPeer, kSecond};
  }
  if (name.starts_with(kOfBulkWrites)) return {kPeer};
  // The third may be killed just when none of its stores is under way.
  if (name.starts_with(kOfFlux)) return {kPeer, kHome, kPeer, kHome, kPeer, kHome};
  return {kPeer, kThird, kHome};
}

// Who comes past which point, and how often, in a play where nothing fails: one for all points of
// the same circumstances.
class Pilots {
 public:
  uint64_t passed(const Point& point, Role role) {
    auto known = plays_.find(Circumstances(point.name));
    if (known == plays_.end()) {
      const Play play(point, kRoles, 0);
      known = plays_.emplace(Circumstances(point.name), std::map<Role, Passages>{}).first;
      for (Role each : {kHome, kSecond, kPeer, kThird}) known->second[each] = play.passages(each);
    }
    return times(known->second[role], point.name);
  }
  // The timer, or the moment of a death, may have taken a passage away: the next one plays afresh.
  void forget() { plays_.clear(); }

 private:
  std::map<Circumstances, std::map<Role, Passages>> plays_;
};

// Whether the point was reached: whoever is there is killed, first one that the pilot shows there.
bool die_once_at(const Point& point, Pilots* pilots) {
  std::vector<Role> roles = candidates(point.name);
  const auto passed = [&](Role role) { return pilots->passed(point, role) > 0; };
  if (mapped()) std::erase_if(roles, std::not_fn(passed));
  std::stable_partition(roles.begin(), roles.end(), passed);
  for (Role role : roles) {
    CAPTURE(role);
    Play play(point, role, 1);
    if (!play.reached()) continue;
    play.again();
    return true;
  }
  return false;
}

// Some points are passed only by who is quick, or late.
bool die_at(const Point& point, Pilots* pilots) {
  constexpr int kTries = 3;
  for (int tries = 0; tries < kTries; ++tries) {
    if (die_once_at(point, pilots)) return true;
  }
  return false;
}

// Whether the point was reached: whoever comes past it fails there. Failing for good would be a
// machine that is out of order: once is the fault, the second time where there is one.
bool fail_once_at(const Point& point, Pilots* pilots) {
  for (Role role : candidates(point.name)) {
    const uint64_t passed = pilots->passed(point, role);
    if (passed == 0) continue;
    const uint64_t nth = passed > 1 ? 2 : 1;
    CAPTURE(role);
    CAPTURE(nth);
    Play play(point, role, nth);
    if (!play.reached()) continue;
    play.again();
    return true;
  }
  return false;
}

bool fail_at(const Point& point, Pilots* pilots) {
  const int tries_at_most = mapped() ? 1 : 4;
  for (int tries = 0; tries < tries_at_most; ++tries) {
    if (fail_once_at(point, pilots)) return true;
    pilots->forget();
  }
  return false;
}

void sweep(int share) {
  const char* const only = std::getenv("CMI_SWEEP_POINT");
  Pilots pilots;
  bool reached_one = false;
  for (size_t i = static_cast<size_t>(share); i < std::size(kPoints); i += kShares) {
    const Point& point = kPoints[i];
    const std::string name(point.name);
    if (only != nullptr && name != only) continue;
    CAPTURE(name);
    const bool reached = point.fails ? fail_at(point, &pilots) : die_at(point, &pilots);
    reached_one = reached_one || reached;
    CHECK_MESSAGE((reached || mapped()), "nobody comes past ", name);
  }
  CHECK_MESSAGE((reached_one || only != nullptr), "nobody comes past any point");
}

TEST_SUITE("sweep") {
  // A point that is renamed would be played without what its play needs.
  TEST_CASE("each_name_in_the_tables_of_the_sweep_begins_that_of_a_fault_point") {
    std::vector<std::string_view> names(std::begin(kPassedAtHome), std::end(kPassedAtHome));
    names.insert(names.end(), std::begin(kOfMapped), std::end(kOfMapped));
    names.insert(names.end(), {kOfTokens, kOfAttachments, kOfBulkWrites, kOfFlux});
    for (const Lack& lack : kLacks) names.push_back(lack.points);
    for (const std::string_view name : names) {
      CHECK_MESSAGE(std::any_of(std::begin(kPoints), std::end(kPoints),
                                [&](const Point& point) { return point.name.starts_with(name); }),
                    name);
    }
  }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_first_part") { sweep(0); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_second_part") { sweep(1); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_third_part") { sweep(2); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_fourth_part") { sweep(3); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_fifth_part") { sweep(4); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_sixth_part") { sweep(5); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_seventh_part") { sweep(6); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_eighth_part") { sweep(7); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_ninth_part") { sweep(8); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_tenth_part") { sweep(9); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_eleventh_part") { sweep(10); }
  TEST_CASE("each_fault_point_ends_with_the_right_answer_or_error_twelfth_part") { sweep(11); }
}

}  // namespace

}  // namespace cmi::test::sweep_test

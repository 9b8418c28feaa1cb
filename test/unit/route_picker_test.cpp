// Which route a link tries, and for how long.
#include "fabric/route_picker.hpp"

#include <doctest/doctest.h>

namespace cmi::test::route_picker_test {
using namespace cmi::fabric;

namespace {
std::vector<Route> routes(size_t n) {
  std::vector<Route> all(n);
  for (size_t i = 0; i < n; ++i) all[i].listener_index = i;
  return all;
}
constexpr Nanos kDeadAfter = 10 * kSecond;
}  // namespace

TEST_CASE("a_route_that_is_not_welcomed_gives_way_to_the_next_and_the_last_to_the_first") {
  RoutePicker picker(routes(3), kDeadAfter, {});
  CHECK(picker.current().listener_index == 0);
  CHECK(picker.current(2).listener_index == 2);
  CHECK(picker.not_welcomed());
  CHECK(picker.current().listener_index == 1);
  CHECK(picker.not_welcomed());
  CHECK(picker.not_welcomed());
  CHECK(picker.current().listener_index == 0);
}

TEST_CASE("an_only_route_stays") {
  RoutePicker picker(routes(1), kDeadAfter, {});
  CHECK(!picker.not_welcomed());
  CHECK(!picker.no_endpoint());
  CHECK(picker.all_without_endpoint());
  picker.opened();
  CHECK(!picker.all_without_endpoint());
}

TEST_CASE("a_route_is_announced_before_it_is_taken_and_again_when_it_comes_back") {
  std::vector<size_t> told;
  RoutePicker picker(routes(2), kDeadAfter, [&](const Route& r) {
    told.push_back(r.listener_index);
    return r.listener_index != 1;
  });
  CHECK(picker.take());
  CHECK(picker.take());  // known already
  CHECK(told == std::vector<size_t>{0});
  picker.not_welcomed();
  CHECK(!picker.take());
  picker.no_listener();
  CHECK(picker.take());
  CHECK(told == std::vector<size_t>{0, 1, 0});
}

TEST_CASE("a_home_has_no_listener_when_no_route_in_a_row_found_one") {
  RoutePicker picker(routes(2), kDeadAfter, {});
  picker.no_listener();
  CHECK(!picker.without_listener());
  picker.no_endpoint();  // says nothing of the home
  picker.no_listener();
  CHECK(!picker.without_listener());
  picker.no_listener();
  CHECK(picker.without_listener());
  picker.found_listener();
  CHECK(!picker.without_listener());
}

TEST_CASE("a_hello_on_an_only_route_waits_as_long_as_the_tries_before_took") {
  RoutePicker picker(routes(1), kDeadAfter, {});
  CHECK(picker.patience(0) == kSecond);
  CHECK(picker.patience(1500 * kMilli) == 1500 * kMilli);
  CHECK(picker.patience(kSecond * 9) == 2 * kSecond);
  CHECK(RoutePicker(routes(1), 6 * kSecond, {}).patience(9 * kSecond) == 1500 * kMilli);
}

TEST_CASE("a_round_over_several_routes_takes_two_seconds_and_each_later_one_twice_as_long") {
  RoutePicker picker(routes(8), kDeadAfter, {});
  for (Nanos share : {250 * kMilli, 500 * kMilli, kSecond, 2 * kSecond, 2 * kSecond}) {
    for (int i = 0; i < 8; ++i) {
      CHECK(picker.patience(0) == share);
      picker.not_welcomed();
    }
  }
  picker.welcomed();
  CHECK(picker.patience(0) == 250 * kMilli);
}

TEST_CASE("swaps_go_by_the_provider_only_where_each_route_can") {
  auto all = routes(2);
  all[0].cas = true;
  CHECK(!RoutePicker(all, kDeadAfter, {}).cas());
  all[1].cas = true;
  CHECK(RoutePicker(all, kDeadAfter, {}).cas());
}

}  // namespace cmi::test::route_picker_test

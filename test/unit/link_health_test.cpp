// What a link says of its home: since when it is out of reach, and whose fault that is.
#include "fabric/link_health.hpp"

#include <doctest/doctest.h>

namespace cmi::test::link_health_test {
using namespace cmi::fabric;

TEST_SUITE("link_health") {
  TEST_CASE("a_home_is_unreachable_since_the_first_try_and_not_since_the_last") {
    LinkHealth health;
    CHECK(health.unreachable_since() == 0);
    health.connecting_at(10);
    health.connecting_at(20);
    CHECK(health.unreachable_since() == 10);
  }
  TEST_CASE("a_welcome_ends_what_was_held_against_the_home_and_against_this_side") {
    LinkHealth health;
    health.connecting_at(10);
    health.refused();
    health.refused();
    health.this_side_failed();
    CHECK(health.refusals() == 2);
    CHECK(health.local_fault());
    health.welcomed_at(30);
    CHECK(health.unreachable_since() == 0);
    CHECK(health.refusals() == 0);
    CHECK(!health.local_fault());
    CHECK(health.heard() == 30);
    health.connecting_at(40);
    CHECK(health.unreachable_since() == 40);
  }
  TEST_CASE("time_in_which_this_side_could_not_connect_is_not_held_against_the_home") {
    LinkHealth health;
    health.connecting_at(10);
    health.not_held_against_home();
    CHECK(health.unreachable_since() == 0);
    health.connecting_at(50);
    CHECK(health.unreachable_since() == 50);
  }
  TEST_CASE("a_sign_of_life_over_the_lifeline_does_not_say_that_the_link_works") {
    LinkHealth health;
    health.connecting_at(10);
    health.alive_at(20);
    CHECK(health.alive() == 20);
    CHECK(health.heard() == 0);
    CHECK(health.unreachable_since() == 10);
  }
}

}  // namespace cmi::test::link_health_test

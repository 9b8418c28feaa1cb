// How much a home takes in at once, and what part of it each client gets.
#include "fabric/intake.hpp"

#include <doctest/doctest.h>

#include <array>

namespace cmi::test::intake_test {
using namespace cmi::fabric;

namespace {
constexpr Nanos kStart = kSecond;

// So many requests of each come, and have no answer yet.
template <size_t n>
void ask(Intake& intake, std::array<Intake::OfClient, n>& clients, size_t each, Nanos t = kStart) {
  for (auto& c : clients) {
    for (size_t i = 0; i < each; ++i) intake.took(c, t);
    intake.now_open(c, c.open + each);
  }
}
}  // namespace

TEST_CASE("a_home_that_is_not_behind_bounds_nobody") {
  Intake intake;
  std::array<Intake::OfClient, 4> clients;
  ask(intake, clients, Intake::kBehind / 4 - 1);
  CHECK(intake.credit(kStart) == 0);
}

TEST_CASE("a_home_that_is_behind_gives_all_clients_an_equal_part_of_its_room") {
  Intake intake;
  std::array<Intake::OfClient, 16> clients;
  ask(intake, clients, Intake::kBehind / 16);
  CHECK(intake.credit(kStart) == Intake::kTogether / 16);
  // However many there are, each goes on.
  std::array<Intake::OfClient, 512> crowd;
  ask(intake, crowd, 1);
  CHECK(intake.credit(kStart) == Intake::kLeast);
}

TEST_CASE("a_home_that_has_nothing_to_do_is_behind_no_more_after_a_while") {
  Intake intake;
  std::array<Intake::OfClient, 2> clients;
  ask(intake, clients, Intake::kBehind);
  for (auto& c : clients) intake.now_open(c, 0);
  intake.found_nothing();
  CHECK(!intake.has_taken());
  CHECK(intake.credit(kStart + Intake::kStays - 1) == Intake::kTogether);
  CHECK(intake.credit(kStart + Intake::kStays) == 0);
  ask(intake, clients, 1, kStart + Intake::kStays);
  CHECK(intake.credit(kStart + Intake::kStays) == 0);
}

TEST_CASE("requests_that_wait_for_others_count_though_nothing_is_left_to_read") {
  Intake intake;
  std::array<Intake::OfClient, 2> clients;
  for (int i = 0; i < 8; ++i) {
    ask(intake, clients, Intake::kBehind / 16);
    intake.found_nothing();
  }
  ask(intake, clients, 1);
  CHECK(intake.credit(kStart) == Intake::kTogether / 2);
  // Who is gone has no part.
  intake.now_open(clients[0], 0);
  intake.found_nothing();
  CHECK(intake.credit(kStart) == Intake::kTogether);
}

}  // namespace cmi::test::intake_test

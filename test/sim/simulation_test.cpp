// The simulation itself: turns, time, repeatability.
#include "sim/simulation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/base/lock.hpp"

namespace cmi::test::simulation_test {

namespace {

// The order in which three threads of four steps take their turns.
std::string turns_of(uint32_t seed) {
  Simulation simulation(seed);
  std::string turns;
  for (char name = 'a'; name <= 'c'; ++name) {
    simulation.spawn(0, [&turns, &simulation, name] {
      for (int i = 0; i < 4; ++i) {
        turns += name;
        simulation.pass("step");
      }
    });
  }
  simulation.run();
  return turns;
}

TEST_CASE("a_seed_chooses_the_turns_and_chooses_the_same_again") {
  CHECK(turns_of(1) == turns_of(1));
  CHECK(turns_of(1).size() == 12);
  int others = 0;
  for (uint32_t seed = 2; seed < 10; ++seed) others += turns_of(seed) != turns_of(1);
  CHECK(others > 4);
}

TEST_CASE("time_passes_where_all_wait_and_a_lock_is_waited_for") {
  Simulation simulation(1);
  Mutex mutex;
  int inside = 0, most = 0;
  for (int i = 0; i < 3; ++i) {
    simulation.spawn(i, [&] {
      for (int n = 0; n < 20; ++n) {
        mutex.lock();
        most = std::max(most, ++inside);
        simulation.idle(kMicro);
        --inside;
        mutex.unlock();
      }
    });
  }
  simulation.run();
  CHECK(most == 1);
  const Nanos before = now();
  simulation.spawn(0, [&] {
    for (const Deadline end = Deadline::in(kSecond); !end.passed();) simulation.idle(kMilli);
  });
  simulation.run();
  CHECK(now() - before >= kSecond);
}

TEST_CASE("what_a_thread_throws_ends_the_simulation") {
  Simulation simulation(1);
  simulation.spawn(0, [] { throw std::runtime_error("thrown"); });
  CHECK_THROWS_WITH(simulation.run(), "thrown");
  CHECK(!simulation.sound());
}

}  // namespace

}  // namespace cmi::test::simulation_test

// A lease's alarm in a thread that blocks SIGBUS.
#include "core/memory/vm/lease_alarm.hpp"

#include <doctest/doctest.h>
#include <pthread.h>

#include <thread>

namespace cmi::test::lease_alarm {

namespace {

bool waits() {
  sigset_t set;
  sigpending(&set);
  return sigismember(&set, SIGBUS) == 1;
}

// The thread ends with it, so that what waits for it ends nobody.
template <class Body>
void with_sigbus_blocked(Body body) {
  std::thread([&] {
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(SIG_BLOCK, &bus, nullptr);
    body();
  }).join();
}

}  // namespace

TEST_CASE("an_alarm_that_a_thread_has_blocked_does_not_outlive_its_timer") {
  with_sigbus_blocked([] {
    memory::LeaseAlarm alarm;
    alarm.add();
    alarm.set(now() - kSecond);  // comes at once
    for (const Deadline end = Deadline::in(20 * kSecond); !waits() && !end.passed();) {
      std::this_thread::yield();
    }
    REQUIRE(waits());
    alarm.remove();
    CHECK_FALSE(waits());
  });
}

TEST_CASE("a_signal_of_another_that_a_thread_has_blocked_outlives_the_timer") {
  with_sigbus_blocked([] {
    memory::LeaseAlarm alarm;
    alarm.add();
    pthread_kill(pthread_self(), SIGBUS);
    REQUIRE(waits());
    alarm.remove();
    CHECK(waits());
  });
}

}  // namespace cmi::test::lease_alarm

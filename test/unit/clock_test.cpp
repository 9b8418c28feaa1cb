// Deadlines, and long waits in slices.
#include "core/base/clock.hpp"

#include <doctest/doctest.h>

namespace cmi::test::clock_test {

TEST_SUITE("clock") {
  TEST_CASE("a_deadline_that_has_passed_leaves_nothing") {
    const Deadline past{now() - 1};
    CHECK(past.passed());
    CHECK(past.left() == 0);
    const Deadline future = Deadline::in(3600 * kSecond);
    CHECK(!future.passed());
    CHECK(future.left() > 3000 * kSecond);
  }
  TEST_CASE("slices_double_up_to_40_ms") {
    WaitSlices slices(Deadline::in(3600 * kSecond), 10 * kMilli);
    for (const Nanos length : {10, 20, 40, 40, 40}) {
      const Nanos before = now();
      const Nanos end = slices.next().at;
      const Nanos after = now();
      CHECK(end >= before + length * kMilli);
      CHECK(end <= after + length * kMilli);
    }
  }
  TEST_CASE("no_slice_goes_beyond_the_whole_wait") {
    const Deadline whole = Deadline::in(kMilli);
    WaitSlices slices(whole, 10 * kMilli);
    CHECK(slices.next().at == whole.at);
    CHECK(slices.next().at == whole.at);
  }
}

}  // namespace cmi::test::clock_test

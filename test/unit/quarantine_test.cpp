// Addresses of segments that are gone: they stay taken, and the oldest are freed when there are too
// many.
#include "core/memory/home/quarantine.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

namespace cmi::test::quarantine_test {
using namespace cmi::memory;

namespace {
Mapping fresh_memory(size_t pages = 1) {
  void* const at =
      mmap(nullptr, pages * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  return Mapping(at, pages * kPageSize);
}
bool taken(const void* at) {
  unsigned char resident;
  return mincore(const_cast<void*>(at), kPageSize, &resident) == 0;
}
}  // namespace

TEST_CASE("addresses_in_quarantine_stay_taken_and_the_oldest_go_first") {
  Quarantine quarantine(2, 100 * kPageSize);
  std::vector<const void*> at;
  for (uint32_t i = 0; i < 3; ++i) {
    Mapping m = fresh_memory();
    at.push_back(m.data());
    CHECK(quarantine.add(std::move(m), {{ContextId{i, i}, i}}));
  }
  CHECK(quarantine.bytes() == 3 * kPageSize);
  for (const void* a : at) CHECK(taken(a));
  {
    const auto excess = quarantine.take_excess();
    REQUIRE(excess);
    CHECK(excess->addresses.data() == at[0]);
    CHECK(excess->sessions == Quarantine::Sessions{{ContextId{0, 0}, 0}});
    CHECK(taken(at[0]));  // until its sessions have ended
  }
  CHECK(!taken(at[0]));
  CHECK(!quarantine.take_excess());
  CHECK(quarantine.bytes() == 2 * kPageSize);
}

TEST_CASE("large_places_leave_the_quarantine_before_there_are_many") {
  Quarantine quarantine(100, 4 * kPageSize);
  CHECK(quarantine.add(fresh_memory(4), {}));
  CHECK(!quarantine.take_excess());
  CHECK(quarantine.add(fresh_memory(1), {}));
  CHECK(quarantine.take_excess());
  CHECK(quarantine.bytes() == kPageSize);
  CHECK(!quarantine.take_excess());
}

}  // namespace cmi::test::quarantine_test

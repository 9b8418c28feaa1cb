// Sides that lie in what they share with another process of the machine: marks of pages, and rings.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "system/local_imports.hpp"

namespace cmi::test::local_liars_nodes_test {
using namespace local_imports;

namespace {
// Writes anything into the files of that name that the process shares with others of the machine:
// those of marks, or the rings.
size_t lie_in_shared_memory(uint64_t seed, const char* name = "cmi-local") {
  std::ifstream maps("/proc/self/maps");
  // Not by stores: a ring that the library finds broken is unmapped meanwhile.
  const Fd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    uint64_t from = 0, to = 0;
    if (line.find(name) == std::string::npos ||
        std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2) {
      continue;
    }
    ++found;
    for (uint64_t at = from; at < to; at += sizeof(uint32_t)) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      const auto word = static_cast<uint32_t>(seed >> 33);
      if (::pwrite(memory.get(), &word, sizeof word, static_cast<off_t>(at)) != sizeof word) break;
    }
  }
  return found;
}
}  // namespace

TEST_SUITE("local") {
  TEST_CASE("an_importer_that_lies_in_shared_memory_harms_nobody_else") {
    Three t;
    REQUIRE(store(t.mapper, t.mapped.at, 161).cause() == Fault::kNone);
    for (uint64_t seed = 1; seed < 20; ++seed) {
      CHECK(t.mapper.run([](uint64_t s) { return lie_in_shared_memory(s); }, seed) == 1);
      (void)store(t.mapper, t.mapped.at + kPage, seed);
      (void)wmb(t.mapper);
      REQUIRE(publish(t.cacher, t.cached.at + 2 * kPage, seed));
      CHECK(load(t.home, t.exported.at + 2 * kPage).value == seed);
    }
    // The last word: all pages are marked when it dies.
    REQUIRE(load(t.mapper, t.mapped.at).value == 161);
    CHECK(t.mapper.run([](uint64_t s) { return lie_in_shared_memory(s); }, uint64_t{99}) == 1);
    t.mapper.kill();
    // Whatever it has marked is in flux at most, and recovered.
    for (const Deadline end = Deadline::in(10 * kSecond);
         load(t.home, t.exported.at).cause() != CMI_ERROR_CONSIST;) {
      REQUIRE(!end.passed());
    }
    REQUIRE(seg_reco(t.home, t.exported.seg, t.exported.at, 16 * kPage).ok());
    CHECK(load(t.home, t.exported.at).value == 161);
    CHECK(publish(t.cacher, t.cached.at, 162));
    CHECK(load(t.home, t.exported.at).value == 162);
  }

  TEST_CASE("a_home_that_lies_in_shared_memory_crashes_no_importer") {
    Three t;
    REQUIRE(store(t.mapper, t.mapped.at, 171).cause() == Fault::kNone);
    for (uint64_t seed = 1; seed < 20; ++seed) {
      CHECK(t.home.run([](uint64_t s) { return lie_in_shared_memory(s); }, seed) == 1);
      (void)load(t.mapper, t.mapped.at);
      (void)store(t.mapper, t.mapped.at + kPage, seed);
      (void)atm_cas(t.mapper, t.mapped.at, 171, 171);
      (void)wmb(t.mapper);
    }
    CHECK(t.mapper.run([](int) { return 5; }, 0) == 5);
  }

  TEST_CASE("an_importer_that_lies_in_a_ring_does_its_home_and_others_no_harm") {
    Three t;
    uint64_t lied_in = 0;
    for (uint64_t seed = 1; seed < 20; ++seed) {
      (void)store(t.mapper, t.mapped.at + kPage, seed);
      (void)wmb(t.mapper);
      lied_in += t.mapper.run([](uint64_t s) { return lie_in_shared_memory(s, "cmi-ring"); }, seed);
      REQUIRE(publish(t.cacher, t.cached.at + 2 * kPage, seed));
      CHECK(load(t.home, t.exported.at + 2 * kPage).value == seed);
    }
    CHECK(lied_in >= 2);
  }

  TEST_CASE("an_importer_goes_on_by_the_network_where_its_home_lies_in_a_ring") {
    Three t;
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(publish(t.mapper, t.mapped.at, 1));
    uint64_t lied_in = 0;
    for (uint64_t seed = 1; seed < 10; ++seed) {
      lied_in += t.home.run([](uint64_t s) { return lie_in_shared_memory(s, "cmi-ring"); }, seed);
      REQUIRE(load(t.cacher, t.cached.at).cause() == Fault::kNone);
      REQUIRE(publish(t.mapper, t.mapped.at, 10 + seed));
      CHECK(load(t.cacher, t.cached.at).value == 10 + seed);
    }
    CHECK(lied_in >= 2);
    CHECK(maps(t.mapper));
  }
}

}  // namespace cmi::test::local_liars_nodes_test

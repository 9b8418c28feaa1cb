// Swaps of imports that map the pages of their home: one order for all, and what is announced.
#include <doctest/doctest.h>

#include <csignal>

#include "core/base/clock.hpp"
#include "system/local_imports.hpp"

namespace cmi::test::local_swaps_nodes_test {
using namespace local_imports;

TEST_SUITE("local") {
  TEST_CASE("swaps_of_all_three_on_one_word_of_a_mapped_page_are_one_order") {
    Three t;
    constexpr uint64_t kRounds = 30;
    struct One {
      Process& process;
      uint64_t at;
    };
    for (uint64_t round = 0; round < kRounds; ++round) {
      for (const One& one :
           {One{t.mapper, t.mapped.at}, One{t.cacher, t.cached.at}, One{t.home, t.exported.at}}) {
        const uint64_t before = load(one.process, one.at).value;
        CHECK(atm_cas(one.process, one.at, before, before + 1).swapped);
      }
    }
    CHECK(load(t.mapper, t.mapped.at).value == 3 * kRounds);
    CHECK(load(t.cacher, t.cached.at).value == 3 * kRounds);
  }

  TEST_CASE("a_third_node_hears_of_a_swap_in_a_mapped_page_before_atm_cas_returns") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}});
    for (uint64_t round = 0; round < 20; ++round) {
      REQUIRE(load(t.cacher, t.cached.at).value == round);
      CHECK(atm_cas(t.mapper, t.mapped.at, round, round + 1).swapped);
      CHECK(load(t.cacher, t.cached.at).value == round + 1);
    }
    // What is lost changes nothing, and nobody is told.
    const auto told = stats_of(t.mapper).publications;
    CHECK_FALSE(atm_cas(t.mapper, t.mapped.at, 7, 8).swapped);
    CHECK(stats_of(t.mapper).publications == told);
    CHECK(maps(t.mapper));
  }

  // The page of the swaps stays writable, so the barrier before them looks at counts.
  TEST_CASE("swaps_in_a_page_that_nobody_caches_publish_what_was_stored_elsewhere_before_them") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}});
    Process& other = t.cluster.spawn("other", kLocal);
    const Export locks = export_segment(other, 4 * kPage);
    const Import lock = import_segment(t.mapper, locks);
    for (uint64_t round = 0; round < 20; ++round) {
      REQUIRE(load(t.cacher, t.cached.at).value == round);
      for (uint64_t k = 0; k < 3; ++k) {
        CHECK(atm_cas(t.mapper, lock.at, 4 * round + k, 4 * round + k + 1).swapped);
      }
      REQUIRE(store(t.mapper, t.mapped.at, round + 1).cause() == Fault::kNone);
      CHECK(atm_cas(t.mapper, lock.at, 4 * round + 3, 4 * round + 4).swapped);
      CHECK(load(t.cacher, t.cached.at).value == round + 1);
    }
    CHECK(load(other, locks.at).value == 80);
    CHECK(maps(t.mapper));
  }

  // As over the network: the swap goes on when the handler returns. Made twice, it would find what
  // the handler has put there.
  TEST_CASE("a_swap_in_a_mapped_page_is_over_when_a_third_node_has_heard_of_it_and_made_once") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail"}});
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    REQUIRE(load(t.mapper, t.mapped.at).value == 0);
    t.home.stop();
    auto swap = t.mapper.start(
        [](uint64_t at, int stopped) {
          static uint64_t word;
          static int pid;
          word = at;
          pid = stopped;
          set_on_fault([](const Fault& fault) {
            if (fault.error != CMI_ERROR_TRANSIENT) return false;
            ::kill(pid, SIGCONT);
            const Deadline end = Deadline::in(10 * kSecond);
            for (uint64_t found = 0; found != 1 && !end.passed();) {
              (void)CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(word), 1, 0,
                                               &found);
            }
            return true;
          });
          uint64_t found = 7;
          int result = -1;
          auto body = [&] {
            result =
                CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(at), 0, 1, &found);
          };
          const Fault fault = guarded(body);
          set_on_fault(nullptr);
          return fault.cause() == CMI_ERROR_TRANSIENT && result == 0 && found == 0;
        },
        t.mapped.at, static_cast<int>(t.home.pid()));
    CHECK(swap.finish());
    CHECK(load(t.home, t.exported.at).value == 0);
    CHECK(load(t.cacher, t.cached.at).value == 0);
    CHECK(maps(t.mapper));
  }

  TEST_CASE("a_third_node_misses_a_swap_in_a_mapped_page_that_is_not_announced") {
    Three t(Env{{"CMI_FAULT_POINT", "no_aging=fail;mutate_mapped_swap_unannounced=fail"}});
    REQUIRE(load(t.cacher, t.cached.at).value == 0);
    CHECK(atm_cas(t.mapper, t.mapped.at, 0, 1).swapped);
    CHECK(load(t.home, t.exported.at).value == 1);
    CHECK(load(t.cacher, t.cached.at).value == 0);
  }
}

}  // namespace cmi::test::local_swaps_nodes_test

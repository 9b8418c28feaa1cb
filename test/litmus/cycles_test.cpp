// Generated litmus tests: what the axioms of the memory model forbid is never seen, in each
// critical cycle; a drawn part of them by default. On processes they are long.
#include "litmus/cycles.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "litmus/lab.hpp"
#include "litmus/outcomes.hpp"
#include "litmus/scene.hpp"
#include "support/long_run.hpp"

namespace cmi::test::cycles_test {

namespace {

size_t threads_of(const Cycle& cycle) { return cycle.program().count; }

bool forbidden(std::vector<Meeting> meetings, std::vector<Fence> fences, bool swaps = false) {
  return Cycle{std::move(meetings), std::move(fences), swaps}.forbidden();
}

// So many of the cycles of that many threads that are forbidden; all in the long run. The seed
// draws the same again.
std::vector<Cycle> drawn(size_t threads, size_t count) {
  std::vector<Cycle> some = all_cycles();
  std::erase_if(some, [&](const Cycle& c) { return threads_of(c) != threads || !c.forbidden(); });
  if (long_run()) return some;
  const char* const seed = std::getenv("CMI_TEST_SEED");
  std::mt19937 draw(seed == nullptr ? 42 : static_cast<uint32_t>(std::strtoul(seed, nullptr, 10)));
  std::shuffle(some.begin(), some.end(), draw);
  some.resize(std::min(some.size(), count));
  return some;
}

// Of each cycle in each scene; one of four leaves to the timer what its steps do not publish. There
// are nine times as many cycles of three threads as of two.
uint32_t rounds_of(size_t threads) { return threads == 3 ? 4 : 8; }

void check_never(size_t threads, size_t count) {
  const std::vector<Cycle> cycles = drawn(threads, count);
  const uint32_t rounds = rounds_of(threads);
  REQUIRE(!cycles.empty());
  for (const Scene& scene : scenes_of(static_cast<int>(threads))) {
    std::unique_ptr<Lab> lab;
    for (size_t i = 0; i < cycles.size(); ++i) {
      if (i % (kMaxRounds / rounds) == 0) {
        lab.reset();
        lab = std::make_unique<Lab>(scene.where, scene.faults);
      }
      Program p = cycles[i].program();
      p.one_page = scene.one_page;
      p.again = scene.again;
      const Histogram seen = lab->run(p, rounds);
      const auto all_of_it = [&](const Outcome& o) { return cycles[i].seen(o); };
      CHECK_MESSAGE(seen.count(all_of_it) == 0, cycles[i].name(), ", ", scene.name, ": ", seen);
    }
  }
}

#ifdef CMI_TEST_SIMULATED
// Rules that are kept between nodes and whose breach a cycle can show (doc/design/mutations.md).
constexpr const char* kSeenByCycles[] = {
    "mutate_acks_not_awaited",     "mutate_acquire_late",
    "mutate_answer_before_zap",    "mutate_answer_not_awaited",
    "mutate_beside_any_state",     "mutate_cas_unpatched",
    "mutate_cas_unpublished",      "mutate_diffs_unpublished",
    "mutate_dirty_kept",           "mutate_gaps_merged",
    "mutate_home_cas_unpublished", "mutate_hot_twin_kept",
    "mutate_keep_on_invalidate",   "mutate_one_direct_ack_suffices",
    "mutate_protect_missing",      "mutate_publish_nobody",
    "mutate_release_any_number",   "mutate_release_early",
    "mutate_released_read",        "mutate_sent_twin_kept",
    "mutate_zapped_not_released"};

// Whether a forbidden cycle is seen where the rule is broken, in so many of them at most.
bool caught(const std::string& mutation, size_t count, uint32_t rounds) {
  for (const size_t threads : {2, 3}) {
    const std::vector<Cycle> cycles = drawn(threads, count);
    for (const Scene& scene : scenes_of(static_cast<int>(threads))) {
      Lab broken(scene.where, (scene.faults.empty() ? "" : scene.faults + ";") + mutation +
                                  "=fail;mutation_window=delay:500");
      for (size_t i = 0; i < std::min<size_t>(cycles.size(), kMaxRounds / rounds); ++i) {
        Program p = cycles[i].program();
        p.one_page = scene.one_page;
        p.again = scene.again;
        const auto all_of_it = [&](const Outcome& o) { return cycles[i].seen(o); };
        if (broken.run(p, rounds, all_of_it).count(all_of_it) != 0) return true;
      }
    }
  }
  return false;
}
#endif

TEST_SUITE("cycles") {
  TEST_CASE("the_axioms_forbid_and_allow_the_classical_shapes_as_the_memory_model_says") {
    using enum Meeting;
    using enum Fence;
    // Message passing, store buffering, load buffering.
    CHECK(forbidden({kRfe, kFre}, {kNone, kWmb}));
    CHECK_FALSE(forbidden({kRfe, kFre}, {kNone, kRmb}));
    CHECK(forbidden({kFre, kFre}, {kMb, kMb}));
    CHECK_FALSE(forbidden({kFre, kFre}, {kNone, kMb}));
    CHECK(forbidden({kRfe, kRfe}, {kNone, kNone}));
    // 2+2W, S, R.
    CHECK(forbidden({kCoe, kCoe}, {kWmb, kWmb}));
    CHECK_FALSE(forbidden({kCoe, kCoe}, {kWmb, kNone}));
    CHECK(forbidden({kRfe, kCoe}, {kNone, kWmb}));
    CHECK(forbidden({kCoe, kFre}, {kWmb, kWmb}));
    // A chain, and two readers, of stores that race: allowed, whatever the readers do.
    CHECK_FALSE(forbidden({kRfe, kFreRfe}, {kMb, kMb}));
    CHECK_FALSE(forbidden({kFreRfe, kFreRfe}, {kMb, kMb}));
    CHECK(forbidden({kRfe, kRfe, kFre}, {kNone, kNone, kWmb}));
    // Swaps are fences, and published when they are over.
    CHECK(forbidden({kFre, kFre}, {kNone, kNone}, true));
    CHECK(forbidden({kRfe, kFre}, {kNone, kNone}, true));
    // A swap that found what another one stored was made after it.
    CHECK(forbidden({kRfe, kCoeRfe}, {kNone, kNone}, true));
    CHECK_FALSE(forbidden({kRfe, kCoeRfe}, {kNone, kNone}));
  }

  // Two computations of the axioms, which share nothing: what the edges of a cycle say, and all
  // that its program may come to.
  TEST_CASE("a_cycle_is_forbidden_where_its_program_has_no_allowed_outcome_that_shows_it") {
    std::vector<Cycle> all = all_cycles();
    if (!long_run()) {
      for (size_t i = 0; i < all.size() / 10; ++i) all[i] = all[i * 10];
      all.resize(all.size() / 10);
    }
    for (const Cycle& c : all) {
      const Outcomes outcomes = outcomes_of(c.program());
      REQUIRE(outcomes.not_judged.empty());
      const bool shown = std::any_of(outcomes.allowed.begin(), outcomes.allowed.end(),
                                     [&](const Outcome& o) { return c.seen(o); });
      CHECK_MESSAGE(shown != c.forbidden(), c.name());
    }
  }

  TEST_CASE("each_cycle_is_generated_once_and_many_are_forbidden") {
    const std::vector<Cycle> all = all_cycles();
    std::vector<std::string> names;
    for (const Cycle& c : all) {
      names.push_back(c.name());
      CHECK(threads_of(c) <= 4);
      CHECK(threads_of(c) >= 2);
    }
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
    const auto bad =
        std::count_if(all.begin(), all.end(), [](const Cycle& c) { return c.forbidden(); });
    // As many as doc/cmi.cat forbids, which tools/check/cat.py counts.
    CHECK(all.size() == 2920);
    CHECK(bad == 1862);
    // Four threads and six edges: two of them store once. Where they swap, others know of it.
    CHECK(std::none_of(all.begin(), all.end(), [](const Cycle& c) {
      return threads_of(c) == 4 && c.forbidden() && !c.swaps;
    }));
  }

  TEST_CASE("no_forbidden_cycle_of_two_threads_is_seen") { check_never(2, 20); }
  TEST_CASE("no_forbidden_cycle_of_three_threads_is_seen") { check_never(3, 20); }
  TEST_CASE("no_forbidden_cycle_of_four_threads_is_seen") { check_never(4, 4); }

  TEST_CASE("a_forbidden_cycle_is_seen_when_a_barrier_does_not_wait_for_its_answers") {
    for (const int threads : {2, 3}) {
      CAPTURE(threads);
      uint64_t bad = 0;
      Lab broken({threads + 1, {threads}}, "mutate_answer_not_awaited=fail");
      for (const Fence f : {Fence::kWmb, Fence::kMb, Fence::kFlush}) {
        const auto n = static_cast<size_t>(threads);
        const Cycle cycle{std::vector(n, Meeting::kFre), std::vector(n, f)};
        const auto all_of_it = [&](const Outcome& o) { return cycle.seen(o); };
        bad += broken.run(cycle.program(), 640, all_of_it).count(all_of_it);
      }
      CHECK(bad > 0);
    }
  }

#ifdef CMI_TEST_SIMULATED
  TEST_CASE("a_forbidden_cycle_is_seen_for_each_rule_between_nodes_that_is_broken") {
    for (const char* const mutation : kSeenByCycles)
      CHECK_MESSAGE(caught(mutation, 40, 16), mutation);
  }
#endif
}

}  // namespace

}  // namespace cmi::test::cycles_test

// Litmus programs on simulated nodes.
#include "sim/lab.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/fault_point.hpp"

namespace cmi::test {

namespace {

// What has to be seen comes soon: rounds until it is looked for.
constexpr uint32_t kRoundsUntilSeen = 8;

uint32_t seed() { return static_cast<uint32_t>(number_from("CMI_SIM_SEED", 1)); }

}  // namespace

Lab::Lab(const Placement& where, const std::string& faults, int at)
    : simulation_(seed()), net_(make_net()) {
  REQUIRE(where.beside == -1);
  REQUIRE(where.sharing == -1);
  ::setenv("CMI_FAULT_POINT", faults.c_str(), 1);
  simulation_.arm_faults(at);
  for (int i = 0; i < where.processes; ++i) {
    nodes_.push_back(std::make_unique<Node>(simulation_, *net_, folder_, i));
  }
  bases_.resize(nodes_.size(), Bases{.segments = static_cast<uint32_t>(where.homes.size())});
  simulation_.spawn(-1, [&] { share(where); });
  simulation_.run();
}

// What a simulation that has failed holds stays behind: its threads are in the middle of it.
Lab::~Lab() {
  if (simulation_.sound()) {
    simulation_.stop();
  } else {
    for (auto& node : nodes_) (void)node.release();
  }
  ::unsetenv("CMI_FAULT_POINT");
}

void Lab::share(const Placement& where) {
  for (size_t s = 0; s < where.homes.size(); ++s) {
    const Exported e = nodes_[static_cast<size_t>(where.homes[s])]->export_segment(kLabBytes);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      std::byte* const base =
          static_cast<int>(i) == where.homes[s] ? e.at : nodes_[i]->import_segment(e);
      bases_[i].at[s] = reinterpret_cast<uint64_t>(base);
    }
  }
}

Histogram Lab::run(const Program& program, uint32_t rounds, const Predicate& enough) {
  Histogram histogram;
  bool seen = false;
  for (uint32_t left = rounds; left > 0 && !seen;) {
    const uint32_t n = std::min(left, enough ? kRoundsUntilSeen : kRoundsAtOnce);
    const uint32_t first = next_round_;
    REQUIRE(first + n <= kMaxRounds);
    next_round_ += n;
    left -= n;
    for (uint32_t round = first; round < first + n; ++round) control_->clear(program, round);
    uint64_t failed = 0;
    for (uint32_t t = 0; t < program.count; ++t) {
      const int i = program.threads[t].process;
      simulation_.spawn(i, [&, t, i] {
        Node& node = *nodes_[static_cast<size_t>(i)];
        node.enable();
        NodeCalls calls(node);
        failed += play(program, t, bases_[static_cast<size_t>(i)], first, n, *control_, calls);
        node.disable();
      });
    }
    simulation_.run();
    REQUIRE(failed == 0);
    for (uint32_t round = first; round < first + n; ++round) {
      const Outcome outcome = control_->outcome(round);
      histogram.add(outcome);
      seen = seen || (enough && enough(outcome));
    }
  }
  return histogram;
}

}  // namespace cmi::test

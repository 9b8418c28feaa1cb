// Prints the rows of doc/design/scale.md: what joins, barriers and a death cost with 1, 10,
// 100 and 1000 importers of one home, and with as many homes of one importer.
//   build/debug/test/scale      CMI_SCALE=100: no more than so many
// Messages and bytes are counted and are the same in each run; processor time is the least of
// several, of all nodes that took part; memory is what node 0 holds of the heap.
#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "sim/scale/fleet.hpp"

namespace {

cmi::test::Simulation* g_simulation = nullptr;
int64_t g_held_by_node_0 = 0;

// In front of each allocation: whether node 0 made it.
struct alignas(std::max_align_t) Owner {
  size_t of_node_0;
};

}  // namespace

void* operator new(size_t n) {
  auto* const owner = static_cast<Owner*>(std::malloc(sizeof(Owner) + n));
  if (owner == nullptr) throw std::bad_alloc();
  const bool its = g_simulation != nullptr && g_simulation->process() == 0;
  owner->of_node_0 = its ? ::malloc_usable_size(owner) : 0;
  g_held_by_node_0 += static_cast<int64_t>(owner->of_node_0);
  return owner + 1;
}
void* operator new[](size_t n) { return operator new(n); }
void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  Owner* const owner = static_cast<Owner*>(p) - 1;
  g_held_by_node_0 -= static_cast<int64_t>(owner->of_node_0);
  std::free(owner);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete[](void* p, size_t) noexcept { operator delete(p); }

namespace cmi::test {

namespace {

constexpr int kTimes = 20;

void row(const char* what, size_t nodes, const Cost& cost) {
  std::printf("| %s | %zu | %lu | %lu | %lu | %.1f |\n", what, nodes, cost.messages, cost.one_sided,
              cost.bytes, static_cast<double>(cost.cpu) / 1000);
  std::fflush(stdout);
}

template <class Action>
Cost least(Action action) {
  Cost best = action();
  for (int i = 1; i < kTimes; ++i) {
    const Cost cost = action();
    best.cpu = std::min(best.cpu, cost.cpu);
    if (cost.messages <= best.messages) {
      best.messages = cost.messages;
      best.one_sided = cost.one_sided;
      best.bytes = cost.bytes;
    }
  }
  return best;
}

Cost publish(Fleet& fleet, size_t node, volatile uint64_t* word, Fleet::Concerns whom) {
  return fleet.measure(node, whom, [&](NodeCalls& calls) {
    *word = *word + 1;
    REQUIRE(calls.wmb() == 0);
  });
}

void load_all(Fleet& fleet, size_t page) {
  for (size_t n = 1; n <= fleet.joined(); ++n) {
    (void)fleet.measure(n, Fleet::Concerns::kTwo, [&](NodeCalls&) { (void)*fleet.word(n, page); });
  }
}

void one_home(size_t most) {
  Fleet fleet(Fleet::Shape::kOneHome, most);
  g_simulation = &fleet.simulation();
  Home& home = fleet.node(0).home();
  const auto two = Fleet::Concerns::kTwo, all = Fleet::Concerns::kAll;
  for (size_t nodes = 1; nodes <= most; nodes *= 10) {
    const int64_t held = g_held_by_node_0;
    const size_t were = fleet.joined();
    Cost joined;
    while (fleet.joined() < nodes) joined = fleet.join();
    fleet.settle();
    row("join of the last", nodes, joined);
    std::printf("| memory of the home, each importer | %zu | | | %ld | |\n", nodes,
                (g_held_by_node_0 - held) / static_cast<int64_t>(nodes - were));
    row("importer's barrier, concerns nobody", nodes,
        least([&] { return publish(fleet, 1, fleet.word(1, 600), two); }));
    row("home's barrier, concerns nobody", nodes, least([&] {
          return fleet.measure(0, two, [](NodeCalls& calls) { REQUIRE(calls.wmb() == 0); });
        }));
    load_all(fleet, 3);
    row("importer's barrier, concerns all", nodes, publish(fleet, 1, fleet.word(1, 3), all));
    fleet.settle();
    row("importer's barrier, a page of theirs, the first time", nodes,
        publish(fleet, 1, fleet.word(1, 100), all));
    fleet.settle();
    row("importer's barrier, a page of theirs, later", nodes,
        least([&] { return publish(fleet, 1, fleet.word(1, 100), two); }));
    row("the watch asks of each whether it imports", nodes, least([&] {
          return fleet.measure(0, two, [&](NodeCalls&) {
            for (size_t n = 1; n <= nodes; ++n) REQUIRE(home.importers().knows(fleet.node(n).id()));
          });
        }));
  }
  load_all(fleet, 3);
  // With all answers, for which everybody is looked at: the time says nothing.
  row("death of the last", most, fleet.measure(0, all, [&](NodeCalls&) {
    home.importers().forget(fleet.node(most).id(), false);
    for (const Nanos until = now() + 50 * kMilli; now() < until;) {
      fleet.simulation().idle(20 * kMicro);
    }
  }));
  g_simulation = nullptr;
}

void many_homes(size_t most) {
  Fleet fleet(Fleet::Shape::kManyHomes, most);
  for (size_t nodes = 1; nodes <= most; nodes *= 10) {
    Cost joined;
    while (fleet.joined() < nodes) joined = fleet.join();
    fleet.settle();
    row("import from the last", nodes, joined);
    row("barrier, of one home's page", nodes,
        least([&] { return publish(fleet, 0, fleet.word(1, 600), Fleet::Concerns::kTwo); }));
  }
}

TEST_CASE("the_table_of_scale") {
  const size_t most = number_from("CMI_SCALE", 1000);
  std::printf("| what | nodes | messages | one-sided | bytes | us |\n");
  std::printf("| --- | --- | --- | --- | --- | --- |\n");
  one_home(most);
  many_homes(most);
}

}  // namespace

}  // namespace cmi::test

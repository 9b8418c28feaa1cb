// The locks and the queue of simple_locks.hpp between nodes: exclusion, turns for everybody,
// order.
#include <doctest/doctest.h>

#include <array>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "system/calls.hpp"
#include "system/simple_locks.hpp"

namespace cmi::test::locks_nodes_test {

namespace {

constexpr uint32_t kNodes = 3;
constexpr uint32_t kThreads = 3;  // of each node
constexpr uint64_t kRounds = 60;
constexpr size_t kCells = 4;  // few, so that the queue is often full and often empty

struct Item {
  uint64_t producer;
  uint64_t number;
};
using Queue = locks::Queue<Item, kCells>;

// What lies in the segment. The account is touched by whoever holds a lock, with plain accesses.
struct Shared {
  locks::SpinLockState spin;
  locks::TicketLockState ticket;
  Queue::State queue;
  alignas(locks::kPage) uint64_t turns;
  uint64_t credit;
  alignas(locks::kPage) uint64_t overdraft;  // credit + overdraft is 0
};
constexpr size_t kSize = (sizeof(Shared) + kPage - 1) / kPage * kPage;

Shared* shared_at(uint64_t view) { return reinterpret_cast<Shared*>(view); }

// False if the account was not as the turn before left it.
bool take_turn(Shared& shared, uint64_t amount) {
  const bool right = shared.credit + shared.overdraft == 0;
  shared.credit += amount;
  ++shared.turns;
  shared.overdraft -= amount;
  return right;
}

// Runs body(thread) in so many threads that may call the library and touch imports.
template <class Body>
void in_threads(uint32_t count, Body body) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      CMIFN(ctxt(), 10, ini_th)(ctxt());
      CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
      body(i);
      CMIFN(ctxt(), 10, fini)(ctxt());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The home and the other nodes, with a view of the shared segment each.
struct Scene {
  Cluster cluster;
  std::vector<Process*> processes;
  std::vector<uint64_t> views;

  Scene() {
    processes.push_back(&cluster.spawn("home"));
    const Export exported = export_segment(*processes[0], kSize);
    views.push_back(exported.at);
    for (const char* name : {"first", "second"}) {
      processes.push_back(&cluster.spawn(name));
      views.push_back(import_segment(*processes.back(), exported).at);
    }
  }
  // Starts a lambda of (view, node) everywhere; what each returned.
  template <class F>
  auto everywhere(F lambda) {
    std::vector<decltype(processes[0]->start(lambda, uint64_t{}, uint32_t{}))> running;
    std::vector<decltype(lambda(uint64_t{}, uint32_t{}))> results;
    for (uint32_t node = 0; node < kNodes; ++node) {
      running.push_back(processes[node]->start(lambda, views[node], node));
    }
    for (auto& pending : running) results.push_back(pending.get(100));
    return results;
  }
  // The account as each node sees it in the end.
  void check_account() {
    for (uint32_t node = 0; node < kNodes; ++node) {
      const uint64_t base = views[node];
      CHECK(load(*processes[node], base + offsetof(Shared, turns)).value ==
            kNodes * kThreads * kRounds);
      CHECK(load(*processes[node], base + offsetof(Shared, credit)).value +
                load(*processes[node], base + offsetof(Shared, overdraft)).value ==
            0);
    }
  }
};

struct Turns {
  std::array<uint64_t, kThreads> taken;
  std::array<uint64_t, kThreads>
      wrong;  // the account was changed meanwhile, or it was not the turn
};

void check_turns(const std::vector<Turns>& nodes) {
  for (const Turns& node : nodes) {
    for (uint64_t taken : node.taken) CHECK(taken == kRounds);
    for (uint64_t wrong : node.wrong) CHECK(wrong == 0);
  }
}

struct Taken {
  struct One {
    uint64_t place;
    Item item;
  };
  std::array<One, kRounds> items;
};

TEST_SUITE("locks") {
  TEST_CASE("a_spin_lock_lets_one_thread_of_all_nodes_in_at_a_time") {
    Scene scene;
    const auto all = scene.everywhere([](uint64_t view, uint32_t node) {
      Turns mine{};
      in_threads(kThreads, [&](uint32_t thread) {
        locks::SpinLock lock(ctxt(), &shared_at(view)->spin);
        for (uint64_t round = 0; round < kRounds; ++round) {
          const std::lock_guard guard(lock);
          mine.wrong[thread] += !take_turn(*shared_at(view), node * kThreads + thread + 1);
          ++mine.taken[thread];
        }
      });
      return mine;
    });
    check_turns(all);
    scene.check_account();
  }

  TEST_CASE("a_spin_lock_that_a_node_holds_is_not_taken_by_another") {
    Scene scene;
    const auto try_lock = [](uint64_t view) {
      return locks::SpinLock(ctxt(), &shared_at(view)->spin).try_lock();
    };
    const auto unlock = [](uint64_t view) {
      locks::SpinLock(ctxt(), &shared_at(view)->spin).unlock();
    };
    for (uint32_t holder = 0; holder < kNodes; ++holder) {
      REQUIRE(scene.processes[holder]->run(try_lock, scene.views[holder]));
      for (uint32_t other = 0; other < kNodes; ++other) {
        CHECK_FALSE(scene.processes[other]->run(try_lock, scene.views[other]));
      }
      scene.processes[holder]->run(unlock, scene.views[holder]);
    }
  }

  TEST_CASE("a_ticket_lock_gives_turns_in_the_order_of_its_tickets") {
    Scene scene;
    const auto all = scene.everywhere([](uint64_t view, uint32_t node) {
      Turns mine{};
      in_threads(kThreads, [&](uint32_t thread) {
        locks::TicketLock lock(ctxt(), &shared_at(view)->ticket);
        for (uint64_t round = 0; round < kRounds; ++round) {
          const uint64_t ticket = lock.lock();
          mine.wrong[thread] += shared_at(view)->turns != ticket;
          mine.wrong[thread] += !take_turn(*shared_at(view), node * kThreads + thread + 1);
          ++mine.taken[thread];
          lock.unlock();
        }
      });
      return mine;
    });
    check_turns(all);
    scene.check_account();
  }

  TEST_CASE("who_drew_a_ticket_first_has_the_first_turn_whoever_waits_first") {
    Scene scene;
    const auto draw = [](uint64_t view) {
      return locks::TicketLock(ctxt(), &shared_at(view)->ticket).draw();
    };
    std::array<uint64_t, kNodes> tickets{};
    for (uint32_t node : {1, 2, 0}) {
      tickets[node] = scene.processes[node]->run(draw, scene.views[node]);
    }
    CHECK(tickets == std::array<uint64_t, kNodes>{2, 0, 1});
    std::vector<Pending<uint64_t>> running;
    for (uint32_t node = 0; node < kNodes; ++node) {
      running.push_back(scene.processes[node]->start(
          [](uint64_t view, uint64_t ticket) {
            locks::TicketLock lock(ctxt(), &shared_at(view)->ticket);
            lock.wait(ticket);
            const uint64_t before = shared_at(view)->turns++;
            lock.unlock();
            return before;
          },
          scene.views[node], tickets[node]));
    }
    for (uint32_t node = 0; node < kNodes; ++node) CHECK(running[node].get() == tickets[node]);
  }

  TEST_CASE("a_queue_gives_each_item_once_and_those_of_a_producer_in_order") {
    // On each node one thread produces and one consumes; each consumer takes as many as are made.
    Scene scene;
    const auto all = scene.everywhere([](uint64_t view, uint32_t node) {
      Taken taken{};
      in_threads(2, [&](uint32_t thread) {
        Queue queue(ctxt(), &shared_at(view)->queue);
        for (uint64_t round = 0; round < kRounds; ++round) {
          if (thread == 0) {
            queue.push({node, round});
          } else {
            taken.items[round].place = queue.pop(&taken.items[round].item);
          }
        }
      });
      return taken;
    });
    std::map<uint64_t, Item> by_place;
    for (const Taken& node : all) {
      for (const Taken::One& one : node.items) by_place[one.place] = one.item;
    }
    REQUIRE(by_place.size() == kNodes * kRounds);
    CHECK(by_place.rbegin()->first == kNodes * kRounds - 1);
    std::array<uint64_t, kNodes> next{};
    for (const auto& [place, item] : by_place) {
      REQUIRE(item.producer < kNodes);
      CHECK(item.number == next[item.producer]);
      ++next[item.producer];
    }
  }

  TEST_CASE("push_waits_while_the_queue_is_full_and_pop_while_it_is_empty") {
    Scene scene;
    constexpr uint64_t kMore = 2 * kCells;
    auto pushing = scene.processes[1]->start(
        [](uint64_t view, uint64_t count) {
          Queue queue(ctxt(), &shared_at(view)->queue);
          for (uint64_t i = 0; i < count; ++i) queue.push({1, i});
        },
        scene.views[1], kMore);
    // Once it has the place of an item that does not fit, it waits; what is there stays.
    const uint64_t pushed = offsetof(Shared, queue) + offsetof(Queue::State, pushed);
    REQUIRE(load_until(*scene.processes[0], scene.views[0] + pushed, kCells + 1) == kCells + 1);
    auto popping = scene.processes[2]->start(
        [](uint64_t view, uint64_t count) {
          Queue queue(ctxt(), &shared_at(view)->queue);
          uint64_t in_order = 0;
          for (uint64_t i = 0; i < count; ++i) {
            Item item{};
            in_order += queue.pop(&item) == i && item.number == i;
          }
          return in_order;
        },
        scene.views[2], kMore + 1);
    pushing.get();
    // The last pop has its place and waits for an item that is not there yet.
    const uint64_t popped = offsetof(Shared, queue) + offsetof(Queue::State, popped);
    REQUIRE(load_until(*scene.processes[0], scene.views[0] + popped, kMore + 1) == kMore + 1);
    scene.processes[0]->run(
        [](uint64_t view, uint64_t number) {
          Queue(ctxt(), &shared_at(view)->queue).push({0, number});
        },
        scene.views[0], kMore);
    CHECK(popping.get() == kMore + 1);
  }
}

}  // namespace

}  // namespace cmi::test::locks_nodes_test

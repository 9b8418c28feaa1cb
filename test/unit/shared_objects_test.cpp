// Semaphores, barriers, latches and queues of core/locks over plain words.
#include <doctest/doctest.h>

#include <map>

#include "core/locks/barrier.hpp"
#include "core/locks/queue.hpp"
#include "core/locks/semaphore.hpp"
#include "unit/lock_world.hpp"

namespace cmi::test::shared_objects_test {
using namespace cmi::locks;
using namespace cmi::locks::test;

TEST_CASE("a_semaphore_lets_so_many_in_and_takes_permits_of_the_dead_over") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    world.deaths = 0.03;
    SemaphoreMemory at{};
    std::set<uint64_t> inside;
    const auto process = [&](Words& w) {
      if (make_semaphore(w, &at, 2) != Outcome::kDone) FAIL("not made");
      for (int i = 0; i < 5; ++i) {
        const Outcome o = acquire_permit(w, &at, kSpan);
        REQUIRE(taken(o));
        inside.insert(w.self());
        size_t living = 0;
        for (const uint64_t one : inside) living += world.dead.count(one) == 0 ? 1 : 0;
        REQUIRE(living <= 2);
        (void)w.load(&at.head);
        inside.erase(w.self());
        GIVES(release_permit(w, &at), Outcome::kDone);
      }
    };
    world.run({process, process, process, process});
  }
}

TEST_CASE("a_semaphore_that_was_not_made_or_made_otherwise_is_none") {
  World world;
  SemaphoreMemory at{};
  Memory one(world, 1);
  CHECK(acquire_permit(one, &at, kSpan) == Outcome::kBad);
  CHECK(make_semaphore(one, &at, 0) == Outcome::kBad);
  CHECK(make_semaphore(one, &at, kPermitWords + 1) == Outcome::kBad);
  CHECK(make_semaphore(one, &at, 3) == Outcome::kDone);
  CHECK(make_semaphore(one, &at, 3) == Outcome::kDone);
  CHECK(make_semaphore(one, &at, 4) == Outcome::kBad);
  CHECK(release_permit(one, &at) == Outcome::kNotOwner);
}

TEST_CASE("a_barrier_holds_all_back_until_the_last_comes_again_and_again") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    BarrierMemory at{};
    std::array<int, 4> rounds{};
    const auto process = [&](Words& w) {
      GIVES(make_barrier(w, &at, 3), Outcome::kDone);
      Party party{};
      for (int i = 1; i <= 5; ++i) {
        rounds[w.self()] = i;
        GIVES(pass_barrier(w, &at, kSpan, &party), Outcome::kDone);
        for (size_t other = 1; other < rounds.size(); ++other) REQUIRE(rounds[other] >= i);
      }
    };
    world.run({process, process, process});
  }
}

TEST_CASE("a_party_that_dies_is_dropped_and_all_hear_of_it") {
  for (int point = 0; point < 6; ++point) {
    World world;
    BarrierMemory at{};
    Memory one(world, 1);
    Party party{};
    REQUIRE(make_barrier(one, &at, 2) == Outcome::kDone);
    CHECK(pass_barrier(one, &at, 0, &party) == Outcome::kTimedOut);
    Party other{};
    CHECK(!world.run_alone(
        2,
        [&](Words& w) {
          GIVES(pass_barrier(w, &at, 0, &other), Outcome::kDone);
          (void)pass_barrier(w, &at, 0, &other);
          throw Killed();
        },
        point / 2, point % 2 != 0));
    // Had it not come at all, nobody would know of it.
    if (at.parties[1] == 0) {
      CHECK(pass_barrier(one, &at, kSpan, &party) == Outcome::kTimedOut);
      continue;
    }
    CHECK(taken(pass_barrier(one, &at, kSpan, &party)));
    CHECK(taken(pass_barrier(one, &at, kSpan, &party)));
    CHECK(pass_barrier(one, &at, kSpan, &party) == Outcome::kOwnerDead);
    if (other.place == 0) continue;  // it did not live to know its place
    Memory late(world, 2);
    CHECK(pass_barrier(late, &at, 0, &other) == Outcome::kNotOwner);
  }
}

TEST_CASE("a_latch_opens_once_it_was_counted_down") {
  World world;
  uint64_t latch = 0;
  Memory one(world, 1);
  CHECK(await_latch(one, &latch, 0) == Outcome::kBad);
  CHECK(make_latch(one, &latch, 3) == Outcome::kDone);
  CHECK(count_down(one, &latch, 1, kSpan) == Outcome::kDone);
  CHECK(make_latch(one, &latch, 3) == Outcome::kDone);
  CHECK(await_latch(one, &latch, kSpan) == Outcome::kTimedOut);
  CHECK(count_down(one, &latch, 3, kSpan) == Outcome::kBad);
  CHECK(count_down(one, &latch, 2, kSpan) == Outcome::kDone);
  CHECK(await_latch(one, &latch, 0) == Outcome::kDone);
  latch = 0x77;
  CHECK(await_latch(one, &latch, kSpan) == Outcome::kBad);
  CHECK(count_down(one, &latch, 1, kSpan) == Outcome::kBad);
}

TEST_CASE("who_sleeps_at_a_semaphore_a_barrier_or_a_latch_is_woken") {
  int slept = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    world.sleeps_end_by_time = false;
    SemaphoreMemory semaphore{};
    BarrierMemory barrier{};
    uint64_t latch = 0;
    const auto process = [&](Words& w) {
      GIVES(make_semaphore(w, &semaphore, 1), Outcome::kDone);
      GIVES(make_barrier(w, &barrier, 3), Outcome::kDone);
      GIVES(make_latch(w, &latch, 3), Outcome::kDone);
      Party party{};
      for (int i = 0; i < 3; ++i) {
        GIVES(acquire_permit(w, &semaphore, kSpan), Outcome::kDone);
        (void)w.load(&latch);
        GIVES(release_permit(w, &semaphore), Outcome::kDone);
        GIVES(pass_barrier(w, &barrier, kSpan, &party), Outcome::kDone);
      }
      GIVES(count_down(w, &latch, 1, kSpan), Outcome::kDone);
      GIVES(await_latch(w, &latch, kSpan), Outcome::kDone);
    };
    world.run({process, process, process});
    slept += world.sleeps;
  }
  CHECK(slept > 0);
}

namespace {

constexpr uint32_t kCells = 3;

struct Item {
  uint64_t producer, number;
};

struct QueueScene {
  std::vector<uint64_t> memory =
      std::vector<uint64_t>(queue_bytes(kCells, sizeof(Item)) / sizeof(uint64_t));
  std::map<uint64_t, uint64_t> next;  // by producer: no number below this is still to come
  std::set<std::pair<uint64_t, uint64_t>> pushed, seen;
  bool producing = true;

  void produce(Words& w, uint64_t items) {
    QueueHandle queue{};
    GIVES(open_queue(w, &queue, memory.data(), kCells, sizeof(Item)), Outcome::kDone);
    for (uint64_t i = 0; i < items; ++i) {
      const Item item{w.self(), i};
      Outcome o = Outcome::kOwnerDead;
      while (o == Outcome::kOwnerDead) o = push_item(w, &queue, &item, kSpan);
      REQUIRE(o == Outcome::kDone);
      pushed.insert({item.producer, item.number});
    }
  }
  void consume(Words& w, const std::function<bool()>& enough) {
    QueueHandle queue{};
    GIVES(open_queue(w, &queue, memory.data(), kCells, sizeof(Item)), Outcome::kDone);
    while (!enough()) {
      Item item{};
      const Outcome o = pop_item(w, &queue, &item, 20 * kMilli);
      if (o != Outcome::kDone) {
        REQUIRE((o == Outcome::kOwnerDead || o == Outcome::kTimedOut));
        continue;
      }
      REQUIRE(seen.insert({item.producer, item.number}).second);
    }
  }
};

}  // namespace

TEST_CASE("each_item_of_a_queue_comes_out_once_in_any_schedule") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    QueueScene scene;
    const auto producer = [&](Words& w) { scene.produce(w, 8); };
    const auto consumer = [&](Words& w) {
      scene.consume(w, [&] { return scene.seen.size() >= 16; });
    };
    world.run({producer, producer, consumer, consumer});
    CHECK(scene.seen.size() == 16);
  }
}

TEST_CASE("who_sleeps_at_a_queue_is_woken_by_the_other_side") {
  int slept = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    world.sleeps_end_by_time = false;
    QueueScene scene;
    const auto producer = [&](Words& w) { scene.produce(w, 8); };
    const auto consumer = [&](Words& w) {
      QueueHandle queue{};
      GIVES(open_queue(w, &queue, scene.memory.data(), kCells, sizeof(Item)), Outcome::kDone);
      for (int i = 0; i < 8; ++i) {
        Item item{};
        GIVES(pop_item(w, &queue, &item, kSpan), Outcome::kDone);
      }
    };
    world.run({producer, producer, consumer, consumer});
    slept += world.sleeps;
  }
  CHECK(slept > 0);
}

TEST_CASE("a_queue_works_on_when_producers_and_consumers_die") {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    world.deaths = 0.02;
    world.living_at_least = 3;  // a consumer among them
    QueueScene scene;
    int producing = 2, left = 0;
    const auto producer = [&](Words& w) {
      struct Leaves {
        int& producing;
        ~Leaves() { --producing; }
      } leaves{producing};
      scene.produce(w, 8);
    };
    const auto consumer = [&](Words& w) {
      Nanos until = 0;
      scene.consume(w, [&] {
        if (producing != 0) return false;
        if (until == 0) until = w.time() + kSecond;
        return w.time() > until;
      });
      ++left;
    };
    world.run({producer, producer, consumer, consumer, consumer});
    // Whatever was put in comes out, though consumers have died over some of it.
    REQUIRE(left > 0);
    for (const auto& item : scene.pushed) CHECK(scene.seen.count(item) == 1);
    CHECK(scene.seen.size() + world.dead.size() * 8 >= 16);
  }
}

TEST_CASE("what_a_consumer_died_over_goes_to_one_that_waits") {
  World world;
  std::vector<uint64_t> memory(queue_bytes(kCells, 8) / sizeof(uint64_t));
  Memory one(world, 1);
  QueueHandle queue{};
  REQUIRE(open_queue(one, &queue, memory.data(), kCells, 8) == Outcome::kDone);
  uint64_t item = 7, got = 0;
  REQUIRE(push_item(one, &queue, &item, 0) == Outcome::kDone);
  const auto pop = [&](Words& w) {
    QueueHandle own{};
    GIVES(open_queue(w, &own, memory.data(), kCells, 8), Outcome::kDone);
    (void)pop_item(w, &own, &got, 20 * kMilli);
  };
  for (uint64_t visitor = 2; visitor < 6; ++visitor) {  // some die over it one after the other
    REQUIRE_FALSE(world.run_alone(visitor, pop, 1));
  }
  got = 0;
  CHECK(pop_item(one, &queue, &got, 0) == Outcome::kTimedOut);  // one look
  REQUIRE(pop_item(one, &queue, &got, kMilli) == Outcome::kDone);
  CHECK(got == 7);
  CHECK(pop_item(one, &queue, &got, 20 * kMilli) == Outcome::kTimedOut);
  // One that lives has its time.
  REQUIRE(push_item(one, &queue, &item, 0) == Outcome::kDone);
  REQUIRE_FALSE(world.run_alone(6, pop, 1));
  world.dead.erase(6);
  CHECK(pop_item(one, &queue, &got, 100 * kMilli) == Outcome::kTimedOut);
}

TEST_CASE("a_look_at_a_queue_asks_about_one_consumer_and_all_have_their_turn") {
  constexpr uint32_t kMany = 7;
  World world;
  std::vector<uint64_t> memory(queue_bytes(kMany, 8) / sizeof(uint64_t));
  Memory one(world, 1);
  QueueHandle queue{};
  REQUIRE(open_queue(one, &queue, memory.data(), kMany, 8) == Outcome::kDone);
  for (uint64_t item = 0; item < kMany; ++item) {
    REQUIRE(push_item(one, &queue, &item, 0) == Outcome::kDone);
  }
  for (uint64_t visitor = 2; visitor < 2 + kMany; ++visitor) {
    REQUIRE_FALSE(world.run_alone(
        visitor,
        [&](Words& w) {
          QueueHandle own{};
          uint64_t got = 0;
          GIVES(open_queue(w, &own, memory.data(), kMany, 8), Outcome::kDone);
          (void)pop_item(w, &own, &got, 0);
        },
        1));
  }
  world.dead.clear();
  world.questions = 0;
  uint64_t got = 0;
  CHECK(pop_item(one, &queue, &got, kMilli) == Outcome::kTimedOut);
  CHECK(world.questions <= 2);  // and about the one that holds the next cell
  world.dead.insert(5);
  CHECK(pop_item(one, &queue, &got, 10 * kSecond) == Outcome::kDone);
  CHECK(got == 3);
}

TEST_CASE("what_a_consumer_died_over_comes_again_where_a_producer_finds_it") {
  World world;
  std::vector<uint64_t> memory(queue_bytes(2, 8) / sizeof(uint64_t));
  Memory one(world, 1);
  QueueHandle queue{};
  REQUIRE(open_queue(one, &queue, memory.data(), 2, 8) == Outcome::kDone);
  const auto push = [&](uint64_t item) { return push_item(one, &queue, &item, 20 * kMilli); };
  const auto pop = [&] {
    uint64_t got = 0;
    return pop_item(one, &queue, &got, 0) == Outcome::kDone ? got : 0;
  };
  REQUIRE(push(1) == Outcome::kDone);
  REQUIRE(push(2) == Outcome::kDone);
  REQUIRE_FALSE(world.run_alone(
      2,
      [&](Words& w) {
        QueueHandle own{};
        uint64_t got = 0;
        GIVES(open_queue(w, &own, memory.data(), 2, 8), Outcome::kDone);
        (void)pop_item(w, &own, &got, 0);
      },
      1));
  CHECK(pop() == 2);
  CHECK(push(3) == Outcome::kDone);
  CHECK(pop() == 1);
  CHECK(pop() == 3);
  CHECK(pop() == 0);
  // And so it goes on.
  for (uint64_t item = 4; item < 40; ++item) {
    CHECK(push(item) == Outcome::kDone);
    CHECK(pop() == item);
  }
}

TEST_CASE("items_come_in_the_order_of_their_claims_round_the_turns") {
  World world;
  std::vector<uint64_t> memory(queue_bytes(2, 8) / sizeof(uint64_t));
  Memory one(world, 1);
  QueueHandle queue{};
  REQUIRE(open_queue(one, &queue, memory.data(), 2, 8) == Outcome::kDone);
  for (uint64_t i = 0; i < 2 * Word::kCounts + 100; ++i) {
    REQUIRE(push_item(one, &queue, &i, 0) == Outcome::kDone);
    uint64_t got = 0;
    REQUIRE(pop_item(one, &queue, &got, 0) == Outcome::kDone);
    REQUIRE(got == i);
    if (i % 5000 == 1) {  // a newcomer finds the place
      QueueHandle late{};
      REQUIRE(open_queue(one, &late, memory.data(), 2, 8) == Outcome::kDone);
      REQUIRE(late.put % (uint64_t{Word::kCounts} * 2) ==
              queue.put % (uint64_t{Word::kCounts} * 2));
      queue = late;
    }
  }
  CHECK(pop_item(one, &queue, &memory, 0) == Outcome::kTimedOut);
  const int before = world.swaps;
  uint64_t item = 5;
  CHECK(push_item(one, &queue, &item, 0) == Outcome::kDone);
  CHECK(world.swaps == before + 2);
  CHECK(push_item(one, &queue, &item, 0) == Outcome::kDone);
  CHECK(push_item(one, &queue, &item, 5 * kMilli) == Outcome::kTimedOut);
}

TEST_CASE("a_queue_of_other_sizes_or_of_rubbish_is_none") {
  World world;
  Memory one(world, 1);
  std::mt19937_64 random(3);
  std::vector<uint64_t> memory(queue_bytes(4, 16) / sizeof(uint64_t));
  QueueHandle queue{};
  REQUIRE(open_queue(one, &queue, memory.data(), 4, 16) == Outcome::kDone);
  CHECK(open_queue(one, &queue, memory.data(), 4, 8) == Outcome::kBad);
  CHECK(open_queue(one, &queue, memory.data(), 0, 8) == Outcome::kBad);
  for (int i = 0; i < 400; ++i) {
    for (size_t k = 1; k < memory.size(); k += 3) {
      memory[k] = (random() & ~(uint64_t{0xff} << 56)) | uint64_t{0x20 + random() % 16} << 56;
    }
    uint64_t item[2] = {};
    const Nanos start = world.clock;
    (void)push_item(one, &queue, item, 10 * kMilli);
    (void)pop_item(one, &queue, item, 10 * kMilli);
    QueueHandle other{};
    (void)open_queue(one, &other, memory.data(), 4, 16);
    CHECK(world.clock - start <= 40 * kMilli);
  }
}

}  // namespace cmi::test::shared_objects_test

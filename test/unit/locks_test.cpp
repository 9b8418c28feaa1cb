// The locks of core/locks over plain words: exclusion in random schedules with deaths, each point
// at which an owner or a waiter can die, owners that were declared dead and live on, and words with
// anything in them.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "core/locks/barrier.hpp"
#include "core/locks/mutex.hpp"
#include "core/locks/queue.hpp"
#include "core/locks/semaphore.hpp"
#include "core/locks/shared_mutex.hpp"
#include "core/locks/ticket_lock.hpp"
#include "unit/lock_world.hpp"

namespace cmi::test::locks_test {
using namespace cmi::locks;
using namespace cmi::locks::test;

namespace {

// One word, or one structure, behind one interface, so that a test is made for each kind once.
struct Lock {
  virtual ~Lock() = default;
  virtual Outcome lock(Words& w, Nanos span) = 0;
  virtual Outcome unlock(Words& w) = 0;
  virtual Outcome repaired(Words& w) = 0;
  virtual std::vector<uint64_t*> words() = 0;
};
struct MutexLock : Lock {
  uint64_t word = 0;
  Outcome lock(Words& w, Nanos span) override { return lock_mutex(w, &word, span); }
  Outcome unlock(Words& w) override { return unlock_mutex(w, &word); }
  Outcome repaired(Words& w) override { return repaired_mutex(w, &word); }
  std::vector<uint64_t*> words() override { return {&word}; }
};
struct ExclusiveLock : Lock {
  SharedMutexMemory at{};
  Outcome lock(Words& w, Nanos span) override { return lock_exclusive(w, &at, span); }
  Outcome unlock(Words& w) override { return unlock_exclusive(w, &at); }
  Outcome repaired(Words& w) override { return repaired_exclusive(w, &at); }
  std::vector<uint64_t*> words() override {
    return {&at.exclusive, &at.readers[0], &at.readers[1]};
  }
};
struct TicketLock : Lock {
  TicketLockMemory at{};
  std::array<uint32_t, 8> tickets{};  // of each process, in its own memory
  Outcome lock(Words& w, Nanos span) override {
    return lock_ticket(w, &at, span, &tickets[w.self()]);
  }
  Outcome unlock(Words& w) override { return unlock_ticket(w, &at, tickets[w.self()]); }
  Outcome repaired(Words& w) override { return repaired_ticket(w, &at, tickets[w.self()]); }
  std::vector<uint64_t*> words() override { return {&at.tail, &at.turn, &at.places[1]}; }
};

template <class Body>
void each_lock(Body body) {
  SUBCASE("mutex") {
    body([] { return std::unique_ptr<Lock>(new MutexLock); });
  }
  SUBCASE("shared mutex, exclusively") {
    body([] { return std::unique_ptr<Lock>(new ExclusiveLock); });
  }
  SUBCASE("ticket lock") {
    body([] { return std::unique_ptr<Lock>(new TicketLock); });
  }
}

// Takes and releases, and says in between that it is inside.
void take_turns(Lock& lock, Words& words, int turns, int* inside, int* done) {
  for (int i = 0; i < turns; ++i) {
    const Outcome o = lock.lock(words, kSpan);
    REQUIRE(taken(o));
    // A dead owner that was inside is counted no longer.
    if (o == Outcome::kOwnerDead) {
      *inside = 0;
      GIVES(lock.repaired(words), Outcome::kDone);
    }
    REQUIRE(++*inside == 1);
    (void)words.load(lock.words()[0]);
    --*inside;
    GIVES(lock.unlock(words), Outcome::kDone);
    ++*done;
  }
}

}  // namespace

TEST_CASE("a_lock_is_one_swap_and_so_is_its_release") {
  each_lock([](auto make) {
    World world;
    const auto lock = make();
    Memory one(world, 1), other(world, 2);
    for (Memory* m : {&one, &one, &other, &one}) {
      const int before = world.swaps;
      CHECK(lock->lock(*m, 0) == Outcome::kDone);
      CHECK(world.swaps == before + 1);
      CHECK(lock->unlock(*m) == Outcome::kDone);
      CHECK(world.swaps == before + 2);
    }
    CHECK(world.questions == 0);
  });
}

TEST_CASE("a_mutex_whose_page_is_not_cached_is_taken_by_one_swap_without_a_load") {
  World world;
  MutexLock lock;
  Memory one(world, 1), other(world, 2);
  world.loads_are_free = false;
  CHECK(lock.lock(one, 0) == Outcome::kDone);  // a fresh word is found, and then taken
  CHECK(world.swaps == 2);
  CHECK(lock.unlock(one) == Outcome::kDone);
  for (Memory* m : {&other, &one, &one}) {
    const int swaps = world.swaps, loads = world.loads;
    CHECK(lock.lock(*m, 0) == Outcome::kDone);
    CHECK(world.swaps == swaps + 1);
    CHECK(world.loads == loads);
    CHECK(lock.unlock(*m) == Outcome::kDone);
  }
  // One that is held is not taken, and one whose owner is gone is.
  CHECK(lock.lock(one, 0) == Outcome::kDone);
  CHECK(lock.lock(other, 5 * kMilli) == Outcome::kTimedOut);
  world.dead.insert(1);
  CHECK(lock.lock(other, kSpan) == Outcome::kOwnerDead);
  CHECK(lock.unlock(other) == Outcome::kDone);  // not repaired
  CHECK(lock.lock(other, 0) == Outcome::kOwnerDead);
}

TEST_CASE("one_process_is_inside_whatever_the_schedule") {
  each_lock([](auto make) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      World world(seed);
      world.loads_are_free = seed % 2 == 0;
      const auto lock = make();
      int inside = 0, done = 0;
      const auto process = [&](Words& w) { take_turns(*lock, w, 4, &inside, &done); };
      world.run({process, process, process});
      CHECK(done == 12);
    }
  });
}

TEST_CASE("who_sleeps_at_a_lock_is_woken_by_its_release") {
  each_lock([](auto make) {
    int slept = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      World world(seed);
      world.sleeps_end_by_time = false;
      const auto lock = make();
      int inside = 0, done = 0;
      const auto process = [&](Words& w) { take_turns(*lock, w, 4, &inside, &done); };
      world.run({process, process, process});
      CHECK(done == 12);
      slept += world.sleeps;
    }
    CHECK(slept > 0);
  });
}

TEST_CASE("a_writer_is_woken_by_the_last_reader_and_readers_by_the_writer") {
  int slept = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seed);
    world.sleeps_end_by_time = false;
    SharedMutexMemory at{};
    const auto reader = [&](Words& w) {
      for (int i = 0; i < 4; ++i) {
        GIVES(lock_shared(w, &at, kSpan), Outcome::kDone);
        (void)w.load(&at.exclusive);
        GIVES(unlock_shared(w, &at), Outcome::kDone);
      }
    };
    const auto writer = [&](Words& w) {
      for (int i = 0; i < 4; ++i) {
        GIVES(lock_exclusive(w, &at, kSpan), Outcome::kDone);
        (void)w.load(&at.exclusive);
        GIVES(unlock_exclusive(w, &at), Outcome::kDone);
      }
    };
    world.run({reader, writer, reader});
    slept += world.sleeps;
  }
  CHECK(slept > 0);
}

TEST_CASE("processes_that_die_anywhere_leave_the_lock_to_the_others") {
  each_lock([](auto make) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      World world(seed);
      world.deaths = 0.05;
      world.loads_are_free = seed % 2 == 0;
      const auto lock = make();
      int inside = 0, done = 0;
      const auto process = [&](Words& w) { take_turns(*lock, w, 6, &inside, &done); };
      world.run({process, process, process, process});
      CHECK(done >= 6);  // at least one is left
    }
  });
}

TEST_CASE("each_point_of_an_owners_death_is_found_and_told_once") {
  each_lock([](auto make) {
    for (int point = 0; point < 8; ++point) {
      const auto lock = make();
      World world;
      bool was_inside = false;
      const bool lived = world.run_alone(
          1,
          [&](Words& w) {
            GIVES(lock->lock(w, kSpan), Outcome::kDone);
            was_inside = true;
            GIVES(lock->unlock(w), Outcome::kDone);
            was_inside = false;
          },
          point / 2, point % 2 != 0);
      Memory next(world, 2);
      const Outcome o = lock->lock(next, kSpan);
      REQUIRE(taken(o));
      if (was_inside && point % 2 == 0) CHECK(o == Outcome::kOwnerDead);
      if (lived) CHECK(o == Outcome::kDone);
      // Not repaired: whoever comes next is told, too.
      CHECK(lock->unlock(next) == Outcome::kDone);
      CHECK(lock->lock(next, kSpan) == o);
      if (o == Outcome::kOwnerDead) CHECK(lock->repaired(next) == Outcome::kDone);
      CHECK(lock->unlock(next) == Outcome::kDone);
      CHECK(lock->lock(next, kSpan) == Outcome::kDone);
    }
  });
}

TEST_CASE("an_owner_that_was_declared_dead_and_lives_cannot_release") {
  each_lock([](auto make) {
    World world;
    const auto lock = make();
    Memory one(world, 1), next(world, 2);
    CHECK(lock->lock(one, 0) == Outcome::kDone);
    world.dead.insert(1);
    CHECK(lock->lock(next, kSpan) == Outcome::kOwnerDead);
    CHECK(lock->unlock(one) == Outcome::kNotOwner);
    CHECK(lock->repaired(one) == Outcome::kNotOwner);
    CHECK(lock->unlock(next) == Outcome::kDone);
    CHECK(lock->unlock(one) == Outcome::kNotOwner);
    // Nor may it swap at all: the home takes nothing from it.
    world.cut_off.insert(1);
    CHECK(lock->lock(one, 0) == Outcome::kFailed);
  });
}

TEST_CASE("waiting_ends_at_the_deadline_and_asks_seldom") {
  each_lock([](auto make) {
    World world;
    const auto lock = make();
    Memory one(world, 1), next(world, 2), third(world, 3);
    CHECK(lock->lock(one, 0) == Outcome::kDone);
    const Nanos start = world.clock;
    CHECK(lock->lock(next, 2 * kSecond) == Outcome::kTimedOut);
    CHECK(world.clock - start <= 2 * kSecond + 2 * kMilli);
    CHECK(world.questions >= 2);
    CHECK(world.questions <= 20);
    CHECK(lock->lock(next, 0) == Outcome::kTimedOut);
    CHECK(lock->unlock(one) == Outcome::kDone);
    CHECK(lock->lock(third, 0) == Outcome::kDone);
  });
}

TEST_CASE("whatever_lies_in_the_words_is_an_outcome_and_no_hang") {
  each_lock([](auto make) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 400; ++i) {
      World world;
      const auto lock = make();
      for (uint64_t* word : lock->words()) {
        *word = random();
        // Half of them of a right kind.
        if (random() % 2 == 0) {
          *word = (*word & ~(uint64_t{0xff} << 56)) | (uint64_t{0x20} + random() % 14) << 56;
        }
      }
      Memory one(world, 1);
      const Nanos start = world.clock;
      const Outcome o = lock->lock(one, 100 * kMilli);
      if (taken(o)) CHECK(lock->unlock(one) != Outcome::kFailed);
      CHECK(world.clock - start <= 300 * kMilli);
      (void)lock->unlock(one);
      (void)lock->repaired(one);
    }
    World world;
    const auto lock = make();
    *lock->words()[0] = 0x1234567812345678;
    Memory one(world, 1);
    CHECK(lock->lock(one, 0) == Outcome::kBad);
    CHECK(lock->unlock(one) == Outcome::kBad);
  });
}

TEST_CASE("tickets_go_by_the_order_of_coming_and_round_the_number") {
  World world;
  TicketLock lock;
  Memory one(world, 1), other(world, 2);
  for (uint32_t i = 0; i < 3 * Word::kCounts; ++i) {
    REQUIRE(lock.lock(one, 0) == Outcome::kDone);
    REQUIRE(lock.unlock(one) == Outcome::kDone);
  }
  // Now and then somebody waits, which writes a place that later tickets pass again.
  for (uint32_t i = 0; i < Word::kCounts + 200; ++i) {
    REQUIRE(lock.lock(one, 0) == Outcome::kDone);
    if (i % 997 == 0) REQUIRE(lock.lock(other, 2 * kMilli) == Outcome::kTimedOut);
    REQUIRE(lock.unlock(one) == Outcome::kDone);
  }
  CHECK(lock.lock(other, 0) == Outcome::kDone);
}

TEST_CASE("a_waiter_that_dies_in_the_line_is_passed_over") {
  for (int point = 0; point < 6; ++point) {
    World world;
    TicketLock lock;
    Memory one(world, 1);
    REQUIRE(lock.lock(one, 0) == Outcome::kDone);
    CHECK(!world.run_alone(
        2,
        [&](Words& w) {
          (void)lock.lock(w, 20 * kMilli);
          throw Killed();
        },
        point / 2, point % 2 != 0));
    CHECK(lock.lock(one, 0) == Outcome::kTimedOut);
    CHECK(lock.unlock(one) == Outcome::kDone);
    Memory next(world, 3);
    CHECK(taken(lock.lock(next, kSpan)));
    CHECK(lock.unlock(next) == Outcome::kDone);
  }
}

TEST_CASE("readers_are_together_and_a_writer_alone") {
  for (const double deaths : {0.0, 0.03}) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      World world(seed);
      world.deaths = deaths;
      SharedMutexMemory at{};
      std::set<uint64_t> reading;
      uint64_t writing = 0;
      const auto living_readers = [&] {
        return std::any_of(reading.begin(), reading.end(),
                           [&](uint64_t r) { return world.dead.count(r) == 0; });
      };
      const auto process = [&](Words& w) {
        for (int i = 0; i < 5; ++i) {
          if (w.self() % 2 != 0) {
            const Outcome o = lock_shared(w, &at, kSpan);
            if (o == Outcome::kOwnerDead) continue;  // until a writer has repaired
            REQUIRE(o == Outcome::kDone);
            REQUIRE((writing == 0 || world.dead.count(writing) != 0));
            reading.insert(w.self());
            (void)w.load(&at.exclusive);
            reading.erase(w.self());
            GIVES(unlock_shared(w, &at), Outcome::kDone);
            continue;
          }
          const Outcome o = lock_exclusive(w, &at, kSpan);
          REQUIRE(taken(o));
          if (o == Outcome::kOwnerDead) GIVES(repaired_exclusive(w, &at), Outcome::kDone);
          REQUIRE(!living_readers());
          writing = w.self();
          (void)w.load(&at.exclusive);
          writing = 0;
          GIVES(unlock_exclusive(w, &at), Outcome::kDone);
        }
      };
      world.run({process, process, process, process});
    }
  }
}

TEST_CASE("no_reader_enters_before_a_dead_writer_was_repaired") {
  World world;
  SharedMutexMemory at{};
  Memory writer(world, 1), reader(world, 2);
  CHECK(lock_exclusive(writer, &at, 0) == Outcome::kDone);
  world.dead.insert(1);
  CHECK(lock_shared(reader, &at, kSpan) == Outcome::kOwnerDead);
  CHECK(lock_exclusive(reader, &at, kSpan) == Outcome::kOwnerDead);
  CHECK(unlock_exclusive(reader, &at) == Outcome::kDone);
  CHECK(lock_shared(reader, &at, kSpan) == Outcome::kOwnerDead);
  CHECK(lock_exclusive(reader, &at, 0) == Outcome::kOwnerDead);
  CHECK(repaired_exclusive(reader, &at) == Outcome::kDone);
  CHECK(unlock_exclusive(reader, &at) == Outcome::kDone);
  CHECK(lock_shared(reader, &at, 0) == Outcome::kDone);
  CHECK(unlock_shared(reader, &at) == Outcome::kDone);
  CHECK(unlock_shared(reader, &at) == Outcome::kNotOwner);
}

}  // namespace cmi::test::locks_test

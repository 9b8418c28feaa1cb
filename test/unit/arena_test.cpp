// Blocks of core/locks/arena over plain memory: no block is handed out twice, whatever dies where,
// and a transaction is there as a whole or not at all.
#include "core/locks/arena.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "unit/lock_world.hpp"

namespace cmi::test::arena_test {
using namespace cmi::locks;
using namespace cmi::locks::test;

namespace {

constexpr uint32_t kShift = 12;
constexpr size_t kSize = 12 * 4096;

struct alignas(4096) Space {
  std::array<std::byte, kSize> bytes{};
};

struct Scene {
  std::unique_ptr<Space> space = std::make_unique<Space>();
  Arena open(Words& w) {
    Arena arena;
    GIVES(open_arena(w, &arena, space.get(), kSize, kShift), Outcome::kDone);
    return arena;
  }
};

// All that is left, taken by one client: how many blocks of that size.
std::set<void*> take_all(Words& w, Arena& arena, size_t size) {
  std::set<void*> blocks;
  for (;;) {
    void* block = nullptr;
    const Outcome o = allocate_block(w, &arena, size, &block);
    if (o == Outcome::kTimedOut) return blocks;
    REQUIRE(o == Outcome::kDone);
    REQUIRE(blocks.insert(block).second);
  }
}

}  // namespace

TEST_CASE("blocks_lie_apart_at_multiples_of_their_size_and_come_again_when_freed") {
  World world;
  Scene scene;
  Memory one(world, 1);
  Arena arena = scene.open(one);
  CHECK(arena.regions == 10);
  const std::set<void*> small = take_all(one, arena, 200);
  CHECK(small.size() == 160);
  for (void* block : small) {
    CHECK(reinterpret_cast<uintptr_t>(block) % 256 == 0);
    CHECK(static_cast<std::byte*>(block) >= scene.space->bytes.data() + 4096);
    CHECK(static_cast<std::byte*>(block) + 256 <= scene.space->bytes.data() + 11 * 4096);
  }
  void* block = nullptr;
  CHECK(allocate_block(one, &arena, 4096, &block) ==
        Outcome::kTimedOut);  // regions keep their class
  CHECK(allocate_block(one, &arena, 4097, &block) == Outcome::kBad);
  CHECK(allocate_block(one, &arena, 0, &block) == Outcome::kBad);
  CHECK(commit_arena(one, &arena) == Outcome::kDone);
  CHECK(free_block(one, &arena, *small.begin()) == Outcome::kDone);
  CHECK(free_block(one, &arena, *small.begin()) == Outcome::kBad);
  CHECK(allocate_block(one, &arena, 200, &block) == Outcome::kTimedOut);  // not before the commit
  CHECK(commit_arena(one, &arena) == Outcome::kDone);
  CHECK(allocate_block(one, &arena, 200, &block) == Outcome::kDone);
  CHECK(block == *small.begin());
  CHECK(abort_arena(one, &arena) == Outcome::kDone);
  CHECK(allocate_block(one, &arena, 130, &block) == Outcome::kDone);
  CHECK(block == *small.begin());
  CHECK(free_block(one, &arena, static_cast<std::byte*>(block) + 8) == Outcome::kBad);
  CHECK(free_block(one, &arena, &block) == Outcome::kBad);
  Arena other;
  CHECK(open_arena(one, &other, scene.space.get(), kSize, kShift + 1) == Outcome::kBad);
  CHECK(open_arena(one, &other, scene.space.get(), 4096, kShift) == Outcome::kBad);
}

TEST_CASE("each_point_of_a_clients_death_leaves_a_transaction_whole_or_undone") {
  bool lived = false;
  int points = 0;
  for (int point = 0; !lived; ++point, ++points) {
    REQUIRE(point < 200);
    World world;
    Scene scene;
    void *a = nullptr, *b = nullptr, *c = nullptr;
    lived = world.run_alone(
        1,
        [&](Words& w) {
          Arena arena = scene.open(w);
          (void)allocate_block(w, &arena, 100, &a);
          (void)allocate_block(w, &arena, 300, &b);
          (void)commit_arena(w, &arena);
          (void)allocate_block(w, &arena, 100, &c);
          (void)free_block(w, &arena, a);
          (void)commit_arena(w, &arena);
          (void)allocate_block(w, &arena, 100, &a);  // and dies
        },
        point / 2, point % 2 != 0);
    world.dead.insert(1);
    Memory next(world, 2);
    Arena arena = scene.open(next);
    uint64_t ended = 0;
    REQUIRE(sweep_arena(next, &arena, &ended) == Outcome::kDone);
    REQUIRE(sweep_arena(next, &arena, &ended) == Outcome::kDone);
    CHECK(ended == 0);
    // What is kept can be freed: {}, {a, b}, or {b, c}.
    const auto kept = [&](void* block) {
      return block != nullptr && free_block(next, &arena, block) == Outcome::kDone;
    };
    void* const first = a == c ? nullptr : a;
    const bool has_b = kept(b), has_c = kept(c), has_a = kept(first);
    CHECK(has_b == (has_a || has_c));
    CHECK(!(has_a && has_c));
    REQUIRE(commit_arena(next, &arena) == Outcome::kDone);
    // Nothing was lost: all regions can be filled, whatever their classes.
    size_t bytes = 0;
    for (const size_t size : {128, 512, 4096}) bytes += take_all(next, arena, size).size() * size;
    CHECK(bytes == arena.regions * size_t{4096});
  }
  CHECK(points > 20);
}

TEST_CASE("no_block_is_handed_out_twice_in_any_schedule_with_deaths") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    World world(seed);
    world.deaths = 0.02;
    Scene scene;
    std::map<void*, uint64_t> owners;  // of blocks that a living client has, new or kept
    const auto client = [&](Words& w) {
      Arena arena = scene.open(w);
      std::vector<void*> mine;
      for (int i = 0; i < 12; ++i) {
        void* block = nullptr;
        const Outcome o = allocate_block(w, &arena, i % 3 == 0 ? 1024 : 2048, &block);
        if (o == Outcome::kDone) {
          const auto it = owners.find(block);
          REQUIRE((it == owners.end() || world.dead.count(it->second) != 0));
          owners[block] = w.self();
          mine.push_back(block);
        } else {
          REQUIRE(o == Outcome::kTimedOut);
        }
        if (i % 2 == 0) GIVES(commit_arena(w, &arena), Outcome::kDone);
        if (i % 5 == 4 && !mine.empty()) {
          owners.erase(mine.front());
          GIVES(free_block(w, &arena, mine.front()), Outcome::kDone);
          mine.erase(mine.begin());
        }
        uint64_t ended = 0;
        if (i % 4 == 3) GIVES(sweep_arena(w, &arena, &ended), Outcome::kDone);
      }
      GIVES(commit_arena(w, &arena), Outcome::kDone);
      for (void* block : mine) {
        owners.erase(block);
        GIVES(free_block(w, &arena, block), Outcome::kDone);
      }
      GIVES(commit_arena(w, &arena), Outcome::kDone);
    };
    world.run({client, client, client});
  }
}

TEST_CASE("an_arena_of_rubbish_is_an_outcome_and_no_hang") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i) {
    World world;
    Scene scene;
    Memory one(world, 1);
    Arena arena = scene.open(one);
    auto* const words = reinterpret_cast<uint64_t*>(scene.space->bytes.data());
    for (int k = 0; k < 60; ++k) {
      words[random() % (kSize / 8)] =
          (random() & ~(uint64_t{0xff} << 56)) | uint64_t{0x20 + random() % 18} << 56;
      words[2 + random() % 80] = random() % 2 == 0 ? random() : words[random() % 80];
    }
    void* block = nullptr;
    (void)allocate_block(one, &arena, 128, &block);
    (void)free_block(one, &arena, scene.space->bytes.data() + 4096 * (random() % 12));
    uint64_t ended = 0;
    (void)sweep_arena(one, &arena, &ended);
    (void)commit_arena(one, &arena);
    CHECK((block == nullptr || (block >= scene.space->bytes.data() + 4096 &&
                                block < scene.space->bytes.data() + 11 * 4096)));
  }
}

}  // namespace cmi::test::arena_test

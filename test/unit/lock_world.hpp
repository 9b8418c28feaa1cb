// Memory for the locks of core/locks in which processes take turns as a seed says, and die between
// any two swaps. Each process is a fiber; loads, swaps and pauses let another one go on.
#pragma once

#include <doctest/doctest.h>
#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/locks/words.hpp"
#include "support/sanitized.hpp"

// The address sanitizer has to know which stack is in use.
extern "C" void __sanitizer_start_switch_fiber(void** fake, const void* bottom, size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void* fake, const void** bottom, size_t* size);

namespace cmi::locks::test {

inline constexpr Nanos kSpan = 10 * kSecond;
inline constexpr uint64_t kSeeds = 60;

inline bool taken(Outcome o) { return o == Outcome::kDone || o == Outcome::kOwnerDead; }

struct Killed {};

// A death in the call is none of the assertion's.
#define GIVES(call, outcome)     \
  do {                           \
    const auto given = (call);   \
    REQUIRE(given == (outcome)); \
  } while (false)

class World {
 public:
  explicit World(uint64_t seed = 1) : random_(seed) {}

  // Runs them to their ends. Process i is named i + 1.
  void run(const std::vector<std::function<void(Words&)>>& processes);

  // Alone, without fibers. `kill_at`: before the swap of this number, counted from 0 on, or after
  // it where `after`.
  bool run_alone(uint64_t name, const std::function<void(Words&)>& body, int kill_at = -1,
                 bool after = false);

  std::set<uint64_t> dead;     // by the home's verdict
  std::set<uint64_t> cut_off;  // declared dead, and alive
  double deaths = 0;           // per step, of processes that run() runs
  size_t living_at_least = 1;
  bool loads_are_free = true;
  bool sleeps_end_by_time = true;  // else: by wake() alone, where one word is awaited
  int swaps = 0, loads = 0, questions = 0, sleeps = 0;
  Nanos clock = kSecond;

  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }

 private:
  friend class Memory;
  void step(bool swap);
  struct Sleeper {
    const uint64_t* at;
    bool woken = false;
  };
  void sleep(const uint64_t* at);
  void wake(const uint64_t* at, Woken who);
  static constexpr size_t kStack = 256 * 1024;
  struct Fiber {
    uint64_t name = 0;
    const std::function<void(Words&)>* body = nullptr;
    std::unique_ptr<std::byte[]> stack;
    ucontext_t context{};
    bool ended = false;
  };
  static void enter(unsigned high, unsigned low);
  void resume(Fiber& fiber);
  void leave(Fiber& fiber);
  void live(Fiber& fiber);

  std::mt19937_64 random_;
  std::vector<std::shared_ptr<Sleeper>> sleepers_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  ucontext_t outside_{};
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
  bool failed_ = false;
};

class Memory final : public Words {
 public:
  Memory(World& world, uint64_t name) : world_(world), name_(name) {}

  int swap(uint64_t* at, uint64_t expected, uint64_t desired, uint64_t* found) override {
    world_.step(true);
    if (kill_at == world_.swaps && !kill_after) throw Killed();
    if (world_.cut_off.count(name_) != 0) return -1;
    *found = *at;
    if (*found == expected) *at = desired;
    if (world_.swaps++ == kill_at && kill_after) throw Killed();
    return 0;
  }
  uint64_t load(const uint64_t* at) override {
    world_.step(false);
    ++world_.loads;
    return *at;
  }
  bool at_hand(const uint64_t*) override { return world_.loads_are_free; }
  uint64_t self() override { return name_; }
  int gone(uint64_t holder) override {
    ++world_.questions;
    return world_.dead.count(holder) != 0 ? 1 : 0;
  }
  Nanos time() override { return world_.clock; }
  void pause(uint32_t, Nanos, const Awaited& awaited) override {
    world_.clock += kMilli;
    if (world_.sleeps_end_by_time || awaited.at == nullptr) return world_.step(false);
    if (*awaited.at == awaited.seen) world_.sleep(awaited.at);
  }
  void wake(const uint64_t* at, Woken who) override { world_.wake(at, who); }

  int kill_at = -1;
  bool kill_after = false;

 private:
  World& world_;
  const uint64_t name_;
};

inline void World::resume(Fiber& fiber) {
  void* fake = nullptr;
  if constexpr (cmi::test::kSanitized) {
    __sanitizer_start_switch_fiber(&fake, fiber.stack.get(), kStack);
  }
  ::swapcontext(&outside_, &fiber.context);
  if constexpr (cmi::test::kSanitized) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

inline void World::leave(Fiber& fiber) {
  void* fake = nullptr;
  if constexpr (cmi::test::kSanitized) {
    __sanitizer_start_switch_fiber(fiber.ended ? nullptr : &fake, outside_stack_, outside_bytes_);
  }
  ::swapcontext(&fiber.context, &outside_);
  if constexpr (cmi::test::kSanitized) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

inline void World::step(bool swap) {
  if (running_ == nullptr) return;
  // A death between two loads is one before the next swap.
  size_t living = 0;
  for (const auto& fiber : fibers_) living += fiber->ended ? 0 : 1;
  if (swap && living > living_at_least && chance(deaths)) throw Killed();
  leave(*running_);
}

inline void World::sleep(const uint64_t* at) {
  const auto sleeper = std::make_shared<Sleeper>(Sleeper{at});
  sleepers_.push_back(sleeper);
  ++sleeps;
  for (int i = 0; !sleeper->woken; ++i) {
    if (i > 20000) throw std::runtime_error("nobody wakes a sleeper");
    step(false);
  }
}

inline void World::wake(const uint64_t* at, Woken who) {
  for (auto it = sleepers_.begin(); it != sleepers_.end();) {
    if ((*it)->at != at) {
      ++it;
      continue;
    }
    (*it)->woken = true;
    it = sleepers_.erase(it);
    if (who == Woken::kOne) return;
  }
}

inline void World::enter(unsigned high, unsigned low) {
  auto* const world = reinterpret_cast<World*>(uintptr_t{high} << 32 | low);
  if constexpr (cmi::test::kSanitized) {
    __sanitizer_finish_switch_fiber(nullptr, &world->outside_stack_, &world->outside_bytes_);
  }
  world->live(*world->running_);
  world->leave(*world->running_);
}

inline void World::live(Fiber& fiber) {
  Memory memory(*this, fiber.name);
  try {
    (*fiber.body)(memory);
  } catch (const Killed&) {
    dead.insert(fiber.name);
  } catch (...) {  // a REQUIRE of doctest's, which must not leave the fiber
    failed_ = true;
  }
  fiber.ended = true;
}

inline void World::run(const std::vector<std::function<void(Words&)>>& processes) {
  const auto self = reinterpret_cast<uintptr_t>(this);
  for (const auto& process : processes) {
    auto fiber = std::make_unique<Fiber>();
    fiber->name = fibers_.size() + 1;
    fiber->body = &process;
    fiber->stack = std::make_unique<std::byte[]>(kStack);
    ::getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = kStack;
    ::makecontext(&fiber->context, reinterpret_cast<void (*)()>(&World::enter), 2,
                  static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
    fibers_.push_back(std::move(fiber));
  }
  for (std::vector<Fiber*> left;; left.clear()) {
    for (const auto& fiber : fibers_) {
      if (!fiber->ended) left.push_back(fiber.get());
    }
    if (left.empty()) break;
    running_ = left[random_() % left.size()];
    resume(*running_);
  }
  running_ = nullptr;
  fibers_.clear();
  REQUIRE(!failed_);
}

inline bool World::run_alone(uint64_t name, const std::function<void(Words&)>& body, int kill_at,
                             bool after) {
  Memory memory(*this, name);
  memory.kill_at = kill_at < 0 ? -1 : swaps + kill_at;
  memory.kill_after = after;
  try {
    body(memory);
    return true;
  } catch (const Killed&) {
    dead.insert(name);
    return false;
  }
}

}  // namespace cmi::locks::test

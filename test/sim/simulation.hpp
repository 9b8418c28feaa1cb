// Threads of several nodes that take turns on one thread of the kernel: a seed decides after each
// step which of them goes on, and the clock moves by what they do. So a test sees interleavings
// that processes show one time in thousands, and shows the same ones in each run.
//
//   Simulation simulation(7);
//   simulation.spawn(0, [&] { ... });           // a thread of node 0
//   simulation.spawn_service(0, [&](auto& stop) { ... });  // one that runs until it is told to
//   stop simulation.run();                           // until all threads but services have ended
//
// The library yields by core/base/schedule.hpp: at locks, fault points, waits and looks at the
// clock. Now and then some threads get far more turns than others, so that what is late is very
// late.
#pragma once

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/schedule.hpp"

namespace cmi::test {

class Simulation final : public Schedule {
 public:
  explicit Simulation(uint32_t seed);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  using Body = std::function<void()>;
  // `stop` becomes true when the simulation has to end.
  using Service = std::function<void(const bool& stop)>;
  void spawn(int node, Body body);
  void spawn_service(int node, Service service);
  // Runs all threads until those that are not services have ended. Rethrows what the first of them
  // threw, and throws std::runtime_error where they do not end: the simulation is over then, and
  // what its threads hold is theirs for good.
  void run();
  // Runs the services to their ends.
  void stop();
  // False after run() has thrown.
  bool sound() const { return sound_; }

  // The fault points of CMI_FAULT_POINT act at this node alone; -1: at all.
  void arm_faults(int node);

  int64_t now() override { return time_ += kLook; }
  void pass(const char* where) override;
  void idle(int64_t nanos) override;
  bool faults_here() const override;

 private:
  struct Fiber;
  static constexpr int64_t kLook = 20, kStep = 100, kIdle = 400, kLongestIdle = 50 * kMicro;
  static constexpr uint64_t kMostTurns = 40'000'000;  // of one run()
  static constexpr uint32_t kTurnsOfWeights = 256;

  static void enter(unsigned high, unsigned low);
  void add(int node, Body body, bool service);
  void loop(bool services);
  void weigh();
  Fiber* choose(const Fiber* but);
  void switch_to(Fiber* next);
  void leave();

  std::minstd_rand random_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  jmp_buf outside_{};
  int64_t time_ = kSecond;
  uint64_t turns_ = 0, end_of_turns_ = 0;
  uint32_t idles_ = 0;          // in a row
  uint32_t until_weights_ = 0;  // turns
  int faults_at_ = -1;
  bool stop_ = false, sound_ = true;
  std::exception_ptr thrown_;
};

}  // namespace cmi::test

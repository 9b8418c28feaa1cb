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
//
// Where the whole library runs, with its public calls, a node is a process of the simulation: it
// has values of its own of the library's global variables (variables.hpp) and an environment of its
// own, and its threads are what pthread_create() makes (processes/system_calls.cpp).
#pragma once

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/schedule.hpp"
#include "sim/variables.hpp"
#include "support/stack_in_use.hpp"

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

  // ---- Processes ----
  using Environment = std::map<std::string, std::string>;
  // Its number: the node of its threads. Time may pass in longer steps from now on, and a thread
  // that looks at the clock again and again gives way.
  int add_process(Environment environment);
  // Its threads stop where they are, or go on.
  void hold(int process, bool held);
  bool held(int process) const { return processes_.at(process).held; }
  // Its threads never go on.
  void end_process(int process);
  // Calls `what`, which must not wait, with the values of the process in its variables.
  void within(int process, const std::function<void()>& what);
  // Begins a thread of the process, which is a service as far as run() is concerned. Its number.
  uint64_t start(int process, Body body);
  bool has_ended(uint64_t thread) const;
  // The calling thread sleeps until another one, or nobody but the test, wakes it.
  void park();
  void wake(uint64_t thread);
  // Until `done`, or until `at_most` has passed. False: it has passed. Throws as run() does.
  bool run_until(const std::function<bool()>& done, Nanos at_most);

  // Of the calling thread. False, and -1: the test itself, outside of all threads.
  bool inside() const { return running_ != nullptr; }
  int process() const;
  // A variable of the calling thread's process; null: it has none of this name.
  const char* variable(const std::string& name) const;
  uint64_t random() { return uint64_t{random_()} << 32 ^ random_(); }

  int64_t now() override;
  void pass(const char* where) override;
  void idle(int64_t nanos) override;
  bool faults_here() const override;
  uint64_t thread() const override;

 private:
  struct Fiber;
  static constexpr int64_t kLook = 20, kStep = 100, kIdle = 400, kLongestIdle = 50 * kMicro;
  // Of processes: the shortest and the longest step where all wait.
  static constexpr int64_t kShortestLeap = 200 * kMicro, kLongestLeap = 10 * kMilli,
                           kOutsideLook = 50 * kMicro;
  static constexpr uint32_t kLooksInARow = 64, kAwake = 8;
  static constexpr int kFirstProcess = 1000;
  static constexpr uint64_t kMostTurns = 40'000'000;  // of one run()
  static constexpr uint32_t kTurnsOfWeights = 256;

  static void enter(unsigned high, unsigned low);
  struct Process {
    Environment environment;
    Variables::Values values;
    bool held = false, ended = false;
  };
  Fiber& add(int node, Body body, bool service);
  void check_turns();
  bool can_run(const Fiber& fiber) const;
  uint32_t weight_of(const Fiber& fiber) const;
  int64_t leap();
  void switch_process(int to);
  void loop(bool services);
  void weigh();
  Fiber* choose(const Fiber* but);
  void switch_to(Fiber* next);
  void arrive();
  void leave();

  std::minstd_rand random_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  jmp_buf outside_{};
  StackInUse outside_stack_;    // of the test's own thread
  StackInUse* left_ = nullptr;  // before the one that runs
  int64_t time_ = kSecond;
  uint64_t turns_ = 0, end_of_turns_ = 0;
  uint32_t idles_ = 0;          // in a row
  uint32_t until_weights_ = 0;  // turns
  int faults_at_ = -1;
  // Processes by their numbers; 0: the rest of the program. present_ is the one whose values are in
  // the variables.
  std::map<int, Process> processes_;
  int present_ = 0;
  Variables::Values outside_values_;  // of the test's own thread, while another one runs
  const Variables::Values fresh_thread_, fresh_process_;
  uint64_t last_thread_ = 0;
  uint32_t looks_ = 0;           // at the clock, since the last turn
  int64_t look_at_ = INT64_MAX;  // when run_until() has to look
  bool stop_ = false, sound_ = true;
  std::exception_ptr thrown_;
};

}  // namespace cmi::test

// Fibers, and the choice of the next one.
#include "sim/simulation.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/base/fault_point.hpp"

namespace cmi::test {

namespace {
constexpr size_t kStack = 512 * 1024, kGuardPage = 4096;

// doctest gives the thread an alternate stack for signals. Fibers that fault at once would share
// it, where the library serves faults on the stack that the signal came to (a sanitizer's build).
void give_up_alternate_stack() {
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
}
}  // namespace

struct Simulation::Fiber {
  int node = 0;
  uint64_t number = 0;
  bool service = false, begun = false, ended = false, parked = false;
  bool ends_its_process = false;  // it goes on, until it parks
  uint32_t weight = 1;
  int64_t idle_until = 0;
  Body body;
  ucontext_t context{};         // where it begins
  jmp_buf here{};               // where it goes on
  std::byte* memory = nullptr;  // a guard page and the stack
  StackInUse stack;
  Variables::Values values;

  ~Fiber() {
    if (memory != nullptr) ::munmap(memory, kStack + kGuardPage);
  }
};

Simulation::Simulation(uint32_t seed)
    : random_(seed + 1),
      fresh_thread_(thread_variables().get()),
      fresh_process_(process_variables().get()) {
  if (t_schedule != nullptr) throw std::logic_error("two simulations at once");
  t_schedule = this;
  give_up_alternate_stack();
  g_fault_points_armed.store(true);
}

Simulation::~Simulation() {
  t_schedule = nullptr;
  arm_fault_points();
}

// Fault points are where others may go first, whether any is set or not.
void Simulation::arm_faults(int node) {
  faults_at_ = node;
  arm_fault_points();
  g_fault_points_armed.store(true);
}

void Simulation::spawn(int node, Body body) { add(node, std::move(body), false); }

void Simulation::spawn_service(int node, Service service) {
  add(
      node, [this, service = std::move(service)] { service(stop_); }, true);
}

Simulation::Fiber& Simulation::add(int node, Body body, bool service) {
  auto fiber = std::make_unique<Fiber>();
  fiber->node = node;
  fiber->number = ++last_thread_;
  fiber->values = fresh_thread_;
  fiber->service = service;
  fiber->body = std::move(body);
  void* at = ::mmap(nullptr, kStack + kGuardPage, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  fiber->memory = static_cast<std::byte*>(at);
  ::mprotect(fiber->memory, kGuardPage, PROT_NONE);
  fiber->stack = {fiber->memory + kGuardPage, kStack};
  fresh_stack(fiber->stack);
  ::getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->memory + kGuardPage;
  fiber->context.uc_stack.ss_size = kStack;
  fiber->context.uc_link = nullptr;
  const auto self = reinterpret_cast<uint64_t>(this);
  ::makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Simulation::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  fibers_.push_back(std::move(fiber));
  return *fibers_.back();
}

void Simulation::enter(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Simulation*>(uint64_t{high} << 32 | low);
  self->arrive();
  try {
    self->running_->body();
  } catch (...) {
    if (!self->thrown_) self->thrown_ = std::current_exception();
  }
  self->running_->ended = true;
  self->leave();
}

// The last turn of a fiber: another one goes on, or run().
void Simulation::leave() { switch_to(choose(running_)); }

void Simulation::run() {
  stop_ = false;
  loop(false);
}

void Simulation::stop() {
  stop_ = true;
  loop(true);
}

void Simulation::loop(bool services) {
  end_of_turns_ = turns_ + kMostTurns;
  const auto goes_on = [&] {
    return std::any_of(fibers_.begin(), fibers_.end(),
                       [&](const auto& f) { return !f->ended && (services || !f->service); });
  };
  while (goes_on() && !thrown_) {
    if (turns_ > end_of_turns_) break;
    switch_to(choose(nullptr));
  }
  check_turns();
}

// What the turns so far have come to.
void Simulation::check_turns() {
  if (!thrown_ && turns_ > end_of_turns_) {
    thrown_ = std::make_exception_ptr(std::runtime_error("the simulation does not end"));
  }
  if (thrown_) {
    sound_ = false;
    std::rethrow_exception(thrown_);
  }
  std::erase_if(fibers_, [](const auto& f) { return f->ended; });
}

bool Simulation::run_until(const std::function<bool()>& done, Nanos at_most) {
  end_of_turns_ = turns_ + kMostTurns;
  look_at_ = time_ + at_most;
  while (!done() && time_ < look_at_ && !thrown_ && turns_ <= end_of_turns_) {
    if (Fiber* next = choose(nullptr); next != nullptr) {
      switch_to(next);
    } else {
      time_ = look_at_;  // all of them sleep
    }
  }
  look_at_ = INT64_MAX;
  check_turns();
  return done();
}

int Simulation::add_process(Environment environment) {
  const int number = kFirstProcess + static_cast<int>(processes_.size());
  processes_[number] = {std::move(environment), fresh_process_};
  return number;
}

void Simulation::hold(int process, bool held) { processes_.at(process).held = held; }
void Simulation::end_process(int process) {
  processes_.at(process).ended = true;
  if (running_ != nullptr && running_->node == process) running_->ends_its_process = true;
}

void Simulation::within(int process, const std::function<void()>& what) {
  const int before = present_;
  switch_process(process);
  what();
  switch_process(before);
}

uint64_t Simulation::start(int process, Body body) {
  return add(process, std::move(body), true).number;
}

bool Simulation::has_ended(uint64_t thread) const {
  return std::none_of(fibers_.begin(), fibers_.end(),
                      [&](const auto& f) { return f->number == thread && !f->ended; });
}

void Simulation::park() {
  running_->parked = true;
  switch_to(nullptr);
}

void Simulation::wake(uint64_t thread) {
  for (const auto& f : fibers_) {
    if (f->number == thread) f->parked = false;
  }
}

int Simulation::process() const { return running_ != nullptr ? running_->node : -1; }

uint64_t Simulation::thread() const { return running_ != nullptr ? running_->number : 0; }

const char* Simulation::variable(const std::string& name) const {
  const auto process = processes_.find(Simulation::process());
  if (process == processes_.end()) return nullptr;
  const auto found = process->second.environment.find(name);
  return found != process->second.environment.end() ? found->second.c_str() : nullptr;
}

bool Simulation::can_run(const Fiber& fiber) const {
  if (fiber.ended || fiber.parked) return false;
  const auto process = processes_.find(fiber.node);
  if (process == processes_.end()) return true;
  return !process->second.held && (!process->second.ended || fiber.ends_its_process);
}

// Most of the time all are alike; at others some are hardly ever chosen.
void Simulation::weigh() {
  const bool alike = random_() % 2 == 0;
  for (const auto& f : fibers_) {
    f->weight = alike ? 1 : random_() % 3 == 0 ? 40 : random_() % 2 == 0 ? 4 : 1;
  }
  until_weights_ = static_cast<uint32_t>(random_()) % kTurnsOfWeights;
}

// Services of processes sleep most of the time: those that do are rarely chosen.
uint32_t Simulation::weight_of(const Fiber& fiber) const {
  if (!can_run(fiber)) return 0;
  return processes_.empty() || fiber.idle_until > time_ ? fiber.weight : kAwake * fiber.weight;
}

// Null where none is left but `but`, or where it is the turn of run() to look.
Simulation::Fiber* Simulation::choose(const Fiber* but) {
  if (until_weights_-- == 0) weigh();
  if (thrown_ || turns_ > end_of_turns_ || time_ >= look_at_ ||
      (but != nullptr && but->ended && !but->service)) {
    return nullptr;
  }
  uint32_t all = 0;
  for (const auto& f : fibers_) all += f.get() == but ? 0 : weight_of(*f);
  if (all == 0) return nullptr;
  auto at = static_cast<uint32_t>(random_()) % all;
  for (const auto& f : fibers_) {
    if (f.get() == but) continue;
    const uint32_t weight = weight_of(*f);
    if (at < weight) return f.get();
    at -= weight;
  }
  return nullptr;
}

// To the fiber, or out of all of them.
void Simulation::switch_to(Fiber* next) {
  Fiber* const before = running_;
  if (before == next) return;
  ++turns_;
  looks_ = 0;
  thread_variables().get(before != nullptr ? &before->values : &outside_values_);
  running_ = next;
  thread_variables().set(next != nullptr ? next->values : outside_values_);
  switch_process(next != nullptr && processes_.contains(next->node) ? next->node : 0);
  // Not swapcontext, which asks the kernel for the signal mask each time: none of these threads
  // cares.
  if (_setjmp(before != nullptr ? before->here : outside_) != 0) return arrive();
  left_ = before != nullptr ? &before->stack : &outside_stack_;
  leave_stack(left_, next != nullptr ? next->stack : outside_stack_);
  if (next == nullptr) _longjmp(outside_, 1);
  if (std::exchange(next->begun, true)) _longjmp(next->here, 1);
  ::setcontext(&next->context);
}

void Simulation::arrive() {
  take_stack(running_ != nullptr ? &running_->stack : &outside_stack_, left_);
}

void Simulation::switch_process(int to) {
  if (to == present_) return;
  process_variables().get(&processes_[present_].values);
  process_variables().set(processes_.at(to).values);
  present_ = to;
}

int64_t Simulation::now() {
  time_ += kLook;
  if (running_ != nullptr) {
    if (present_ != 0 && ++looks_ > kLooksInARow) pass("lock");
  } else if (!processes_.empty() && look_at_ == INT64_MAX) {
    (void)run_until([] { return false; }, kOutsideLook);  // the test waits for something of theirs
  }
  return time_;
}

void Simulation::pass(const char* where) {
  time_ += kStep;
  if (running_ == nullptr) return;
  // Locks are taken far more often than fault points are passed.
  const bool lock = std::strcmp(where, "lock") == 0;
  if (!lock) idles_ = 0;
  if (random_() % (lock ? 16 : 4) != 0) return;
  if (Fiber* next = choose(running_); next != nullptr) switch_to(next);
}

void Simulation::idle(int64_t nanos) {
  time_ += kIdle;
  if (running_ == nullptr) throw std::runtime_error("a wait outside of the simulation's threads");
  running_->idle_until = time_ + nanos;
  ++idles_;
  // Nobody has anything to do: time passes.
  if (!processes_.empty()) {
    time_ += leap();
  } else if (idles_ > 4 * fibers_.size()) {
    time_ += std::clamp<int64_t>(nanos, kIdle, kLongestIdle);
  }
  switch_to(choose(running_));
}

// To where the first of those that wait has waited long enough, when they have waited in vain.
int64_t Simulation::leap() {
  int64_t until = INT64_MAX;
  size_t waiting = 0;
  for (const auto& f : fibers_) {
    if (!can_run(*f)) continue;
    until = std::min(until, f->idle_until);
    ++waiting;
  }
  if (idles_ <= 2 * waiting) return 0;
  idles_ = 0;
  return std::clamp(until - time_, kShortestLeap, kLongestLeap);
}

bool Simulation::faults_here() const {
  return present_ != 0 || faults_at_ < 0 || (running_ != nullptr && running_->node == faults_at_);
}

}  // namespace cmi::test

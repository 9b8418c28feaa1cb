// Fibers, and the choice of the next one.
#include "sim/simulation.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/lock.hpp"
#include "core/memory/vm/sigbus.hpp"

namespace cmi::test {

namespace {
constexpr size_t kStack = 512 * 1024, kGuardPage = 4096;

// What the library keeps for each thread, of a fiber that does not run.
struct ThreadLocals {
  int signals_blocked = 0;
  bool access_enabled = false;
  Cause cause{};

  void swap_with_thread() {
    std::swap(signals_blocked, t_signals_blocked);
    std::swap(access_enabled, memory::t_access_enabled);
    std::swap(cause, t_cause);
  }
};
}  // namespace

struct Simulation::Fiber {
  int node = 0;
  bool service = false, begun = false, ended = false;
  uint32_t weight = 1;
  Body body;
  ucontext_t context{};  // where it begins
  jmp_buf here{};        // where it goes on
  std::byte* stack = nullptr;
  ThreadLocals locals;

  ~Fiber() {
    if (stack != nullptr) ::munmap(stack, kStack + kGuardPage);
  }
};

Simulation::Simulation(uint32_t seed) : random_(seed + 1) {
  if (t_schedule != nullptr) throw std::logic_error("two simulations at once");
  t_schedule = this;
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

void Simulation::add(int node, Body body, bool service) {
  auto fiber = std::make_unique<Fiber>();
  fiber->node = node;
  fiber->service = service;
  fiber->body = std::move(body);
  void* at = ::mmap(nullptr, kStack + kGuardPage, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  fiber->stack = static_cast<std::byte*>(at);
  ::mprotect(fiber->stack, kGuardPage, PROT_NONE);
  ::getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack + kGuardPage;
  fiber->context.uc_stack.ss_size = kStack;
  fiber->context.uc_link = nullptr;
  const auto self = reinterpret_cast<uint64_t>(this);
  ::makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Simulation::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  fibers_.push_back(std::move(fiber));
}

void Simulation::enter(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Simulation*>(uint64_t{high} << 32 | low);
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
    if (turns_ > end_of_turns_) {
      thrown_ = std::make_exception_ptr(std::runtime_error("the simulation does not end"));
      break;
    }
    switch_to(choose(nullptr));
  }
  if (thrown_) {
    sound_ = false;
    std::rethrow_exception(thrown_);
  }
  std::erase_if(fibers_, [](const auto& f) { return f->ended; });
}

// Most of the time all are alike; at others some are hardly ever chosen.
void Simulation::weigh() {
  const bool alike = random_() % 2 == 0;
  for (const auto& f : fibers_) {
    f->weight = alike ? 1 : random_() % 3 == 0 ? 40 : random_() % 2 == 0 ? 4 : 1;
  }
  until_weights_ = static_cast<uint32_t>(random_()) % kTurnsOfWeights;
}

// Null where none is left but `but`, or where it is the turn of run() to look.
Simulation::Fiber* Simulation::choose(const Fiber* but) {
  if (until_weights_-- == 0) weigh();
  if (thrown_ || turns_ > end_of_turns_ || (but != nullptr && but->ended && !but->service)) {
    return nullptr;
  }
  uint32_t all = 0;
  for (const auto& f : fibers_) all += f->ended || f.get() == but ? 0 : f->weight;
  if (all == 0) return nullptr;
  auto at = static_cast<uint32_t>(random_()) % all;
  for (const auto& f : fibers_) {
    if (f->ended || f.get() == but) continue;
    if (at < f->weight) return f.get();
    at -= f->weight;
  }
  return nullptr;
}

// To the fiber, or out of all of them.
void Simulation::switch_to(Fiber* next) {
  Fiber* const before = running_;
  if (before == next) return;
  ++turns_;
  if (before != nullptr) before->locals.swap_with_thread();
  running_ = next;
  if (next != nullptr) next->locals.swap_with_thread();
  // Not swapcontext, which asks the kernel for the signal mask each time: none of these threads
  // cares.
  if (_setjmp(before != nullptr ? before->here : outside_) != 0) return;
  if (next == nullptr) _longjmp(outside_, 1);
  if (std::exchange(next->begun, true)) _longjmp(next->here, 1);
  ::setcontext(&next->context);
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
  // Nobody has anything to do: time passes.
  if (++idles_ > 4 * fibers_.size()) time_ += std::clamp<int64_t>(nanos, kIdle, kLongestIdle);
  switch_to(choose(running_));
}

bool Simulation::faults_here() const {
  return faults_at_ < 0 || (running_ != nullptr && running_->node == faults_at_);
}

}  // namespace cmi::test

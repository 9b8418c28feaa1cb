// The processes of system/nodes.hpp as processes of a simulation: each a context of the library,
// with its public calls, over the fake network. The clusters of a test have one simulation.
#include "sim/processes/processes.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "core/base/clock.hpp"
#include "core/context/context.hpp"
#include "core/context/lifetime.hpp"
#include "fabric/fake/fake.hpp"
#include "fabric/local_interface.hpp"
#include "sim/simulation.hpp"
#include "system/calls.hpp"
#include "system/guard.hpp"
#include "system/nodes.hpp"
#include "system/stopped.hpp"

namespace cmi::test {

namespace {

// Beyond what the kernel gives to processes.
constexpr pid_t kFirstPid = 0x3f000000;

size_t anchor(const std::byte*, std::byte*) { return 0; }

// A process of the simulation, and the command that its main thread runs.
struct Child {
  int process = 0;
  uint64_t main = 0;
  Thunk thunk = nullptr;
  std::vector<std::byte> in, out;
  size_t size = 0;  // of the result
  bool busy = false, called_back = false, leaves = false, gone = false;
  int status = 0;
  std::vector<std::vector<std::byte>> endpoints;  // addresses of those that it has opened
};

// A fabric that writes down which endpoints its process has: what a death takes along.
class OwnedFabric final : public fabric::Fabric {
 public:
  OwnedFabric(std::unique_ptr<fabric::Fabric> fabric, Child& owner)
      : fabric_(std::move(fabric)), owner_(owner) {}
  const fabric::Traits& traits() const override { return fabric_->traits(); }
  Result<std::unique_ptr<fabric::Endpoint>> open_endpoint(fabric::Receiver& receiver,
                                                          fabric::Endpoint* beside) override {
    auto opened = fabric_->open_endpoint(receiver, beside);
    if (opened) {
      const Bytes address = (*opened)->address();
      owner_.endpoints.emplace_back(address.begin(), address.end());
    }
    return opened;
  }
  Result<std::unique_ptr<fabric::Region>> register_memory(void* addr, size_t len, uint32_t rights,
                                                          uint64_t wanted_key,
                                                          fabric::Endpoint* through) override {
    return fabric_->register_memory(addr, len, rights, wanted_key, through);
  }

 private:
  std::unique_ptr<fabric::Fabric> fabric_;
  Child& owner_;
};

class World {
 public:
  World() : net_(fabric::FakeNet::make(modes())) {
    fabric::g_simulated_ways = [] { return ways(); };
    install_guard();
    // Others may fault while one is in the handler.
    struct sigaction action {};
    ::sigaction(SIGSEGV, nullptr, &action);
    action.sa_flags |= SA_NODEFER;
    ::sigaction(SIGSEGV, &action, nullptr);
  }
  ~World() { fabric::g_simulated_ways = nullptr; }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Simulation& simulation() { return simulation_; }
  // Until `done`; false when so many seconds have passed without. Throws ChildFailed.
  bool run(const std::function<bool()>& done, int seconds) {
    try {
      return simulation_.run_until(done, seconds * kSecond);
    } catch (const std::exception& failure) {
      throw ChildFailed(failure.what());
    }
  }

  pid_t add(const Env& env) {
    Child& child = *children_.emplace_back(std::make_unique<Child>());
    std::map<std::string, std::string> environment;
    for (const auto& [name, value] : env) environment.insert_or_assign(name, value);  // as setenv
    child.process = simulation_.add_process(std::move(environment));
    child.main = simulation_.start(child.process, [this, &child] { serve(child); });
    return kFirstPid + static_cast<pid_t>(children_.size()) - 1;
  }
  Child& child(pid_t pid) { return *children_.at(static_cast<size_t>(pid - kFirstPid)); }
  Child* running() {
    for (const auto& child : children_) {
      if (child->process == simulation_.process()) return child.get();
    }
    return nullptr;
  }

  // As the kernel ends a process: nothing of it runs any more, its endpoints and what makes it look
  // alive are gone, and its memory is left as it is.
  void kill(Child& child) {
    if (child.gone) return;
    child.gone = true;
    child.status = SIGKILL;
    simulation_.end_process(child.process);
    for (const auto& endpoint : child.endpoints) net_->kill(endpoint);
    simulation_.within(child.process, [] { context::Context::forget_in_child(); });
  }

 private:
  static fabric::FakeModes modes() {
    fabric::FakeModes modes;
    modes.ip_addresses = true;
    return modes;
  }
  static uint32_t seed() {
    const char* const text = std::getenv("CMI_SIM_SEED");
    return text != nullptr ? static_cast<uint32_t>(std::strtoul(text, nullptr, 0)) : 1;
  }
  static std::vector<fabric::LocalInterface> ways();

  // The main thread of a process.
  void serve(Child& child) {
    for (;;) {
      while (!child.busy && !child.leaves) simulation_.park();
      if (!child.busy) break;
      child.size = child.thunk(child.in.data(), child.out.data());
      child.busy = false;
    }
    finish_context();
    context::Context::process_exits();
    child.gone = true;
  }

  Simulation simulation_{seed()};
  std::shared_ptr<fabric::FakeNet> net_;
  std::vector<std::unique_ptr<Child>> children_;
};

// Of the clusters that there are. One whose simulation has failed stays behind: its threads are in
// the middle of it.
std::unique_ptr<World> g_world;
int g_clusters = 0;

World& world() {
  if (g_world == nullptr) throw ChildFailed("no cluster");
  return *g_world;
}

std::vector<fabric::LocalInterface> World::ways() {
  World& w = world();
  Child& owner = *w.running();
  std::vector<fabric::LocalInterface> all;
  all.push_back({std::make_unique<OwnedFabric>(w.net_->open(), owner),
                 std::make_unique<OwnedFabric>(w.net_->open(), owner), false});
  return all;
}

}  // namespace

void die_here() {
  World& w = world();
  w.kill(*w.running());
  for (;;) w.simulation().park();
}

void stop_here() {
  World& w = world();
  w.simulation().hold(w.simulation().process(), true);
  w.simulation().idle(0);
}

std::set<pid_t>& living() {
  static std::set<pid_t> none;
  return none;
}

uint64_t thunk_offset(Thunk thunk) {
  return reinterpret_cast<uint64_t>(thunk) - reinterpret_cast<uint64_t>(&anchor);
}

bool called_back() {
  World& w = world();
  w.simulation().idle(0);
  return w.running()->called_back;
}

// ---- Process --------------------------------------------------------------------------------

Process::Process(std::string name, pid_t pid, Fd channel)
    : name_(std::move(name)), pid_(pid), channel_(std::move(channel)) {}

Process::~Process() { kill(); }

void Process::signal(int number) {
  if (ended_) return;
  Child& child = world().child(pid_);
  if (number == SIGKILL) return kill();
  if (number != SIGSTOP && number != SIGCONT) throw ChildFailed("no such signal in a simulation");
  world().simulation().hold(child.process, number == SIGSTOP);
}

void Process::stop() { signal(SIGSTOP); }

bool Process::reap(int seconds) {
  if (ended_) return true;
  Child& child = world().child(pid_);
  ended_ = world().run([&] { return child.gone; }, seconds);
  status_ = child.status;
  return ended_;
}

int Process::wait_end(int seconds) {
  if (!reap(seconds)) throw ChildFailed(name_ + " did not end in time");
  return status_;
}

void Process::kill() {
  if (ended_ || g_world == nullptr) return;
  Child& child = world().child(pid_);
  world().kill(child);
  ended_ = true;
  status_ = child.status;
}

int Process::end() {
  Child& child = world().child(pid_);
  child.leaves = true;
  world().simulation().wake(child.main);
  return wait_end();
}

std::string Process::ending() const { return name_ + ": " + describe_status(status_); }

void Process::send(uint64_t offset, const std::vector<std::byte>& arguments) {
  Child& child = world().child(pid_);
  if (ended_ || child.gone) throw ChildFailed(reap(1) ? ending() : name_ + " takes no commands");
  if (child.busy) throw ChildFailed(name_ + " is at work");
  child.thunk = reinterpret_cast<Thunk>(reinterpret_cast<uint64_t>(&anchor) + offset);
  child.in = arguments;
  child.out.resize(kMaxMessage);
  child.called_back = false;
  child.busy = true;
  world().simulation().wake(child.main);
}

void Process::nudge() { world().child(pid_).called_back = true; }

void Process::receive(void* result, size_t size, int seconds) {
  Child& child = world().child(pid_);
  const bool done = world().run([&] { return !child.busy || child.gone; }, seconds);
  if (child.busy && child.gone) throw ChildFailed(reap(1) ? ending() : name_ + " is gone");
  if (!done) throw ChildFailed(name_ + " did not answer in time");
  if (size == 0) return;
  if (child.size != size) throw ChildFailed(name_ + " answered nonsense");
  std::memcpy(result, child.out.data(), size);
}

bool await_stopped(const Process& process) {
  World& w = world();
  const int number = w.child(process.pid()).process;
  return w.run([&] { return w.simulation().held(number); }, kSeconds);
}

// ---- Cluster --------------------------------------------------------------------------------

void Cluster::open() {
  if (g_clusters++ == 0) g_world = std::make_unique<World>();
}

void Cluster::close() {
  if (--g_clusters > 0) return;
  World* const w = g_world.release();
  if (w->simulation().sound()) delete w;
}

Process& Cluster::spawn_bare(const std::string& node, const Env& env) {
  const pid_t pid = world().add(environment_of(node, env));
  nodes_.push_back(node);
  processes_.push_back(std::make_unique<Process>(node, pid, Fd()));
  return *processes_.back();
}

}  // namespace cmi::test

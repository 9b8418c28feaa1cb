// Nodes of a simulation, and the handler of their faults.
#include "sim/nodes.hpp"

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "core/base/arch/arch.hpp"
#include "core/memory/vm/sigbus.hpp"

namespace cmi::test {

namespace {

constexpr Nanos kLong = 20 * kSecond, kTick = 10 * kMilli, kNap = 20 * kMicro;

// All nodes of the program, for the handler.
std::vector<Node*> g_nodes;

// What the engine does for a fault at home where the kernel does not note stores.
bool note_store(const memory::View& view, const std::byte* addr, bool write) {
  return write && view.stores != nullptr && view.stores->note(addr);
}

bool serve_import(Node& node, const memory::View& view, const std::byte* addr, bool write) {
  auto& faults = node.importer().faults();
  (void)faults.begin_serving(::gettid());
  const memory::Exception e = faults.serve(view, addr, write, nullptr, Deadline::in(kLong));
  faults.end_serving();
  if (e != memory::Exception::kNone) {
    std::fprintf(stderr, "exception %d of %s\n", static_cast<int>(e), write ? "a store" : "a load");
  }
  return e == memory::Exception::kNone;
}

// Runs on the stack of the simulation's thread that faulted; others go on while it waits.
void on_fault(int /*number*/, siginfo_t* info, void* context) {
  const bool write = arch::was_store(*static_cast<const ucontext_t*>(context));
  const auto* const addr = static_cast<const std::byte*>(info->si_addr);
  for (Node* node : g_nodes) {
    const auto view = node->view_at(addr);
    if (view == nullptr) continue;
    if (view->import != nullptr ? serve_import(*node, *view, addr, write)
                                : note_store(*view, addr, write)) {
      return;
    }
    break;
  }
  std::fprintf(stderr, "an access at %p (write: %d) raised an exception\n", info->si_addr, write);
  std::_Exit(1);
}

void take_faults() {
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  // Another thread may fault before this one's fault is served.
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGBUS, &ours, nullptr);
}

// The newest that there is, unless CMI_TEST_KERNEL says otherwise: such as 6.1.
uint32_t kernel() {
  unsigned major = 0, minor = 0;
  const char* const text = std::getenv("CMI_TEST_KERNEL");
  if (text == nullptr || std::sscanf(text, "%u.%u", &major, &minor) != 2) return UINT32_MAX;
  return memory::kernel_version(major, minor);
}

template <class T>
T must(Result<T> result, const char* what) {
  if (!result) throw std::runtime_error(std::string(what) + " failed");
  return result.take();
}

void must(Status status, const char* what) {
  if (!ok(status)) throw std::runtime_error(std::string(what) + " failed");
}

uint64_t failed(Status status) { return ok(status) ? 0 : 1; }

}  // namespace

std::shared_ptr<fabric::FakeNet> make_net() {
  fabric::FakeModes modes;
  modes.wait_fd = false;
  return fabric::FakeNet::make(modes);
}

Node::Node(Simulation& simulation, fabric::FakeNet& net, const NodeFolder& folder, int number,
           Service service, Swaps swaps)
    : simulation_(simulation),
      context_(fabric::LocalInterface{net.open(), net.open(), swaps == Swaps::kByNetwork},
               folder.config("node" + std::to_string(number)), kernel()) {
  take_faults();
  g_nodes.push_back(this);
  if (service == Service::kNone) return;
  simulation_.spawn_service(number, [this](const bool& stop) { serve(stop); });
}

Node::~Node() { std::erase(g_nodes, this); }

// What the engine's thread does, without its naps.
int Node::serve_once() {
  const int events = context_.server->poll() + importer().advance();
  const Nanos t = now();
  if (ticked_ == 0) ticked_ = t;
  if (t - ticked_ >= kTick) {
    ticked_ = t;
    importer().timer().report_acked_below();
    importer().timer().tick();
    home().tick(t);
  }
  return events;
}

void Node::serve(const bool& stop) {
  while (!stop) {
    !held_&& serve_once() > 0 ? simulation_.pass("served") : simulation_.idle(kNap);
  }
}

Exported Node::export_segment(size_t bytes, int32_t flags) {
  Exported e;
  e.id = must(home().create(bytes, flags, 0), "create");
  e.at = static_cast<std::byte*>(
      must(home().views().attach(e.id, bytes, nullptr, false, Deadline::in(kLong)), "attach"));
  e.handle = must(home().exports().export_segment(e.id, flags, 0), "export");
  e.token = must(home().exports().new_token(
                     e.id, true, {}, fabric::kRead | fabric::kWrite | fabric::kAtomic, nullptr),
                 "token");
  return e;
}

std::byte* Node::import_segment(const Exported& exported) {
  const Deadline soon = Deadline::in(kLong);
  auto imported =
      must(importer().joining().import(exported.handle, ++imports_, true, {soon, soon}), "import");
  must(importer().tokens().set(imported, exported.token, soon), "token");
  must(importer().views().prepare(*imported, false), "prepare");
  return must(importer().views().attach(imported, nullptr, false), "attach")->addr;
}

void Node::enable() {
  memory::t_access_enabled = true;
  importer().thread_enabled(true);
}

void Node::disable() {
  memory::t_access_enabled = false;
  importer().thread_enabled(false);
}

int32_t Node::segment_at(const volatile void* address, size_t* offset) {
  bool read_only = false;
  return home().views().segment_at(const_cast<const void*>(address), offset, &read_only);
}

std::shared_ptr<const memory::View> Node::view_at(const volatile void* address) {
  return context_.views().find(const_cast<const void*>(address));
}

uint64_t NodeCalls::open() {
  epoch_ = node_.importer().publishing().losses();
  return 0;
}

// As Barriers::barrier of a context.
uint64_t NodeCalls::barrier(memory::LossMark& mark) {
  const uint64_t there = failed(node_.importer().publishing().barrier(mark, kLong));
  return there + failed(node_.home().barriers().barrier(kLong));
}

uint64_t NodeCalls::rmb() {
  std::atomic_thread_fence(std::memory_order_acquire);
  return 0;
}

uint64_t NodeCalls::mb() {
  const uint64_t result = wmb();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return result;
}

uint64_t NodeCalls::cflush(volatile uint64_t* line) {
  const auto* const at = reinterpret_cast<const std::byte*>(const_cast<uint64_t*>(line));
  if (const auto view = node_.view_at(line); view->import != nullptr) {
    memory::Exception raised = memory::Exception::kNone;
    size_t where = 0;
    return failed(node_.importer().publishing().flush(
        {{view, at}}, mark_, memory::Patience::of(kLong), &raised, &where));
  }
  size_t offset = 0;
  memory::Barriers::Lines lines;
  const int32_t id = node_.segment_at(line, &offset);
  lines[id].add({static_cast<uint32_t>(offset / kPageSize), 1});
  return failed(node_.home().barriers().barrier(kLong, lines));
}

uint64_t NodeCalls::cas(volatile uint64_t* word, uint64_t expected, uint64_t desired,
                        uint64_t* old) {
  if (const auto view = node_.view_at(word); view->import != nullptr) {
    return swap_imported(*view, word, expected, desired, old);
  }
  size_t offset = 0;
  const int32_t id = node_.segment_at(word, &offset);
  if (const uint64_t bad = wmb(); bad != 0) return bad;
  const auto was = node_.home().barriers().cas(id, offset, expected, desired, Deadline::in(kLong));
  if (was) *old = *was;
  return failed(was.status());
}

// As Barriers::swap_imported of a context.
uint64_t NodeCalls::swap_imported(const memory::View& view, volatile uint64_t* word,
                                  uint64_t expected, uint64_t desired, uint64_t* old) {
  auto* const at = reinterpret_cast<std::byte*>(const_cast<uint64_t*>(word));
  if (const uint64_t bad = failed(node_.home().barriers().barrier(kLong)); bad != 0) return bad;
  memory::Swaps& swaps = node_.importer().swaps();
  memory::PendingSwap pending;
  if (!ok(swaps.barrier_before_swap(view, at, expected, desired, &pending, mark_, kLong))) {
    return 1;
  }
  bool unknown = false;
  const memory::Exception e =
      swaps.cas(view, at, expected, desired, old, &pending, &unknown, Deadline::in(kLong));
  return e == memory::Exception::kNone ? 0 : 1;
}

}  // namespace cmi::test

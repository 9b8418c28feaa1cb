// What the process does to its context: finds it, forks, ends.
#include "core/context/lifetime.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "core/context/context.hpp"
#include "core/context/lock_order.hpp"
#include "fabric/fabric.hpp"

namespace cmi::context {

namespace process {
std::atomic<Context*> context{nullptr};
std::atomic<const cmi_ctxt*> handle{nullptr};
}  // namespace process

namespace {
std::atomic<const cmi_ctxt*> g_parents_handle{nullptr};  // in a forked child
std::atomic<const cmi_ctxt*> g_handle_at_end{nullptr};   // while the process ends
Mutex g_lifetime CMI_ACQUIRED_BEFORE(lock_order::after_lifetime);
thread_local bool t_in_lifetime = false;  // this thread has it
thread_local bool t_fork_has_it = false;  // between the two sides of a fork
thread_local int t_forks = 0;             // a signal handler may fork in between
std::atomic<int> g_forks{0};              // threads in there
constexpr Nanos kForkWait = 10 * kSecond;
}  // namespace

Lifetime::Lifetime() : lock_(g_lifetime) { t_in_lifetime = true; }
Lifetime::~Lifetime() { t_in_lifetime = false; }

Context* Context::current() { return process::context.load(std::memory_order_acquire); }

Context* Context::find(const cmi_ctxt* ctxt, bool* forked) {
  *forked = ctxt != nullptr && ctxt == g_parents_handle.load(std::memory_order_acquire);
  if (ctxt == nullptr) return nullptr;
  if (ctxt == g_handle_at_end.load(std::memory_order_acquire)) memory::wait_if_process_ends();
  return ctxt == process::handle.load(std::memory_order_acquire) ? current() : nullptr;
}

// A context that another thread makes or ends just now has locks and descriptors that the child
// would keep without knowing of them, and its node would take the parent for alive as long as the
// child is. So the fork comes before or after that. The wait has a bound: the thread that makes
// the context may itself wait for a child.
void Context::before_fork() {
  if (t_forks++ > 0) return;
  g_forks.fetch_add(1);
  const Deadline deadline = Deadline::in(kForkWait);
  while (!t_in_lifetime && !t_fork_has_it && !deadline.passed()) {
    t_fork_has_it = g_lifetime.try_lock();
    if (!t_fork_has_it) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Context::parent_after_fork() {
  if (--t_forks > 0) return;
  if (std::exchange(t_fork_has_it, false)) g_lifetime.unlock();
  g_forks.fetch_sub(1);
}

void Context::child_after_fork() {
  // Single-threaded here, and the parent's service thread is not ours.
  new (&g_lifetime) Mutex;
  t_in_lifetime = t_fork_has_it = false;
  t_forks = 0;
  g_forks.store(0);
  if (current() == nullptr) return;
  g_parents_handle.store(process::handle.load());
  forget_in_child();
  t_thread = nullptr;
}

void Context::forget_in_child() {
  Context* c = process::context.exchange(nullptr);
  if (c == nullptr) return;
  process::handle.store(nullptr);
  memory::set_fault_target(nullptr);
  c->node_->forget_in_child();
  c->engine_->forget_in_child();
  c->tcp_offers_.forget_in_child();
  // The rest is left as it is: its threads are gone and its descriptors are the parent's as well.
}

// exit(), or a return from main, with a context still open; all handlers and static destructors of
// the client have run. What was stored is published, and the homes learn that the context ends.
// The service thread must not run into the destructors of the libraries under us, and the node
// should not wait for the next reaper. The rest ends with the process.
void Context::process_exits() {
  SignalsBlocked quiet;
  while (!g_lifetime.try_lock()) {
    if (g_forks.load() == 0) return;  // a fini is under way in another thread
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Context* c = process::context.load();
  if (c != nullptr) {
    // Of the registered threads only the calling one: others may be in a view or in a call.
    const bool registered = t_thread != nullptr && t_thread->context == c;
    const bool alone = c->threads_.count() == (registered ? 1 : 0);
    // From here on the others wait where they fault or call the library. They keep their pages:
    // what they store to those after the barrier ends with the process.
    g_handle_at_end.store(c->handle_);
    memory::process_ends();
    process::handle.store(nullptr);
    c->tcp_offers_.stop();
    memory::LossMark ignored = c->engine_->importer().publishing().losses();
    (void)c->engine_->importer().publishing().barrier(ignored, kRevokeTimeout);
    c->engine_->importer().leaving().say_goodbye(c->parts_->imports.all(),
                                                 {Deadline::in(kRevokeTimeout), kRevokeTimeout});
    c->map_maker_->stop();
    c->engine_->stop();
    c->engine_->home().views().stop_watching_adopted();
    // With other threads still running in here the registry is left to the next reaper.
    if (alone) {
      process::context.store(nullptr);
      memory::set_fault_target(nullptr);
      c->node_.reset();
    }
  }
  g_lifetime.unlock();
}

namespace {
// Not an exit handler of cmi_ini: the client's handlers and static destructors from before it may
// use views, and come later.
[[gnu::destructor]] void library_ends() {
  fabric::process_ends();
  Context::process_exits();
}
}  // namespace

}  // namespace cmi::context

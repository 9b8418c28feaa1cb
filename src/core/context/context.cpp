// Start and end of a context, its threads, and fork.
#include "core/context/context.hpp"

#include <linux/magic.h>
#include <pthread.h>
#include <sys/vfs.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/context/start_stage.hpp"
#include "core/emulate/emulate.hpp"
#include "fabric/fabric.hpp"
#include "fabric/reach.hpp"

namespace cmi::context {

thread_local Thread* t_thread = nullptr;
thread_local cmi_error t_error = CMI_ERR_NONE;

namespace {
// The one mutable global: finds the process's context. g_lifetime orders its making and ending.
std::atomic<Context*> g_context{nullptr};
std::atomic<const cmi_ctxt*> g_handle{nullptr};
std::atomic<const cmi_ctxt*> g_parents_handle{nullptr};  // in a forked child
std::atomic<const cmi_ctxt*> g_handle_at_end{nullptr};   // while the process ends
Mutex g_lifetime;
thread_local bool t_in_lifetime = false;  // this thread has it
thread_local bool t_fork_has_it = false;  // between the two sides of a fork
thread_local int t_forks = 0;             // a signal handler may fork in between
std::atomic<int> g_forks{0};              // threads in there
constexpr Nanos kForkWait = 10 * kSecond;
pthread_key_t g_thread_key;
pthread_once_t g_once = PTHREAD_ONCE_INIT;

struct Lifetime {
  Lifetime() : lock(g_lifetime) { t_in_lifetime = true; }
  ~Lifetime() { t_in_lifetime = false; }
  Guard lock;
};

struct Handle {  // what the client's pointer points to
  cmi_ctxt ctxt;
  std::byte naddr[access::kNaddrSize];
};
}  // namespace

void* Allocator::get(size_t n) const { return alloc != nullptr ? alloc(n, arg) : std::malloc(n); }
void Allocator::put(void* p) const {
  if (p == nullptr) return;
  if (free != nullptr) {
    free(p, arg);
  } else {
    std::free(p);
  }
}

Context* Context::current() { return g_context.load(std::memory_order_acquire); }

Context* Context::find(const cmi_ctxt* ctxt, bool* forked) {
  *forked = ctxt != nullptr && ctxt == g_parents_handle.load(std::memory_order_acquire);
  if (ctxt == nullptr) return nullptr;
  if (ctxt == g_handle_at_end.load(std::memory_order_acquire) && memory::process_ends_elsewhere()) {
    memory::wait_for_end_of_process();
  }
  return ctxt == g_handle.load(std::memory_order_acquire) ? current() : nullptr;
}

// A context that another thread makes or ends just now has locks and descriptors that the child
// would keep without knowing of them, and its node would take the parent for alive as long as the
// child is. So the fork comes before or after that. Not for ever: who makes it may wait for a
// child.
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
  Context* c = g_context.exchange(nullptr);
  if (c == nullptr) return;
  g_parents_handle.store(g_handle.exchange(nullptr));
  memory::set_fault_target(nullptr);
  c->node_->forget_in_child();
  c->engine_->forget_in_child();
  t_thread = nullptr;
  // The rest is left as it is: its threads are gone and its descriptors are the parent's as well.
}

// exit(), or a return from main, with a context still open; all handlers and static destructors of
// the client have run. What was stored is published. The service thread must not run into the
// destructors of the libraries under us, and the node should not wait for the next reaper. The rest
// ends with the process.
void Context::process_exits() {
  SignalsBlocked quiet;
  while (!g_lifetime.try_lock()) {
    if (g_forks.load() == 0) return;  // a fini is under way in another thread
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Context* c = g_context.load();
  if (c != nullptr) {
    // Of the registered threads only the calling one: others may be in a view or in a call.
    bool alone;
    {
      Guard g(c->mu_);
      const bool registered = t_thread != nullptr && t_thread->context == c;
      alone = c->thread_count_ == (registered ? 1 : 0);
    }
    memory::LossMark ignored = c->engine_->importer().publishing().losses();
    (void)c->engine_->importer().publishing().barrier(ignored, kRevokeTimeout);
    if (alone) c->leave_imports();
    memory::process_ends();
    g_handle.store(nullptr);
    g_handle_at_end.store(c->handle_);
    c->map_maker_->stop();
    c->engine_->stop();
    c->engine_->home().views().stop_watching_adopted();
    // With other threads still running in here the registry is left to the next reaper.
    if (alone) {
      g_context.store(nullptr);
      memory::set_fault_target(nullptr);
      c->node_.reset();
    }
  }
  g_lifetime.unlock();
}

// Homes learn that this context ends, and count nothing that it holds as lost.
void Context::leave_imports() {
  std::vector<std::shared_ptr<memory::Import>> imports;
  {
    Guard g(mu_);
    for (auto& [id, i] : imported_) imports.push_back(i.import);
  }
  engine_->importer().leaving().leave_all(imports, {Deadline::in(kRevokeTimeout), kRevokeTimeout});
}

namespace {
// Not an exit handler of cmi_ini: the client's handlers and static destructors from before it may
// use views, and come later.
[[gnu::destructor]] void library_ends() {
  fabric::process_ends();
  Context::process_exits();
}
}  // namespace

void Context::thread_exits(void* thread) {
  auto* t = static_cast<Thread*>(thread);
  if (t != t_thread || t->context != current()) return;
  trace(kFacIni, kWarn, "a thread ended without fini");
  (void)t->context->leave_thread();
}

namespace {
// Segments and caches lie there, and userfaultfd takes no other files.
bool on_another_file_system(const std::string& folder) {
  struct statfs info;
  return statfs(folder.c_str(), &info) == 0 && info.f_type != TMPFS_MAGIC;
}
}  // namespace

Result<Context*> Context::start(uint16_t verno, const cmi_cbs* callbacks,
                                const struct cmi_fns_10* table10,
                                const struct cmi_fns_11* table11) {
  pthread_once(&g_once, [] {
    pthread_key_create(&g_thread_key, &Context::thread_exits);
    pthread_atfork(&Context::before_fork, &Context::parent_after_fork, &Context::child_after_fork);
  });
  if (verno < 10 || verno / 10 != CMI_VERNO / 10) {
    return because(Status::kNotSupp, "another major version");
  }
  const uint16_t version = std::min<uint16_t>(verno, CMI_VERNO);
  if (callbacks != nullptr && (callbacks->alloc == nullptr) != (callbacks->free == nullptr)) {
    return because(Status::kInval, "alloc without free, or free without alloc");
  }
  if (callbacks != nullptr && ((callbacks->trace_facilities & ~CMI_TRACE_FAC_ALL) != 0 ||
                               callbacks->trace_level > CMI_TRACE_LVL_HIGHEST)) {
    return because(Status::kInval, "an unknown trace facility or level");
  }
  t_stage = Stage::kArguments;
  Lifetime one;
  if (Context* c = current(); c != nullptr) {
    if (Status s = c->join_thread(); !ok(s)) return s;
    return c;
  }
  arm_fault_points();
  TraceSink sink;
  if (callbacks != nullptr) sink = {callbacks->alert, callbacks->log, callbacks->arg, 2};
  Trace::get().configure(callbacks != nullptr ? callbacks->trace_facilities : 0,
                         callbacks != nullptr ? callbacks->trace_level : 0, sink);
  t_stage = Stage::kEnvironment;
  auto environment = read_environment();
  if (!environment) {
    Trace::get().configure(0, 0, {});  // the callbacks are good for this call only
    return environment.status();
  }

  struct Unmade {  // undoes a start that failed half way
    Context* context;
    ~Unmade() {
      if (context != nullptr) delete context;
    }
  } made{new Context};
  Context& c = *made.context;
  c.environment_ = environment.take();
  if (c.environment_.trace_fd) sink.fd = c.environment_.trace_fd.get();
  if (c.environment_.trace) {
    Trace::get().configure(c.environment_.trace->facilities, c.environment_.trace->level, sink);
  } else {
    Trace::get().configure(callbacks != nullptr ? callbacks->trace_facilities : 0,
                           callbacks != nullptr ? callbacks->trace_level : 0, sink);
  }
  if (fault_points_armed()) {
    alert(kFacIni, "CMI_FAULT_POINT or CMI_FAULT_COUNT is set: the library fails on purpose");
  }
  if (callbacks != nullptr) c.allocator_ = {callbacks->alloc, callbacks->free, callbacks->arg};

  auto* handle = static_cast<Handle*>(c.allocator_.get(sizeof(Handle)));
  if (handle == nullptr) return Status::kNoMem;
  c.handle_ = &handle->ctxt;
  std::memset(handle, 0, sizeof *handle);
  c.id_ = random_context_id();
  t_stage = Stage::kNode;
  auto node = node::Node::join(
      {c.environment_.runtime_dir, c.environment_.node_name, c.environment_.mem_max}, c.id_);
  // Asked when the folder is there, and first: such a file system may have failed the join, too.
  if (on_another_file_system(c.environment_.runtime_dir)) {
    alert(kFacIni,
          "CMI_RUNTIME_DIR: {} is not on a tmpfs, as /dev/shm is: the kernel does not let pages of "
          "other file systems be watched",
          c.environment_.runtime_dir);
    return because(Status::kNotSupp, "the runtime folder is not on a tmpfs");
  }
  if (!node) {
    const bool known = t_cause.status == node.status() && t_cause.words != nullptr;
    alert(kFacIni, "cannot join the node in {}: {}", c.environment_.runtime_dir,
          known ? t_cause.words : status_name(node.status()));
    return node.status();
  }
  c.node_ = node.take();
  auto told = events::Events::open(c);
  if (!told) return told.status();
  c.events_ = told.take();
  t_stage = Stage::kNetwork;
  memory::Userfault::probe(c.environment_.kernel);
  auto interfaces = fabric::open_ways(c.environment_.provider, c.environment_.address);
  if (!interfaces) return interfaces.status();
  t_stage = Stage::kMemory;
  auto engine = memory::Engine::start(*c.node_, interfaces.take(), c.id_,
                                      c.environment_.fault == Environment::FaultMode::kThread,
                                      c.environment_.dead_after, *c.events_);
  if (!engine) return engine.status();
  c.engine_ = engine.take();
  c.map_maker_ = std::make_unique<events::MapMaker>(*c.engine_, *c.events_);

  handle->ctxt.base = {version, CMI_VENDOR_OFI, CMI_DEVICE_SOFT};
  handle->ctxt.caps = CMI_CAP_NODE_SPECIFIC_TOKEN | CMI_CAP_MIXED_CONSIST |
                      CMI_CAP_EXTENSIBLE_SEGMENTS |
                      (emulate::supported() ? CMI_CAP_WRITE_THROUGH : 0);
  handle->ctxt.naddr = reinterpret_cast<cmi_naddr*>(handle->naddr);
  handle->ctxt.fns10 = table10;
  handle->ctxt.fns11 = table11;
  if (Status s = access::encode_naddr({c.node_->id(), c.id_}, handle->naddr, version); !ok(s))
    return s;
  g_handle.store(c.handle_, std::memory_order_release);
  g_context.store(&c, std::memory_order_release);
  if (Status s = c.join_thread(); !ok(s)) {
    g_context.store(nullptr);
    g_handle.store(nullptr);
    return s;
  }
  const auto listeners = c.engine_->listeners();
  trace(kFacIni, kInfo, "cmi_ini: version {}, node {:016x}, provider {}", version, c.node_->id().hi,
        listeners[0].provider);
  for (const auto& listener : listeners) {
    trace(kFacIni, kInfo, "reached over {} at {}", listener.provider,
          fabric::listener_text(listener.blob));
  }
  made.context = nullptr;
  return &c;
}

Context::~Context() {
  for (auto& i : issued_) allocator_.put(i.object);
  map_maker_.reset();
  engine_.reset();
  events_.reset();
  node_.reset();
  allocator_.put(handle_);
  // The trace file closes with environment_.
  Trace::get().configure(0, 0, {});
}

Status Context::join(const cmi_ctxt* ctxt) {
  Lifetime one;
  bool forked = false;
  Context* c = find(ctxt, &forked);
  return c != nullptr ? c->join_thread() : Status::kInval;
}

Status Context::join_thread() {
  if (t_thread != nullptr && t_thread->context == this) {
    return because(Status::kBound, "this thread is registered already");
  }
  auto* t = static_cast<Thread*>(allocator_.get(sizeof(Thread)));
  if (t == nullptr) return Status::kNoMem;
  new (t) Thread;
  t->context = this;
  t->loss = engine_->importer().publishing().losses();
  if (pthread_setspecific(g_thread_key, t) != 0) {
    allocator_.put(t);
    return Status::kNoMem;
  }
  memory::t_access_enabled = false;
  t_thread = t;
  Guard g(mu_);
  t->next = threads_;
  threads_ = t;
  ++thread_count_;
  return Status::kOk;
}

Status Context::leave_thread() {
  Thread* t = t_thread;
  t->pending_swaps.end(
      [](memory::Import& import, const auto& request) { import.link->forget(request); });
  if (t->epoch != nullptr) (void)close_epoch(reinterpret_cast<cmi_fb>(t->epoch));
  Lifetime one;
  bool last;
  {
    Guard g(mu_);
    Thread** p = &threads_;
    while (*p != t) p = &(*p)->next;
    *p = t->next;
    last = --thread_count_ == 0;
  }
  pthread_setspecific(g_thread_key, nullptr);
  t_thread = nullptr;
  if (memory::t_access_enabled) engine_->importer().thread_enabled(false);
  memory::t_access_enabled = false;
  const Allocator allocator = allocator_;
  if (last) {
    trace(kFacIni, kInfo, "fini: the last thread left");
    g_handle.store(nullptr, std::memory_order_release);  // nobody joins any more
    end();
    g_context.store(nullptr, std::memory_order_release);
    delete this;
  }
  t->~Thread();
  allocator.put(t);
  return Status::kOk;
}

void Context::end() {
  map_maker_->stop();
  std::map<void*, Attached> attached;
  std::map<int32_t, Imported> imported;
  {
    Guard g(mu_);
    attached.swap(attached_);
    imported.swap(imported_);
  }
  memory::LossMark ignored = engine_->importer().publishing().losses();
  // As long as homes answer; nobody is left to be told of what a silent one does not take.
  (void)engine_->importer().publishing().barrier(ignored, kRevokeTimeout);
  const Deadline soon = Deadline::in(kRevokeTimeout);
  for (auto& [addr, a] : attached) {
    if (a.imported != nullptr) {
      engine_->importer().views().detach(a.imported, soon);
    } else {
      (void)engine_->home().views().detach(a.segment, addr, soon, true);
    }
    a.imported.reset();
    node_->detach(a.attachment);
  }
  std::vector<std::shared_ptr<memory::Import>> imports;
  for (auto& [id, i] : imported) imports.push_back(std::move(i.import));
  engine_->importer().leaving().leave_all(imports, {Deadline::in(kRevokeTimeout), kRevokeTimeout});
  engine_->home().close(Deadline::in(kRevokeTimeout));
}

}  // namespace cmi::context

// The start of a context, in the stages of start_stage.hpp.
#include <linux/magic.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/trace_node.hpp"
#include "core/context/context.hpp"
#include "core/context/lifetime.hpp"
#include "core/context/start_stage.hpp"
#include "core/emulate/emulate.hpp"
#include "core/memory/vm/fatal_line.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/node/machine_memory.hpp"
#include "fabric/reach.hpp"

namespace cmi::context {

namespace {
pthread_once_t g_once = PTHREAD_ONCE_INIT;

struct Handle {  // what the client's pointer points to
  cmi_ctxt ctxt;
  std::byte naddr[access::kNaddrSize];
};

// Segments and caches lie there, and userfaultfd takes no other files.
bool on_another_file_system(const std::string& folder) {
  struct statfs info;
  return statfs(folder.c_str(), &info) == 0 && info.f_type != TMPFS_MAGIC;
}

// The owner, where that is not the caller.
std::string of_whom(const std::string& folder) {
  struct stat st {};
  const bool others = stat(folder.c_str(), &st) == 0 && st.st_uid != geteuid();
  return others ? ", of user " + std::to_string(st.st_uid) : std::string();
}

Status check_arguments(uint16_t verno, const cmi_cbs* callbacks) {
  if (verno < 10 || verno / 10 != CMI_VERNO / 10) {
    return because(Status::kNotSupp, "another major version");
  }
  if (callbacks == nullptr) return Status::kOk;
  if ((callbacks->alloc == nullptr) != (callbacks->free == nullptr)) {
    return because(Status::kInval, "alloc without free, or free without alloc");
  }
  if ((callbacks->trace_facilities & ~CMI_TRACE_FAC_ALL) != 0 ||
      callbacks->trace_level > CMI_TRACE_LVL_HIGHEST) {
    return because(Status::kInval, "an unknown trace facility or level");
  }
  return Status::kOk;
}

Status check_machine() {
  t_stage = Stage::kMachine;
  if (memory::Userfault::pages_fit()) return Status::kOk;
  alert(kFacIni, "the kernel's pages have {} bytes: the library needs a kernel with pages of {}",
        ::sysconf(_SC_PAGESIZE), kPageSize);
  return because(Status::kNotSupp, "the kernel's pages are larger than 4096 bytes");
}

// As the client's callbacks want it, until the environment has been read.
TraceSink trace_by_callbacks(const cmi_cbs* callbacks) {
  TraceSink sink;
  if (callbacks != nullptr) sink = {callbacks->alert, callbacks->log, callbacks->arg, 2};
  Trace::get().configure(callbacks != nullptr ? callbacks->trace_facilities : 0,
                         callbacks != nullptr ? callbacks->trace_level : 0, sink);
  return sink;
}
}  // namespace

Result<Context*> Context::start(uint16_t verno, const cmi_cbs* callbacks,
                                const struct cmi_fns_10* table10,
                                const struct cmi_fns_11* table11) {
  pthread_once(&g_once, &Context::prepare_process);
  if (Status s = check_arguments(verno, callbacks); !ok(s)) return s;
  t_stage = Stage::kArguments;
  Lifetime one;
  if (Context* c = current(); c != nullptr) {
    if (Status s = c->join_thread(); !ok(s)) return s;
    return c;
  }
  arm_fault_points();
  const TraceSink sink = trace_by_callbacks(callbacks);
  t_stage = Stage::kEnvironment;
  auto environment = read_environment();
  if (Status s = environment ? check_machine() : Status::kOk; !ok(s)) environment = s;
  if (!environment) {
    Trace::get().configure(0, 0, {});  // the callbacks are good for this call only
    return environment.status();
  }

  struct Unmade {  // undoes a start that failed half way
    Context* context;
    ~Unmade() { delete context; }
  } made{new Context};
  Context& c = *made.context;
  c.environment_ = environment.take();
  memory::enable_fatal_line(c.environment_.fatal_line);
  c.trace_by_environment(callbacks, sink);
  if (callbacks != nullptr) c.allocator_ = {callbacks->alloc, callbacks->free, callbacks->arg};
  const uint16_t version = std::min<uint16_t>(verno, CMI_VERNO);
  if (Status s = c.make_handle(version, table10, table11); !ok(s)) return s;
  t_stage = Stage::kNode;
  if (Status s = c.join_node(); !ok(s)) return s;
  if (Status s = c.start_engine(); !ok(s)) return s;
  c.parts_ = std::make_unique<Parts>(
      Services{c.environment_, c.allocator_, *c.node_, *c.engine_, *c.events_, c.id_, version});
  auto& naddr = reinterpret_cast<Handle*>(c.handle_)->naddr;
  if (Status s = access::encode_naddr({c.node_->id(), c.id_}, naddr, version); !ok(s)) return s;
  process::handle.store(c.handle_, std::memory_order_release);
  process::context.store(&c, std::memory_order_release);
  if (Status s = c.join_thread(); !ok(s)) {
    process::context.store(nullptr);
    process::handle.store(nullptr);
    return s;
  }
  c.trace_start();
  made.context = nullptr;
  return &c;
}

void Context::trace_by_environment(const cmi_cbs* callbacks, TraceSink sink) {
  if (environment_.trace_fd) sink.fd = environment_.trace_fd.get();
  if (environment_.trace) {
    Trace::get().configure(environment_.trace->facilities, environment_.trace->level, sink);
  } else {
    Trace::get().configure(callbacks != nullptr ? callbacks->trace_facilities : 0,
                           callbacks != nullptr ? callbacks->trace_level : 0, sink);
  }
  if (fault_points_armed()) {
    alert(kFacIni, "CMI_FAULT_POINT or CMI_FAULT_COUNT is set: the library fails on purpose");
  }
}

// All of the client's object but its address, which needs the node.
Status Context::make_handle(uint16_t version, const struct cmi_fns_10* table10,
                            const struct cmi_fns_11* table11) {
  auto* handle = static_cast<Handle*>(allocator_.get(sizeof(Handle)));
  if (handle == nullptr) return Status::kNoMem;
  handle_ = &handle->ctxt;
  std::memset(handle, 0, sizeof *handle);
  handle->ctxt.base = {version, CMI_VENDOR_OFI, CMI_DEVICE_SOFT};
  handle->ctxt.caps = CMI_CAP_NODE_SPECIFIC_TOKEN | CMI_CAP_MIXED_CONSIST |
                      CMI_CAP_EXTENSIBLE_SEGMENTS |
                      (emulate::supported() ? CMI_CAP_WRITE_THROUGH : 0);
  handle->ctxt.naddr = reinterpret_cast<cmi_naddr*>(handle->naddr);
  handle->ctxt.fns10 = table10;
  handle->ctxt.fns11 = table11;
  return Status::kOk;
}

Status Context::join_node() {
  id_ = random_context_id();
  node::Config config;
  config.runtime_dir = environment_.runtime_dir;
  config.name = environment_.node_name;
  config.mem_max = environment_.mem_max;
  config.default_dir = environment_.default_dir;
  config.machine = &node::machine_memory;
  auto node = node::Node::join(config, id_);
  if (node) environment_.runtime_dir = (*node)->config().runtime_dir;
  // Asked when the folder is there, and first: such a file system may have failed the join, too.
  if (on_another_file_system(environment_.runtime_dir)) {
    alert(kFacIni,
          "CMI_RUNTIME_DIR: {} is not on a tmpfs, as /dev/shm is: the kernel does not let pages of "
          "other file systems be watched",
          environment_.runtime_dir);
    return because(Status::kNotSupp, "the runtime folder is not on a tmpfs");
  }
  if (!node) {
    const bool known = t_cause.status == node.status() && t_cause.words != nullptr;
    alert(kFacIni, "cannot join the node in {}{}: {}", environment_.runtime_dir,
          of_whom(environment_.runtime_dir), known ? t_cause.words : status_name(node.status()));
    return node.status();
  }
  node_ = node.take();
  return Status::kOk;
}

Status Context::start_engine() {
  auto events = events::Events::open(*this);
  if (!events) return events.status();
  events_ = events.take();
  t_stage = Stage::kNetwork;
  memory::Userfault::probe(environment_.kernel);
  auto interfaces = fabric::open_ways(environment_.provider, environment_.address);
  if (!interfaces) return interfaces.status();
  t_stage = Stage::kMemory;
  auto engine =
      memory::Engine::start(*node_, interfaces.take(), id_,
                            {environment_.fault == Environment::FaultMode::kThread,
                             environment_.local, environment_.dead_after, environment_.mem_max},
                            *events_);
  if (!engine) {
    // The trace is closed before cmi_ini() returns.
    if (t_cause.status == engine.status() && t_cause.words != nullptr) {
      alert(kFacIni, "cannot start the library: {}", t_cause.words);
    }
    return engine.status();
  }
  engine_ = engine.take();
  map_maker_ = std::make_unique<events::MapMaker>(*engine_, *events_);
  return Status::kOk;
}

void Context::trace_start() const {
  set_trace_node(node_->id().hi);
  const auto listeners = engine_->listeners();
  trace(kFacIni, kInfo, "cmi_ini: version {}, node {:016x}, provider {}", version(), node_->id().hi,
        listeners[0].provider);
  for (const auto& listener : listeners) {
    trace(kFacIni, kInfo, "reached over {} at {}", listener.provider,
          fabric::listener_text(listener.blob));
  }
}

}  // namespace cmi::context

// Threads that come and go, and the end of a context.
#include "core/context/context.hpp"

#include <pthread.h>

#include <new>

#include "core/base/cause.hpp"
#include "core/base/log.hpp"
#include "core/context/lifetime.hpp"

namespace cmi::context {

constinit thread_local Thread* t_thread = nullptr;
constinit thread_local cmi_error t_error = CMI_ERR_NONE;

namespace {
pthread_key_t g_thread_key;
}  // namespace

void Context::prepare_process() {
  pthread_key_create(&g_thread_key, &Context::thread_exits);
  pthread_atfork(&Context::before_fork, &Context::parent_after_fork, &Context::child_after_fork);
}

Context::~Context() {
  parts_.reset();
  map_maker_.reset();
  engine_.reset();
  events_.reset();
  node_.reset();
  allocator_.put(handle_);
  // The trace file closes with environment_.
  Trace::get().configure(0, 0, {});
}

void Context::thread_exits(void* thread) {
  auto* t = static_cast<Thread*>(thread);
  if (t != t_thread || t->context != current()) return;
  trace(kFacIni, kWarn, "a thread ended without fini");
  (void)t->context->leave_thread();
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
  threads_.add(*t);
  return Status::kOk;
}

Status Context::leave_thread() {
  Thread* t = t_thread;
  if (t->epoch != nullptr) (void)barriers().close_epoch(reinterpret_cast<cmi_fb>(t->epoch));
  Lifetime one;
  const bool last = threads_.remove(*t);
  pthread_setspecific(g_thread_key, nullptr);
  t_thread = nullptr;
  if (memory::t_access_enabled) engine_->importer().thread_enabled(false);
  memory::t_access_enabled = false;
  const Allocator allocator = allocator_;
  if (last) {
    trace(kFacIni, kInfo, "fini: the last thread left");
    process::handle.store(nullptr, std::memory_order_release);  // nobody joins any more
    end();
    process::context.store(nullptr, std::memory_order_release);
    delete this;
  }
  t->~Thread();
  allocator.put(t);
  return Status::kOk;
}

// Homes learn that this context ends, and count nothing that it holds as lost.
void Context::leave_imports(const std::vector<ImportedSegments::Import>& imports) {
  engine_->importer().leaving().leave_all(imports, {Deadline::in(kRevokeTimeout), kRevokeTimeout});
}

void Context::end() {
  tcp_offers_.stop();  // nobody is sent to segments that end
  map_maker_->stop();
  memory::LossMark ignored = engine_->importer().publishing().losses();
  // As long as homes answer; no thread is left that could take the report of a loss.
  (void)engine_->importer().publishing().barrier(ignored, kRevokeTimeout);
  parts_->segments.detach_all(Deadline::in(kRevokeTimeout));
  leave_imports(parts_->imports.take_all());
  engine_->home().close(Deadline::in(kRevokeTimeout));
}

Status Context::request_map(uint64_t id) {
  if (id == 0) return because(Status::kInval, "a request of 0");
  return map_maker_->request(id);
}

Status Context::set_reconf_timeout(uint32_t milliseconds) {
  // With none at all no access could ever succeed.
  if (milliseconds == 0) return because(Status::kInval, "a timeout of 0");
  engine_->importer().reconf_timeout().set(milliseconds * kMilli);
  return Status::kOk;
}

std::byte* Context::lowest_view(int32_t segment) {
  SignalsBlocked quiet;
  return parts_ != nullptr ? parts_->segments.lowest_view(segment) : nullptr;
}

}  // namespace cmi::context

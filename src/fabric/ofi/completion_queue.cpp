// See queue.hpp.
#include "fabric/ofi/completion_queue.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/log.hpp"
#include "fabric/ofi/cause.hpp"
#include "fabric/ofi/endpoint.hpp"

namespace cmi::fabric::ofi {

namespace {
constexpr int kMostLooks = 1 << 20;  // should a provider never say that there is nothing

Op& op_of(Context& context) {
  // Op is no standard-layout type, for which alone offsetof is defined: measured on one instead.
  static const ptrdiff_t at = [] {
    Op op;
    return reinterpret_cast<std::byte*>(&op.provider_area) - reinterpret_cast<std::byte*>(&op);
  }();
  return *reinterpret_cast<Op*>(reinterpret_cast<std::byte*>(&context) - at);
}
}  // namespace

bool Queue::can_be_shared(const OfiFabric& fabric) {
  const char* name = fabric.info()->fabric_attr->prov_name;
  return std::strcmp(name, "net") == 0 || std::strcmp(name, "tcp") == 0;
}

Result<std::shared_ptr<Queue>> Queue::open(const OfiFabric& fabric) {
  std::shared_ptr<Queue> queue(new Queue(fabric));
  if (Status s = queue->open_any(); !ok(s)) return s;
  return queue;
}

Queue::~Queue() { queue_.reset(); }  // before what it signals

Status Queue::open_any() {
  fi_info& info = *fabric_.info();
  fi_cq_attr attr = {};
  attr.format = FI_CQ_FORMAT_MSG;
  attr.size = info.tx_attr->size + info.rx_attr->size;
  if (std::strcmp(info.fabric_attr->prov_name, "net") == 0 && open_with_wait_set(attr)) {
    return Status::kOk;
  }
  int rc = 0;
  for (fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
    attr.wait_obj = wait;
    fid_cq* queue = nullptr;
    rc = fi_cq_open(fabric_.domain(), &attr, &queue, nullptr);
    if (rc != 0) continue;
    queue_.reset(queue);
    int fd = -1;
    if (wait == FI_WAIT_FD && fi_control(&queue->fid, FI_GETWAIT, &fd) == 0) wait_fd_ = fd;
    return Status::kOk;
  }
  return failed("completion queue", rc);
}

// Later libfabric calls wait sets deprecated, and has no net that they are wanted for.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
namespace {
int open_wait_set(fid_fabric* fabric, fi_wait_attr* attr, fid_wait** set) {
  return fi_wait_open(fabric, attr, set);
}
int look_at(fid_wait* set) { return fi_wait(set, 0); }
}  // namespace
#pragma GCC diagnostic pop

// net's fi_trywait (1.17, where it has that name) never takes back what a completion signalled: the
// queue's descriptor stays readable for good, and whoever sleeps on it spins. fi_wait on a wait set
// of the queue's own does take it back.
bool Queue::open_with_wait_set(fi_cq_attr attr) {
  fi_wait_attr wait_attr = {};
  wait_attr.wait_obj = FI_WAIT_FD;
  fid_wait* set = nullptr;
  if (open_wait_set(fabric_.fabric(), &wait_attr, &set) != 0) return false;
  Fid<fid_wait> owned(set);
  int fd = -1;
  if (fi_control(&set->fid, FI_GETWAIT, &fd) != 0) return false;
  attr.wait_obj = FI_WAIT_SET;
  attr.wait_set = set;
  fid_cq* queue = nullptr;
  if (fi_cq_open(fabric_.domain(), &attr, &queue, nullptr) != 0) return false;
  wait_set_ = std::move(owned);
  queue_.reset(queue);
  wait_fd_ = fd;
  return true;
}

void Queue::join(OfiEndpoint& ep) {
  Guard g(look_lock_);
  endpoints_.push_back(&ep);
}

Queue::Event Queue::error_event() {
  fi_cq_err_entry e = {};
  if (fi_cq_readerr(queue_.get(), &e, 0) != 1) return {};
  trace(kFacMem, kDebug, "operation ended: {} ({}, provider {})", error_text(e.err), e.err,
        e.prov_errno);
  if (e.op_context == nullptr) return {};  // rxm adds such to a refused atomic
  auto& context = *static_cast<Context*>(e.op_context);
  if (context.slot == nullptr) context.endpoint->op_failed(e.err);
  return {context.endpoint, context.slot != nullptr ? nullptr : &op_of(context), cause_of(e.err),
          context.slot, 0};
}

[[gnu::hot]] bool Queue::look() {
  Event found[kBatch];
  size_t n = 0;
  bool any = false;
  // Errors stand in the way of what is behind them: they are taken one by one, then the rest.
  for (size_t errors = 0; errors < kBatch; ++errors) {
    fi_cq_msg_entry entries[kBatch];
    const ssize_t got = fi_cq_read(queue_.get(), entries, kBatch - errors);
    any = any || got > 0 || got == -FI_EAVAIL;
    if (got == -FI_EAVAIL) {
      if (const Event e = error_event(); e.endpoint != nullptr) found[n++] = e;
      continue;
    }
    for (ssize_t i = 0; i < got; ++i) {
      auto* context = static_cast<Context*>(entries[i].op_context);
      if (context == nullptr) continue;
      Op* op = context->slot != nullptr ? nullptr : &op_of(*context);
      found[n++] = {context->endpoint, op, Cause::kOk, context->slot, entries[i].len};
    }
    if (got < 0 && got != -FI_EAGAIN) {
      trace(kFacCtrl, kError, "completion queue: {}", error_text(static_cast<int>(got)));
      faulty_.store(true, std::memory_order_relaxed);
    }
    break;
  }
  if (n == 0) return any;
  Guard g(due_lock_);
  std::copy_if(found, found + n, std::back_inserter(due_),
               [](const Event& e) { return !e.endpoint->is_quiet(); });
  due_count_.store(due_.size() - next_, std::memory_order_relaxed);
  return true;
}

// The endpoint of what was taken is not closed before OfiEndpoint::handed_out().
[[gnu::hot]] bool Queue::take(Event* event) {
  if (due_count_.load(std::memory_order_relaxed) == 0) return false;
  Guard g(due_lock_);
  if (next_ == due_.size()) return false;
  *event = due_[next_++];
  event->endpoint->take_in_hand();
  if (next_ == due_.size()) {
    due_.clear();
    next_ = 0;
  }
  due_count_.store(due_.size() - next_, std::memory_order_relaxed);
  return true;
}

[[gnu::hot]] int Queue::poll() {
  if (!look_lock_.try_lock()) return 0;
  if (due_count_.load(std::memory_order_relaxed) == 0) {
    Guard g(fabric_.gate());
    look();
  }
  // As many as there are now are this thread's to hand out, or another's that has them from here;
  // not what others find meanwhile: with that it might never return.
  const size_t mine = due_count_.load(std::memory_order_relaxed);
  // Before the lock goes, without which nobody finds the queue empty and goes to sleep.
  if (mine != 0) dispatching_.fetch_add(1, std::memory_order_acq_rel);
  if (unposted_.load(std::memory_order_relaxed) > 0) {
    for (OfiEndpoint* ep : endpoints_) ep->post_left_over();
  }
  look_lock_.unlock();
  if (mine == 0) return 0;
  const Nanos begun = mine > 1 ? now() : 0;
  size_t n = 0;
  for (Event e; n < mine && take(&e);) {
    e.op != nullptr ? e.endpoint->over(*e.op, e.cause)
                    : e.endpoint->arrived(*e.slot, e.len, e.cause);
    e.endpoint->handed_out();
    if (++n < mine && now() - begun > Endpoint::kStretch) break;
  }
  dispatching_.fetch_sub(1, std::memory_order_acq_rel);
  // A sleeper on the descriptor would not wake up for what is left, and this thread may leave.
  if (n < mine && due_count_.load(std::memory_order_relaxed) != 0) fi_cq_signal(queue_.get());
  fabric_.connections().mark_now_and_then();
  return static_cast<int>(n);
}

bool Queue::may_sleep() {
  fabric_.connections().mark_now_and_then();
  if (wait_fd_ < 0 || !look_lock_.try_lock()) return false;
  fid* queue = &queue_->fid;
  int rc;
  {
    Guard g(fabric_.gate());
    if (wait_set_ != nullptr) {
      rc = look_at(wait_set_.get()) == -FI_ETIMEDOUT ? 0 : -FI_EAGAIN;
    } else {
      rc = fi_trywait(fabric_.fabric(), &queue, 1);
    }
  }
  look_lock_.unlock();
  return rc == 0 && dispatching_.load(std::memory_order_acquire) == 0 &&
         due_count_.load(std::memory_order_relaxed) == 0;
}

void Queue::drop_quiet() {
  due_.erase(due_.begin(), due_.begin() + static_cast<ptrdiff_t>(next_));
  next_ = 0;
  std::erase_if(due_, [](const Event& e) { return e.endpoint->is_quiet(); });
  due_count_.store(due_.size(), std::memory_order_relaxed);
}

void Queue::quiet(OfiEndpoint& ep) {
  {
    Guard g(due_lock_);
    ep.become_quiet();
    drop_quiet();
  }
  for (Backoff backoff; ep.is_in_hand();) backoff.pause();
}

void Queue::leave(OfiEndpoint& ep, int unposted) {
  // It is over soon: what is not handed out takes no new message.
  // All of it: what stayed behind would be found when the endpoint is gone. There may be hundreds
  // of thousands, of others as well, and nobody posts meanwhile.
  for (int looks = 0; looks < kMostLooks && look(); ++looks) {
  }
  std::erase(endpoints_, &ep);
  unposted_.fetch_sub(unposted, std::memory_order_relaxed);
  // A thread that sleeps on the descriptor would not wake up for them.
  if (due_count_.load(std::memory_order_relaxed) != 0) fi_cq_signal(queue_.get());
}

}  // namespace cmi::fabric::ofi

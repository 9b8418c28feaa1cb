// Joining and leaving the node, and the questions about its members. Threads: any.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/fault_point.hpp"
#include "core/node/node_impl.hpp"
#include "core/node/reaper.hpp"

namespace cmi::node {

Result<std::unique_ptr<Node>> Node::join(const Config& config, ContextId self) {
  auto node = std::unique_ptr<Node>(new Node());
  node->impl_ = std::make_unique<Impl>();
  Impl& impl = *node->impl_;
  impl.config = config;
  impl.self = self;
  std::optional<Exclusive> lock;  // behind `node`: released before the registry is closed
  Status s = Registry::open_locked(config, Registry::Open::kCreate, Deadline::in(kLockWait),
                                   impl.registry, lock);
  if (!ok(s)) return s;
  reap_locked(*impl.registry, *lock);
  sweep_locked(*impl.registry, *lock);
  s = impl.take_slot_locked(*lock);
  if (!ok(s)) {
    impl.abandon_slot_locked(*lock);
    return s;
  }
  return node;
}

Status Node::Impl::take_slot_locked(const Exclusive&) {
  Registry_shm& shm = *registry->shm();
  Result<Fd> fd = open_file(registry->folder(), kRegistryName, O_RDWR);
  if (!fd) return fd.status();
  life = fd.take();
  // A slot whose state is free while its life byte is held belongs to nobody we know: a forked
  // child that kept its parent's descriptor. It is left alone.
  for (slot = 0; slot < kMaxContexts; ++slot) {
    if (shm.contexts[slot].state.load(std::memory_order_acquire) == kContextFree &&
        try_lock_byte(life.get(), kLifeByte + slot)) {
      break;
    }
  }
  if (slot == kMaxContexts) {
    note(kFacIni, kError, "node: all {} context slots are taken", kMaxContexts);
    return Status::kNoMem;
  }
  fault_point("node.join.life_locked");
  Result<Fd> socket = open_bus(registry->folder(), slot);
  if (!socket) return socket.status();
  bus = socket.take();
  // Dies here: the slot is free, the socket's file is named by no slot and swept by the next join.
  fault_point("node.join.socket_bound");
  Context_shm& c = shm.contexts[slot];
  c.id_hi.store(self.hi, std::memory_order_relaxed);
  c.id_lo.store(self.lo, std::memory_order_relaxed);
  c.pid.store(static_cast<uint64_t>(getpid()), std::memory_order_relaxed);
  fault_point("node.join.slot_filled");
  // Dies after: a member whose life byte is free, which is what a reaper looks for.
  c.state.store(kContextMember, std::memory_order_release);
  joined = true;
  fault_point("node.join.published");
  return Status::kOk;
}

void Node::Impl::abandon_slot_locked(const Exclusive& lock) {
  if (bus && slot < kMaxContexts) {
    unlinkat(registry->folder().dir.get(), bus_file_name(slot).text, 0);
  }
  life.reset();
  if (!needed_locked(*registry, lock)) remove_folder_locked(*registry, lock);
}

void Node::Impl::leave() {
  Exclusive lock(registry->lock(), Deadline::in(kLockWait));
  if (!lock) {
    note(kFacIni, kWarn, "node: left without cleaning up: the lock was not had");
    return;  // closing the life descriptor makes us dead; a reaper does the rest
  }
  retire_context_locked(*registry, lock, slot);
  reap_locked(*registry, lock);
  if (!needed_locked(*registry, lock)) remove_folder_locked(*registry, lock);
}

Node::~Node() {
  if (impl_ && impl_->joined) impl_->leave();
}

void Node::forget_in_child() {
  impl_->joined = false;
  impl_->life.reset();
  impl_->bus.reset();
  impl_->registry->forget_in_child();
}

NodeId Node::id() const { return node_id_of(impl_->config); }
ContextSlot Node::slot() const { return ContextSlot{impl_->slot}; }
const Config& Node::config() const { return impl_->config; }

bool Node::alive(ContextSlot slot, ContextId id) {
  uint32_t s = static_cast<uint32_t>(slot);
  return impl_->registry->member(s, id) && impl_->registry->life_locked(s) &&
         impl_->registry->member(s, id);
}

bool Node::member(ContextSlot slot, ContextId id) const {
  return impl_->registry->member(static_cast<uint32_t>(slot), id);
}

Result<ContextSlot> Node::find_context(ContextId id) {
  for (uint32_t s = 0; s < kMaxContexts; ++s) {
    if (alive(ContextSlot{s}, id)) return ContextSlot{s};
  }
  return Status::kInval;
}

std::vector<ContextSlot> Node::members() {
  std::vector<ContextSlot> out;
  for (uint32_t s = 0; s < kMaxContexts; ++s) {
    if (impl_->registry->alive(s)) out.push_back(ContextSlot{s});
  }
  return out;
}

bool Node::any_member(const std::function<bool(const ContextId&)>& is) {
  Registry_shm& shm = *impl_->registry->shm();
  for (uint32_t s = 0; s < kMaxContexts; ++s) {
    const Context_shm& c = shm.contexts[s];
    const ContextId id{c.id_hi.load(std::memory_order_acquire),
                       c.id_lo.load(std::memory_order_acquire)};
    if (is(id) && alive(ContextSlot{s}, id)) return true;
  }
  return false;
}

Result<int> Node::reap() {
  Exclusive lock(impl_->registry->lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  int dead = reap_locked(*impl_->registry, lock);
  sweep_locked(*impl_->registry, lock);
  return dead;
}

}  // namespace cmi::node

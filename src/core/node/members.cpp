#include "core/node/members.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/fault_point.hpp"
#include "core/node/reaper.hpp"

namespace cmi::node {

Status Members::take_slot_locked(const Exclusive&) {
  Registry_shm& shm = *seat_.registry->shm();
  uint32_t& slot = seat_.slot;
  Result<Fd> fd = open_file(seat_.registry->folder(), kRegistryName, O_RDWR);
  if (!fd) return fd.status();
  life_ = fd.take();
  // A slot whose state is free while its life byte is held belongs to nobody we know: a forked
  // child that kept its parent's descriptor. It is left alone.
  for (slot = 0; slot < kMaxContexts; ++slot) {
    if (shm.contexts[slot].state.load(std::memory_order_acquire) == kContextFree &&
        try_lock_byte(life_.get(), kLifeByte + slot)) {
      break;
    }
  }
  if (slot == kMaxContexts) {
    note(kFacIni, kError, "node: all {} context slots are taken", kMaxContexts);
    return Status::kNoMem;
  }
  fault_point("node.join.life_locked");
  return Status::kOk;
}

void Members::publish_locked(const Exclusive&) {
  Context_shm& c = seat_.registry->shm()->contexts[seat_.slot];
  c.id_hi.store(seat_.self.hi, std::memory_order_relaxed);
  c.id_lo.store(seat_.self.lo, std::memory_order_relaxed);
  c.pid.store(static_cast<uint64_t>(getpid()), std::memory_order_relaxed);
  fault_point("node.join.slot_filled");
  // Dies after: a member whose life byte is free, which is what a reaper looks for.
  c.state.store(kContextMember, std::memory_order_release);
  joined_ = true;
  fault_point("node.join.published");
}

void Members::abandon_slot_locked(const Exclusive& lock) {
  Registry& r = *seat_.registry;
  if (life_ && seat_.slot < kMaxContexts) {
    unlinkat(r.folder().dir.get(), bus_file_name(seat_.slot).text, 0);
  }
  life_.reset();
  if (!needed_locked(r, lock)) remove_folder_locked(r, lock);
}

void Members::leave() {
  if (!joined_) return;
  joined_ = false;
  Registry& r = *seat_.registry;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) {
    note(kFacIni, kWarn, "node: left without cleaning up: the lock was not had");
    return;  // closing the life descriptor makes us dead; a reaper does the rest
  }
  retire_context_locked(r, lock, seat_.slot);
  reap_locked(r, lock);
  if (!needed_locked(r, lock)) remove_folder_locked(r, lock);
}

void Members::forget_in_child() {
  joined_ = false;
  life_.reset();
}

bool Members::alive(ContextSlot slot, ContextId id) const {
  uint32_t s = static_cast<uint32_t>(slot);
  return seat_.registry->member(s, id) && seat_.registry->life_locked(s) &&
         seat_.registry->member(s, id);
}

bool Members::member(ContextSlot slot, ContextId id) const {
  return seat_.registry->member(static_cast<uint32_t>(slot), id);
}

Result<ContextSlot> Members::find(ContextId id) const {
  for (uint32_t s = 0; s < kMaxContexts; ++s) {
    if (alive(ContextSlot{s}, id)) return ContextSlot{s};
  }
  return Status::kInval;
}

std::vector<ContextSlot> Members::living() const {
  std::vector<ContextSlot> out;
  for (uint32_t s = 0; s < kMaxContexts; ++s) {
    if (seat_.registry->alive(s)) out.push_back(ContextSlot{s});
  }
  return out;
}

bool Members::any(const std::function<bool(const ContextId&)>& is) const {
  Registry_shm& shm = *seat_.registry->shm();
  for (uint32_t s = 0; s < kMaxContexts; ++s) {
    const Context_shm& c = shm.contexts[s];
    const ContextId id{c.id_hi.load(std::memory_order_acquire),
                       c.id_lo.load(std::memory_order_acquire)};
    if (is(id) && alive(ContextSlot{s}, id)) return true;
  }
  return false;
}

Result<int> Members::reap() {
  Exclusive lock(seat_.registry->lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  int dead = reap_locked(*seat_.registry, lock);
  sweep_locked(*seat_.registry, lock);
  return dead;
}

}  // namespace cmi::node

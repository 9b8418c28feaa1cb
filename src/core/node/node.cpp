#include "core/node/node.hpp"

#include <unistd.h>

#include <optional>

#include "core/base/fault_point.hpp"
#include "core/node/other_nodes.hpp"
#include "core/node/reaper.hpp"
#include "core/node/reservation_slots.hpp"

namespace cmi::node {

Result<std::unique_ptr<Node>> Node::join(const Config& config, ContextId self) {
  auto node = try_join(config, self);
  if (node.status() != Status::kNoMem) return node;
  // The dead of other nodes may have what is missing.
  const std::string dir = config.default_dir ? default_runtime_dir() : config.runtime_dir;
  return reap_nodes(dir, nullptr) ? try_join(config, self) : std::move(node);
}

Result<std::unique_ptr<Node>> Node::try_join(const Config& config, ContextId self) {
  auto node = std::unique_ptr<Node>(new Node(config, self));
  std::optional<Exclusive> lock;  // behind `node`: released before the registry is closed
  Status s = Registry::open_locked(config, Registry::Open::kCreate, Deadline::in(kLockWait),
                                   node->seat_.registry, lock);
  if (!ok(s)) return s;
  node->seat_.config.runtime_dir = node->seat_.registry->folder().runtime_dir;
  node->seat_.config.default_dir = false;
  reap_locked(*node->seat_.registry, *lock);
  sweep_locked(*node->seat_.registry, *lock);
  s = node->take_slot_locked(*lock);
  if (!ok(s)) return s;
  return node;
}

Status Node::take_slot_locked(const Exclusive& lock) {
  Status s = members_.take_slot_locked(lock);
  if (ok(s)) s = bus_.open();
  if (!ok(s)) {
    members_.abandon_slot_locked(lock);
    return s;
  }
  // Dies here: the slot is free, the socket's file is named by no slot and swept by the next join.
  fault_point("node.join.socket_bound");
  members_.publish_locked(lock);
  return Status::kOk;
}

Node::~Node() {
  late_reaper_.stop();
  members_.leave();
}

void Node::forget_in_child() {
  late_reaper_.forget_in_child();
  members_.forget_in_child();
  bus_.forget_in_child();
  seat_.registry->forget_in_child();
}

Status delete_reservation(const Config& config, uint64_t key) {
  std::unique_ptr<Registry> registry;
  std::optional<Exclusive> lock;
  Status s = Registry::open_locked(config, Registry::Open::kExisting, Deadline::in(kLockWait),
                                   registry, lock);
  if (!ok(s)) return s;
  if (!registry || registry->shm() == nullptr) return Status::kInval;
  Reservation_shm* rsv = reservation_locked(*registry, key);
  if (rsv == nullptr) return Status::kInval;
  clear_reservation_locked(*registry, *lock, rsv);
  reap_locked(*registry, *lock);
  if (!needed_locked(*registry, *lock)) remove_folder_locked(*registry, *lock);
  return Status::kOk;
}

}  // namespace cmi::node

// The open registry of one node: the mapped file, its lock, and what all users of it need to know
// about contexts: who is a member, who is alive.
// Owned by a Node, or for a moment by reap_folder. Invariants:
// 1. `shm` is mapped over a file of exactly its size, all blocks allocated: no access faults.
// 2. The mapping's description carries the exclusive lock and no life lock, and is not inherited by
//    a forked child: nothing but a Node's own life descriptor keeps a context alive.
#pragma once

#include <memory>
#include <optional>

#include "core/base/status.hpp"
#include "core/node/folder.hpp"
#include "core/node/layout.hpp"
#include "core/node/lock_file.hpp"

namespace cmi::node {

class Registry {
 public:
  enum class Open { kCreate, kExisting };
  // Opens the registry of the node and takes its lock. With kCreate, makes what is missing. With
  // kExisting, kOk without `out` says that there is none; and one that nobody finished making is
  // returned with shm() null.
  static Status open_locked(const Config& config, Open how, Deadline deadline,
                            std::unique_ptr<Registry>& out, std::optional<Exclusive>& lock);

  Registry_shm* shm() const { return shm_; }
  const Folder& folder() const { return folder_; }
  LockFile& lock() { return lock_; }

  // Without the lock an answer may be old by the time it is used.
  bool member(uint32_t slot) const;
  bool member(uint32_t slot, ContextId id) const;
  bool life_locked(uint32_t slot) const {
    return byte_locked_elsewhere(fd_.get(), kLifeByte + slot);
  }
  bool alive(uint32_t slot) const { return member(slot) && life_locked(slot); }

  // Bounds of the scans.
  uint32_t segments_end() const;
  uint32_t attachments_end() const;

  void forget_in_child();  // closes; the mapping never reached the child

 private:
  Status prepare_locked(Open how);
  Status renew_locked(Open how, off_t size);
  Status map();
  void fill(NodeId id, const std::string& name);
  bool valid(NodeId id) const;

  Folder folder_;
  NodeId node_id_;
  std::string name_;
  Fd fd_;
  LockFile lock_;
  Mapping map_;
  Registry_shm* shm_ = nullptr;
};

// Remembers for the length of one locked operation which contexts live: one system call for each.
class Living {
 public:
  explicit Living(const Registry& registry) : registry_(registry) {}
  bool operator()(uint32_t slot) {
    int8_t& known = known_[slot];
    if (known == 0) known = registry_.alive(slot) ? 1 : -1;
    return known > 0;
  }

 private:
  const Registry& registry_;
  int8_t known_[kMaxContexts] = {};
};

}  // namespace cmi::node

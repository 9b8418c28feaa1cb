// Stores and swaps of write-through imports whose answers have not come, one for each thread at
// most: the thread finds its own when it comes back to the instruction. Any thread, the fault
// handler too; the lock is a leaf but for the links of dropped requests.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/lock.hpp"
#include "core/emulate/emulate.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/wire/wire.hpp"
#include "fabric/link.hpp"

namespace cmi::memory {

struct Import;

// A store or swap of a write-through import whose answer has not come, and the instruction that it
// is part of: when that is tried again, it is awaited and not repeated.
struct PendingStore {
  std::shared_ptr<Import> import;
  std::shared_ptr<fabric::Request> request;  // null: only what follows is owed
  RequestType type{};
  std::vector<std::byte> payload;
  emulate::ThreadState thread{};  // as it stood at the instruction
  // The operand as it was read. What is there by now may be what the instruction has stored itself.
  uint64_t read_at = 0;
  std::vector<std::byte> read;
  size_t written = 0;  // bytes at the front of what it writes that are stored already
  Nanos since = 0;     // when it was left
  pid_t tid = 0;
};

class PendingStores {
 public:
  // What the calling thread has left, which is forgotten here. Empty: nothing.
  PendingStore take();
  // Kept for the calling thread, in place of what it left before. What threads left that have ended
  // is dropped.
  void leave(PendingStore pending);
  // Nobody comes back for it: its answer is not waited for.
  static void drop(PendingStore& pending);
  size_t size() const { return count_.load(std::memory_order_relaxed); }

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  // By thread: a number that no other thread ever has.
  std::map<uint64_t, PendingStore> stores_ CMI_GUARDED_BY(mu_);
  std::atomic<size_t> count_{0};  // entries
};

}  // namespace cmi::memory

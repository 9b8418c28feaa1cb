// Stores that threads have left without an answer, and what becomes of them when the thread ends.
#include "core/memory/importer/pending_stores.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/memory/importer/import.hpp"

namespace cmi::memory {

namespace {

// Of the calling thread alone, for ever: the kernel gives its own numbers again.
uint64_t thread_serial() {
  if (Schedule* s = schedule(); s != nullptr) return s->thread();
  static std::atomic<uint64_t> last{0};
  thread_local uint64_t mine = 0;
  if (mine == 0) mine = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return mine;
}

bool has_ended(pid_t thread) {
  return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
}

}  // namespace

PendingStore PendingStores::take() {
  if (count_.load(std::memory_order_relaxed) == 0) return {};  // else it would be ours
  Guard g(mu_);
  auto it = stores_.find(thread_serial());
  if (it == stores_.end()) return {};
  PendingStore pending = std::move(it->second);
  stores_.erase(it);
  count_.fetch_sub(1);
  return pending;
}

void PendingStores::leave(PendingStore pending) {
  pending.tid = gettid();
  pending.since = now();
  Guard g(mu_);
  for (auto it = stores_.begin(); it != stores_.end();) {
    if (!has_ended(it->second.tid)) {
      ++it;
      continue;
    }
    drop(it->second);
    it = stores_.erase(it);
    count_.fetch_sub(1);
  }
  if (stores_.insert_or_assign(thread_serial(), std::move(pending)).second) count_.fetch_add(1);
}

void PendingStores::drop(PendingStore& pending) {
  if (pending.request != nullptr) pending.import->link->forget(pending.request);
  pending = {};
}

}  // namespace cmi::memory

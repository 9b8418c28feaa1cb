// Threads with access come and go.
#include "core/memory/importer/enabled_threads.hpp"

#include <algorithm>
#include <new>

#include "core/base/fault_point.hpp"
#include "core/base/library_thread.hpp"
#include "core/base/mutation.hpp"
#include "core/base/spin.hpp"
#include "core/memory/vm/sigbus.hpp"

namespace cmi::memory {

void EnabledThreads::add() {
  {
    Guard g(mu_);
    if (fault_point_fails("enable_no_memory")) throw std::bad_alloc();
    threads_.push_back(thread_number());
  }
  if (mutated("mutate_access_meanwhile")) return;
  // Acquire pairs with the end of an ExclusiveAccess: what was sent meanwhile is protected.
  for (Backoff backoff; exclusive_.load(std::memory_order_acquire);) backoff.pause();
}

bool EnabledThreads::remove() {
  Guard g(mu_);
  std::erase(threads_, thread_number());
  return threads_.empty();
}

// What is being served began when a thread was enabled, or finds that none is. Acquire pairs with
// the release in end_serving: its mappings are there to be taken.
void EnabledThreads::await_served() const {
  for (Backoff backoff; serving_.load(std::memory_order_acquire) != 0;) backoff.pause();
}

bool EnabledThreads::begin_serving(pid_t thread) {
  Guard g(mu_);
  serving_.fetch_add(1, std::memory_order_relaxed);
  return std::find(threads_.begin(), threads_.end(), static_cast<uint64_t>(thread)) !=
         threads_.end();
}

bool EnabledThreads::begin_serving() {
  Guard g(mu_);
  serving_.fetch_add(1, std::memory_order_relaxed);
  return !threads_.empty();
}

// Under the lock: a thread that is being added is counted here, or finds exclusive_ set. A fault
// thread has access in the name of the thread that faulted. That thread's signal handlers may store
// while it waits.
ExclusiveAccess::ExclusiveAccess(EnabledThreads& enabled) : enabled_(enabled) {
  Guard g(enabled.mu_);
  mine_ = (enabled.threads_.size() == 1 && t_access_enabled && !t_library_thread) ||
          mutated("mutate_taken_for_exclusive");
  if (mine_) enabled.exclusive_.store(true, std::memory_order_relaxed);
}

}  // namespace cmi::memory

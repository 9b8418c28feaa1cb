#include "core/node/late_reaper.hpp"

#include <pthread.h>

#include "core/base/library_thread.hpp"
#include "core/node/other_nodes.hpp"
#include "core/node/reaper.hpp"

namespace cmi::node {

void LateReaper::begin_if_wanted() {
  if (!wanted_.load(std::memory_order_relaxed) || running_.load(std::memory_order_acquire)) return;
  SignalsBlocked quiet;  // the thread inherits it
  if (thread_.joinable()) thread_.join();
  wanted_.store(false, std::memory_order_relaxed);
  running_.store(true, std::memory_order_relaxed);
  if (!ok(start_thread(&thread_, &LateReaper::run, this))) {
    running_.store(false, std::memory_order_relaxed);
    want();  // threads end, too
  }
}

void LateReaper::run() {
  pthread_setname_np(pthread_self(), "cmi-reaper");
  const LibraryThread here;
  Registry& own = *seat_.registry;
  if (Exclusive lock(own.lock(), Deadline{}); lock) reap_locked(own, lock);
  reap_nodes(own.folder().runtime_dir, &own.folder().name, 0);
  running_.store(false, std::memory_order_release);
}

void LateReaper::stop() {
  if (thread_.joinable()) thread_.join();
}

void LateReaper::forget_in_child() {
  if (thread_.joinable()) thread_.detach();
}

}  // namespace cmi::node

// Napping on page changes.
#include "core/memory/importer/change_wait.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cmi::memory {

[[gnu::hot]] void ChangeWait::notify() {
  changes_.fetch_add(1, std::memory_order_seq_cst);
  // seq_cst with the pair in wait(): either the waiter sees the new value or we see it.
  if (waiters_.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &changes_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }
}

void ChangeWait::wait(uint32_t seen, Nanos span) {
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  if (Schedule* s = schedule(); s != nullptr) {
    s->idle(span);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  timespec t{span / kSecond, span % kSecond};
  syscall(SYS_futex, &changes_, FUTEX_WAIT_PRIVATE, seen, &t, nullptr, 0);
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace cmi::memory

// Napping on page changes.
#include "core/memory/importer/import.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cmi::memory {

Import::~Import() = default;

[[gnu::hot]] bool Import::is_in_flux(uint32_t page) {
  // Pages that are listed while they are mapped are taken under their locks after that: who looks
  // here under a page's lock either finds it, or what it maps is taken again.
  if (!any_in_flux.load(std::memory_order_seq_cst)) return false;
  Guard g(flux_mu);
  return in_flux.contains(page);
}

[[gnu::hot]] void Import::changed() {
  changes.fetch_add(1, std::memory_order_seq_cst);
  // seq_cst with the pair in wait_for_change: either the waiter sees the new value or we see it.
  if (change_waiters.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }
}

void Import::wait_for_change(uint32_t seen, Nanos span) {
  change_waiters.fetch_add(1, std::memory_order_seq_cst);
  timespec t{span / kSecond, span % kSecond};
  syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, seen, &t, nullptr, 0);
  change_waiters.fetch_sub(1, std::memory_order_relaxed);
}

[[gnu::hot]] bool Import::begin_use(uint32_t generation, const fabric::RemoteKey& k, uint64_t end) {
  // Pairs with a revocation and with a new break, which set what is looked at here, and then wait
  // for using_key to be zero.
  using_key.fetch_add(1, std::memory_order_seq_cst);
  if (grant.state() == ImportState::kUsable &&
      key_generation.load(std::memory_order_seq_cst) == generation &&
      key.load(std::memory_order_relaxed) == k.key && end <= brk.load(std::memory_order_seq_cst)) {
    return true;
  }
  end_use();
  return false;
}

}  // namespace cmi::memory

// The break of one import as far as this process has heard of it (rule 24). A break is in force as
// soon as it is known; one that came before it, by its round, changes nothing any more. Pure but
// for its lock, which may be held over a short wait for the registry (with_pages).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

class KnownBreak {
 public:
  // Pages before the break. Looked at under a page's lock: a break is set first, and the pages past
  // it are taken after.
  uint32_t load(std::memory_order order = std::memory_order_seq_cst) const {
    return pages_.load(order);
  }
  // Of a segment that is not extensible; before anybody else knows the import.
  void fix(uint32_t pages) { pages_.store(pages, std::memory_order_relaxed); }

  // False: a newer one has come already. `moved` runs under the lock where this one is newer, after
  // it is in force; `in_force` wherever the break is this one.
  template <class Moved, class InForce>
  bool take(const Break& brk, Moved moved, InForce in_force) {
    Guard g(mu_);
    if (!take_locked(brk, moved)) return false;
    in_force();
    return true;
  }

  struct Taken {
    bool late = false;     // a newer one has come already; nothing has changed
    bool behind = false;   // to be used by grow(), once nothing of before is under way
    PageRange past{0, 0};  // pages that were before a break once and are not now
  };
  // Around what a notification of a break entails; one at a time. False: another thread is at one.
  bool begin_notified() { return !taking_.exchange(true, std::memory_order_acq_rel); }
  void end_notified() { taking_.store(false, std::memory_order_release); }
  // A notification. What was taken in from `low` (bytes) on is of before a break that was not heard
  // of here. Nobody uses these pages until they are dropped and nothing that was stored to them is
  // under way: until then the break is at `low`.
  template <class Moved>
  Taken notified(const Break& brk, uint64_t low, Moved moved) {
    Guard g(mu_);
    Taken taken;
    taken.behind = low < brk.bytes && brk.round > round_;
    taken.late = !take_locked({taken.behind ? low : brk.bytes, brk.round}, moved);
    if (taken.late) return taken;
    taken.past.first = pages_.load(std::memory_order_relaxed);
    taken.past.count = high_ - taken.past.first;
    high_ = taken.past.first;
    return taken;
  }
  // Nothing of before is left or under way: up to the break that waited for that. False: there is a
  // newer one.
  bool grow(const Break& brk) {
    Guard g(mu_);
    if (brk.round != round_) return false;
    set(brk);
    return true;
  }
  // Under the lock, so that of two that pass the break on the newer one is the last.
  template <class Use>
  void with_pages(Use use) {
    Guard g(mu_);
    use(pages_.load());
  }

 private:
  template <class Moved>
  bool take_locked(const Break& brk, Moved moved) CMI_REQUIRES(mu_) {
    if (brk.round < round_) return false;
    if (brk.round == round_) return true;
    round_ = brk.round;
    set(brk);
    moved();
    return true;
  }
  void set(const Break& brk) CMI_REQUIRES(mu_) {
    const auto pages = static_cast<uint32_t>(brk.bytes / kPageSize);
    high_ = std::max(high_, pages);
    pages_.store(pages, std::memory_order_seq_cst);
  }

  std::atomic<uint32_t> pages_{0};
  std::atomic<bool> taking_{false};
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_answers)
      CMI_ACQUIRED_BEFORE(lock_order::after_write_backs);
  uint32_t round_ CMI_GUARDED_BY(mu_) = 0;  // of the newest that was heard of
  uint32_t high_ CMI_GUARDED_BY(mu_) = 0;   // no page from here on was ever taken in
};

}  // namespace cmi::memory

// Touching the client's memory where it may be broken. A page with an uncorrectable error kills
// whoever loads from it or stores to it; the library, which serves all the other pages, does so on
// behalf of an importer only within unless_broken(), and tells the importer instead.
//
// The SIGBUS comes to the thread that touched, which has the signal open even while it blocks all
// others (SignalsBlocked). Any thread; sections do not nest.
#pragma once

#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cstddef>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"

namespace cmi::memory {

struct GuardedCopy {
  sigjmp_buf back;
  const std::byte* from;  // the range that may be broken
  size_t size;
};

// Of the calling thread; the fault handler reads it.
inline constinit thread_local GuardedCopy* t_guarded_copy = nullptr;

// Runs touch(), which touches nothing that may be broken but [at, at+size), calls nothing that
// takes a lock or allocates, and leaves nothing to destroy. False: the memory is broken, and what
// touch() has changed is undefined.
template <class Touch>
[[gnu::noinline]] bool unless_broken(const std::byte* at, size_t size, const Touch& touch) {
  GuardedCopy here;
  here.from = at;
  here.size = size;
  if (sigsetjmp(here.back, 0) != 0) {
    t_guarded_copy = nullptr;
    return false;
  }
  t_guarded_copy = &here;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  touch();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  t_guarded_copy = nullptr;
  return true;
}

// Whether the page can be read. Memory is lost by whole pages, so one byte tells.
inline bool page_intact(const std::byte* page) {
  return unless_broken(page, kPageSize,
                       [&] { (void)*static_cast<const volatile std::byte*>(page); });
}

// In the SIGBUS handler: jumps back to the section that touched `addr`, if it was one.
inline void leave_guarded_copy(const void* addr, const sigset_t& mask) {
  GuardedCopy* const section = t_guarded_copy;
  const auto* at = static_cast<const std::byte*>(addr);
  if (section == nullptr || at < section->from || at >= section->from + section->size) return;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  siglongjmp(section->back, 1);
}

}  // namespace cmi::memory

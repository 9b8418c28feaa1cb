// Barriers, flush epochs, cflush, prefetches and atm_cas of the calling thread, which must be
// registered (t_thread): each spans both sides of the protocol.
#pragma once

#include <cmi.h>

#include "core/context/services.hpp"
#include "core/context/threads.hpp"

namespace cmi::context {

struct Raised {  // an exception that the C entry has to raise
  memory::Exception exception = memory::Exception::kNone;
  bool final = false;  // the call must not be tried again after it
  const void* addr = nullptr;
  int32_t segment = 0;
};

// What atm_cas asks for.
struct SwapCall {
  uint64_t* addr = nullptr;
  uint64_t expected = 0, desired = 0;
  // One and the same for all tries of a call, and of no other that has not returned.
  const void* call = nullptr;
  bool again = false;  // it has been tried before
};

class Barriers {
 public:
  explicit Barriers(const Services& services) : services_(services) {}

  Status barrier() { return barrier(t_thread->loss); }
  Result<cmi_fb> open_epoch();
  Status flush_epoch(cmi_fb epoch);
  Status close_epoch(cmi_fb epoch);
  Status cflush(void* const* addrs, int32_t n, Raised* raised);
  // What will be loaded; the rest of a range that goes beyond its view is left out.
  Status prefetch(const void* addr, size_t len);
  // kHw: the swap may have been made.
  Status cas(const SwapCall& swap, uint64_t* found, Raised* raised);

 private:
  struct Flushed;
  Status sort_lines(void* const* addrs, int32_t n, Flushed* flushed, Raised* raised);
  Status barrier(memory::LossMark& mark);
  Status barrier_before_swap();
  Status barrier_before_swap(const memory::View& view, const SwapCall& swap,
                             memory::PendingSwap* pending);
  Status swap_imported(const memory::View& view, const SwapCall& swap, uint64_t* found,
                       Raised* raised);
  Status swap_at_home(int32_t seg, size_t offset, const SwapCall& swap, uint64_t* found,
                      Raised* raised);

  const Services& services_;
};

// A barrier of the process's context and thread, or Status::kInit. For the macros, which take none.
Status barrier_here();

}  // namespace cmi::context

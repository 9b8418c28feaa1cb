// atm_cas of a context. See barriers.hpp.
#include <new>

#include "core/base/cause.hpp"
#include "core/base/mutation.hpp"
#include "core/base/usdt.hpp"
#include "core/context/thread_barriers.hpp"

namespace cmi::context {

// kHw of a swap means that it may have been made, and so it says kStore of stores that were lost
// before it, whatever has lost them.
static Status lost_before_swap(Status s) { return s == Status::kHw ? Status::kStore : s; }

Status Barriers::barrier_before_swap() {
  if (mutated("mutate_swap_without_barrier")) return Status::kOk;
  return lost_before_swap(barrier());
}

// What was stored to segments of this node is published first: the swap may travel with the rest.
Status Barriers::barrier_before_swap(const memory::View& view, const SwapCall& swap,
                                     memory::PendingSwap* pending) {
  if (mutated("mutate_swap_without_barrier")) return Status::kOk;
  memory::Importer& importer = services_.engine.importer();
  if (const Status here = services_.engine.home().barriers().barrier(services_.longest_wait());
      !ok(here)) {
    const Status there = importer.publishing().barrier(t_thread->loss, services_.longest_wait());
    return lost_before_swap(ok(there) ? here : there);
  }
  return lost_before_swap(importer.swaps().barrier_before_swap(
      view, reinterpret_cast<std::byte*>(swap.addr), swap.expected, swap.desired, pending,
      t_thread->loss, services_.longest_wait()));
}

Status Barriers::cas(const SwapCall& swap, uint64_t* found, Raised* raised) {
  if (reinterpret_cast<uintptr_t>(swap.addr) % 8 != 0 || found == nullptr) {
    return because(Status::kInval, "the address is not a multiple of 8");
  }
  const auto view = services_.engine.views().find(swap.addr);
  if (view != nullptr && view->import != nullptr) {
    return swap_imported(*view, swap, found, raised);
  }
  size_t offset;
  bool read_only;
  const int32_t seg = services_.engine.home().views().segment_at(swap.addr, &offset, &read_only);
  if (seg == 0) return because(Status::kInval, "the address is in no view");
  if (read_only) {
    *raised = {memory::Exception::kAccess, false, swap.addr, seg};
    return Status::kOk;
  }
  return swap_at_home(seg, offset, swap, found, raised);
}

Status Barriers::swap_imported(const memory::View& view, const SwapCall& swap, uint64_t* found,
                               Raised* raised) {
  if (!memory::t_access_enabled) {
    *raised = {memory::Exception::kEnable, false, swap.addr, view.segment};
    return Status::kOk;
  }
  memory::PendingSwap& pending = t_thread->pending_swaps.of(swap.call, swap.again);
  // Everything before it is globally visible before the swap is. Of one that has been sent
  // already that was so, and whatever has been lost since, it may have been made.
  if (!pending.is_sent(view.import)) {
    const Status s = barrier_before_swap(view, swap, &pending);
    if (!ok(s)) return s;
  }
  memory::Importer& importer = services_.engine.importer();
  memory::count(services_.engine.stats().cas_calls);
  CMI_PROBE2(swap, view.segment, swap.addr);
  const Timed timed(&services_.engine.stats().swap_times);
  bool unknown = false;
  memory::Exception e;
  try {
    do {
      e = importer.swaps().cas(view, reinterpret_cast<std::byte*>(swap.addr), swap.expected,
                               swap.desired, found, &pending, &unknown,
                               Deadline::in(services_.call_timeout()));
    } while (e == memory::Exception::kTransient && !unknown && importer.waits_on(*view.import));
  } catch (const std::bad_alloc&) {
    return Status::kHw;  // it may have been made
  }
  services_.engine.start_ticks();  // an intent that it has brought goes back if it is not used
  // Nothing but the connection has failed, and another try would not find out.
  if (unknown && e == memory::Exception::kTransient) return Status::kHw;
  if (e != memory::Exception::kNone) *raised = {e, unknown, swap.addr, view.segment};
  return Status::kOk;
}

Status Barriers::swap_at_home(int32_t seg, size_t offset, const SwapCall& swap, uint64_t* found,
                              Raised* raised) {
  if (Status s = barrier_before_swap(); !ok(s)) return s;
  memory::Stats& stats = services_.engine.stats();
  memory::count(stats.cas_calls);
  CMI_PROBE2(swap, seg, swap.addr);
  const Timed timed(&stats.swap_times);
  Result<uint64_t> was = Status::kHw;  // where there is no memory: it may have been made
  try {
    was = services_.engine.home().barriers().cas(seg, offset, swap.expected, swap.desired,
                                                 Deadline::in(services_.longest_wait()));
  } catch (const std::bad_alloc&) {
  }
  if (was.status() == Status::kReconfig || was.status() == Status::kBound) {
    const bool past = was.status() == Status::kBound;
    *raised = {past ? memory::Exception::kSegBrk : memory::Exception::kConsist, false, swap.addr,
               seg};
    return Status::kOk;
  }
  if (!was) return was.status();
  if (*was != swap.expected) memory::count(stats.cas_lost);
  *found = *was;
  return Status::kOk;
}

}  // namespace cmi::context

// Barriers, flush epochs, cflush and atm_cas: both sides of the protocol for the calling thread.
#include <algorithm>
#include <new>

#include "core/base/cause.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/context/context.hpp"

namespace cmi::context {

Nanos Context::longest_wait() const {
  return std::max(environment_.dead_after, call_timeout()) + kAfterVerdict;
}

Status Context::barrier(memory::LossMark& mark) {
  // Stores to imported segments and stores to this node's own segments are published both; each is
  // a couple of loads when there is nothing to do, without a look at the clock.
  const Status there = engine_->importer().publishing().barrier(mark, longest_wait());
  const Status here = engine_->home().barriers().barrier(longest_wait());
  return ok(there) ? here : there;
}

Status barrier_here() {
  Context* c = Context::current();
  if (c == nullptr || t_thread == nullptr || t_thread->context != c) return Status::kInit;
  return c->barrier();
}

Result<cmi_fb> Context::open_epoch() {
  if (t_thread->epoch != nullptr) return because(Status::kBound, "the thread has an epoch open");
  void* p = allocator_.get(sizeof(Epoch));
  if (p == nullptr) return Status::kNoMem;
  auto* e = new (p) Epoch{t_thread, engine_->importer().publishing().losses()};
  t_thread->epoch = e;
  return reinterpret_cast<cmi_fb>(e);
}

Status Context::flush_epoch(cmi_fb epoch) {
  if (epoch == nullptr || reinterpret_cast<Epoch*>(epoch) != t_thread->epoch) {
    return because(Status::kInval, "not an epoch of this thread");
  }
  if (mutated("mutate_epoch_not_flushed")) return Status::kOk;
  return barrier(t_thread->epoch->loss);
}

Status Context::close_epoch(cmi_fb epoch) {
  const Status s = flush_epoch(epoch);
  if (s == Status::kInval) return s;
  allocator_.put(t_thread->epoch);
  t_thread->epoch = nullptr;
  return s;
}

Status Context::cflush(void* const* addrs, int32_t n, Raised* raised) {
  if (n < 0 || (addrs == nullptr && n > 0)) return Status::kInval;
  std::vector<std::pair<std::shared_ptr<const memory::View>, const std::byte*>> imported;
  bool home = false;
  memory::Barriers::Lines lines;  // at home; those that may be accessed
  for (int32_t i = 0; i < n; ++i) {
    auto view = engine_->views().find(addrs[i]);
    size_t offset;
    bool read_only;
    if (view != nullptr && view->import != nullptr) {
      imported.emplace_back(std::move(view), static_cast<const std::byte*>(addrs[i]));
    } else if (const int32_t seg =
                   engine_->home().views().segment_at(addrs[i], &offset, &read_only);
               seg != 0) {
      home = true;
      const bool past = engine_->home().breaks().past_break(seg, offset);
      if (!past && !engine_->home().recovery().in_flux(seg, offset)) {
        lines[seg].add({static_cast<uint32_t>(offset / kPageSize), 1});
      } else if (raised->exception == memory::Exception::kNone) {
        *raised = {past ? memory::Exception::kSegBrk : memory::Exception::kConsist, true, addrs[i],
                   seg};
      }
    } else {
      return because(Status::kInval, "an address is in no view");
    }
  }
  if (mutated("mutate_cflush_sends_nothing")) return Status::kOk;
  Status status = home ? engine_->home().barriers().barrier(longest_wait(), lines) : Status::kOk;
  if (!imported.empty()) {
    memory::Exception e = memory::Exception::kNone;
    size_t at = 0;
    const Status s = engine_->importer().publishing().flush(
        imported, t_thread->loss, memory::Patience::of(longest_wait()), &e, &at);
    if (e != memory::Exception::kNone && raised->exception == memory::Exception::kNone) {
      *raised = {e, true, imported[at].second, imported[at].first->segment};
    }
    if (!ok(s)) status = s;
  }
  return status;
}

// kHw of a swap means that it may have been made, and so it says kStore of stores that were lost
// before it, whatever has lost them.
static Status lost_before_swap(Status s) { return s == Status::kHw ? Status::kStore : s; }

Status Context::barrier_before_swap() {
  if (mutated("mutate_swap_without_barrier")) return Status::kOk;
  return lost_before_swap(barrier());
}

// What was stored to segments of this node is published first: the swap may travel with the rest.
Status Context::barrier_before_swap(const memory::View& view, uint64_t* addr, uint64_t expected,
                                    uint64_t desired, memory::PendingSwap* pending) {
  if (mutated("mutate_swap_without_barrier")) return Status::kOk;
  memory::Importer& importer = engine_->importer();
  if (const Status here = engine_->home().barriers().barrier(longest_wait()); !ok(here)) {
    const Status there = importer.publishing().barrier(t_thread->loss, longest_wait());
    return lost_before_swap(ok(there) ? here : there);
  }
  return lost_before_swap(
      importer.swaps().barrier_before_swap(view, reinterpret_cast<std::byte*>(addr), expected,
                                           desired, pending, t_thread->loss, longest_wait()));
}

Status Context::cas(uint64_t* addr, uint64_t expected, uint64_t desired, const void* call,
                    bool again, uint64_t* found, Raised* raised) {
  if (reinterpret_cast<uintptr_t>(addr) % 8 != 0 || found == nullptr) {
    return because(Status::kInval, "the address is not a multiple of 8");
  }
  memory::Stats& stats = engine_->stats();
  auto view = engine_->views().find(addr);
  if (view != nullptr && view->import != nullptr) {
    if (!memory::t_access_enabled) {
      *raised = {memory::Exception::kEnable, false, addr, view->segment};
      return Status::kOk;
    }
    memory::PendingSwap& pending = t_thread->pending_swaps.of(call, again);
    // Everything before it is globally visible before the swap is. Of one that has been sent
    // already that was so, and whatever has been lost since, it may have been made.
    if (!pending.is_sent(view->import)) {
      const Status s = barrier_before_swap(*view, addr, expected, desired, &pending);
      if (!ok(s)) return s;
    }
    memory::count(stats.cas_calls);
    bool unknown = false;
    memory::Exception e;
    try {
      do {
        e = engine_->importer().swaps().cas(*view, reinterpret_cast<std::byte*>(addr), expected,
                                            desired, found, &pending, &unknown,
                                            Deadline::in(call_timeout()));
      } while (e == memory::Exception::kTransient && !unknown &&
               engine_->importer().waits_on(*view->import));
    } catch (const std::bad_alloc&) {
      return Status::kHw;  // it may have been made
    }
    // Nothing but the connection has failed, and to try again would not tell.
    if (unknown && e == memory::Exception::kTransient) return Status::kHw;
    if (e != memory::Exception::kNone) *raised = {e, unknown, addr, view->segment};
    return Status::kOk;
  }
  size_t offset;
  bool read_only;
  const int32_t seg = engine_->home().views().segment_at(addr, &offset, &read_only);
  if (seg == 0) return because(Status::kInval, "the address is in no view");
  if (read_only) {
    *raised = {memory::Exception::kAccess, false, addr, seg};
    return Status::kOk;
  }
  if (Status s = barrier_before_swap(); !ok(s)) return s;
  memory::count(stats.cas_calls);
  Result<uint64_t> was = Status::kHw;  // where there is no memory: it may have been made
  try {
    was = engine_->home().barriers().cas(seg, offset, expected, desired,
                                         Deadline::in(longest_wait()));
  } catch (const std::bad_alloc&) {
  }
  if (was.status() == Status::kReconfig || was.status() == Status::kBound) {
    const bool past = was.status() == Status::kBound;
    *raised = {past ? memory::Exception::kSegBrk : memory::Exception::kConsist, false, addr, seg};
    return Status::kOk;
  }
  if (!was) return was.status();
  if (*was != expected) memory::count(stats.cas_lost);
  *found = *was;
  return Status::kOk;
}

}  // namespace cmi::context

#include "core/memory/home/home_barriers.hpp"

#include <algorithm>
#include <atomic>

#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/base/word_sleep.hpp"
#include "core/memory/home/breaks.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/store_publishing.hpp"
#include "core/memory/node_bus/await.hpp"

namespace cmi::memory {

Status Barriers::barrier(Nanos within, const Lines& named) {
  // The stores before the barrier come first, also for an importer that appears just now.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!home_.shared_segments.any()) return Status::kOk;
  const Timed timed(&home_.parts.stats.barrier_times);
  const Deadline deadline = Deadline::in(within);
  SignalsBlocked quiet;
  std::vector<RoundPtr> waits;
  Owners owners;
  Finished done;
  for (SegmentPtr s = home_.segments.first(); s != nullptr; s = home_.segments.after(s->id)) {
    scan(s, named, &owners, &done);
    run(done);
  }
  if (!mutated("mutate_acks_not_awaited")) {
    Guard g(home_.mu);
    waits = home_.rounds.of_stores();
  }
  bool good = ask_owners(owners, named, deadline);
  for (auto& p : waits) good = await(p->done, home_.parts.server, deadline) && good;
  return good ? Status::kOk : Status::kStore;
}

void Barriers::scan(const SegmentPtr& segment, const Lines& named, Owners* owners, Finished* done) {
  if (segment->owned) {
    Guard g(home_.mu);
    if (!segment->shared()) return;
  }
  const SegmentLock s(home_, segment, SegmentLock::kViews);
  if (!s) return;
  if (s->owned) {
    const auto lines = named.find(s->id);
    const bool only_scanned = lines == named.end() || mutated("mutate_named_lines_scanned");
    (void)scan_and_publish(home_, *s, {only_scanned ? nullptr : &lines->second, false}, done);
  } else if (!s->views.empty() && !mutated("mutate_neighbour_not_asked")) {
    owners->emplace_back(s->owner, s->id);
  }
}

// Other processes of the node publish what was stored here to their segments.
bool Barriers::ask_owners(const Owners& owners, const Lines& named, Deadline deadline) {
  bool good = true;
  for (auto& [owner, id] : owners) {
    good = notify_stored(home_, id, deadline) && good;
    good = home_.channel.ask(owner, BusBarrier{kBusBarrier, id}, -1, deadline) && good;
    const auto lines = named.find(id);
    if (lines == named.end()) continue;
    for (const PageRange& r : lines->second.all()) {
      const BusPublish pages{kBusPublish, id, 0, r.first, r.count};
      good = home_.channel.ask(owner, pages, -1, deadline) && good;
    }
  }
  return good;
}

struct Barriers::Swap {
  int32_t id;
  size_t offset;
  uint64_t expected, desired;  // `expected` becomes what was found
  bool swapped, owned;
  node::ContextSlot owner;
  RoundPtr published;  // that importers have yet to acknowledge
};

Result<uint64_t> Barriers::cas(int32_t id, size_t offset, uint64_t expected, uint64_t desired,
                               Deadline deadline) {
  SignalsBlocked quiet;
  Swap swap{id, offset, expected, desired, false, true, {}, nullptr};
  if (Status st = swap_at_home(&swap, deadline); !ok(st)) return st;
  bool good = true;
  if (swap.swapped && !swap.owned) {
    const BusPublish page{kBusPublish, id, 0, offset / kPageSize, 1};
    good = home_.channel.ask(swap.owner, page, -1, deadline);
  }
  if (swap.published != nullptr) {
    good = await(swap.published->done, home_.parts.server, deadline);
  }
  // The swap has happened; that somebody has not dropped its copy yet is the detector's business.
  if (!good) trace(kFacMem, kWarn, "atm_cas: an importer did not answer in time");
  return swap.expected;
}

Status Barriers::swap_at_home(Swap* swap, const Deadline& deadline) {
  const size_t offset = swap->offset;
  for (Backoff backoff;; backoff.pause()) {
    const SegmentLock s(home_, swap->id, SegmentLock::kViews);
    if (!s || !s->service || offset % 8 != 0 || offset > s->size - 8) {
      return Status::kInval;
    }
    if (s->flux.pages.contains(static_cast<uint32_t>(offset / kPageSize))) {
      return Status::kReconfig;
    }
    // Through the service view: the library never touches a client's view.
    bool past = false;
    const auto try_swap = [&](uint64_t brk) {
      past = offset >= std::min(break_of(*s), brk);
      if (past) return;
      auto* word = reinterpret_cast<uint64_t*>(s->service.data() + offset);
      swap->swapped = __atomic_compare_exchange_n(word, &swap->expected, swap->desired, false,
                                                  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      // The sleepers are processes of this machine that have the page mapped.
      if (swap->swapped && home_.parts.local) wake_at_word(word, true);
    };
    if (s->owned || !access::extensible(s->flags)) {
      try_swap(s->size);
    } else if (!ok(home_.parts.node.breaks().while_steady(swap->id, try_swap))) {
      // Another process has the node's lock, perhaps a stopped one: not waited for under ours.
      if (!deadline.passed()) continue;
      return Status::kNoMem;
    }
    if (past) return Status::kBound;
    swap->owned = s->owned;
    swap->owner = s->owner;
    publish_swapped(*s, swap);
    return Status::kOk;
  }
}

void Barriers::publish_swapped(Segment& s, Swap* swap) {
  if (mutated("mutate_home_cas_unpublished")) {
    swap->swapped = false;
  } else if (swap->swapped && s.owned) {
    // The tracking does not see stores through the service view (rule 16).
    const PageRange page{static_cast<uint32_t>(swap->offset / kPageSize), 1};
    Guard g(home_.mu);
    if (s.shared()) {
      swap->published = home_.rounds.publish_stores(s, {page}, word_of(s, swap->offset));
    }
  }
}

}  // namespace cmi::memory

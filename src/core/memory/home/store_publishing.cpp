#include "core/memory/home/store_publishing.hpp"

#include <algorithm>
#include <atomic>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home_mutations.hpp"

namespace cmi::memory {

RoundPtr scan_and_publish(HomeCore& home, Segment& s, const PageSet* named) {
  // Full fence: stores before the barrier are in the page tables' sight before they are read.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // What nobody holds is left alone: its stores stay noted by the kernel until somebody does.
  auto ranges = home.tracker.scan(s, s.directory.shared(s.pages()));
  if (named != nullptr) {
    PageSet pages = *named;
    for (const PageRange& r : ranges) pages.add(r);
    ranges = pages.all();
  }
  if (ranges.empty()) return nullptr;
  fault_point("home_scanned_before_publish");
  if (mutated("mutate_scan_unlocked")) mutation::let_others_in(home.mu);
  return home.rounds.publish_stores(s, ranges);
}

// Of processes that have ended. A scan finds them as well, but there is none while nobody holds a
// page, and each keeps what is left of its process.
void drop_dead_views(HomeCore& home, Segment& s) {
  const size_t before = s.foreign.size();
  std::erase_if(s.foreign,
                [&](const ForeignView& v) { return !home.parts.node.alive(v.slot, v.process); });
  if (s.foreign.size() == before || !s.shared()) return;
  // With them is gone what the kernel knew of their stores (rule 17).
  home.rounds.publish_stores(s, s.directory.shared(s.pages()));
}

bool send_stored(HomeCore& home, Segment& s) {
  bool all = true;
  for (auto& v : s.views) {
    if (v.view->stores == nullptr) continue;
    all = all && home.channel.send_stored(s.owner, s.id, *v.view->stores);
  }
  return all;
}

bool notify_stored(HomeCore& home, int32_t id, Deadline deadline) {
  for (Backoff backoff;; backoff.pause()) {
    {
      Guard g(home.mu);
      Segment* s = home.segments.find(id);
      if (s == nullptr || s->owned) return true;
      if (home.flux.report_seen(*s) && send_stored(home, *s)) return true;
    }
    if (deadline.passed()) return false;
  }
}

}  // namespace cmi::memory

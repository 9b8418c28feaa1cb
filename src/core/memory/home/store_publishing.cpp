#include "core/memory/home/store_publishing.hpp"

#include <algorithm>
#include <atomic>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home_mutations.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

namespace {
// The ranges in parts of so many pages at most.
std::vector<std::vector<PageRange>> parts_of(const std::vector<PageRange>& ranges, uint32_t most) {
  std::vector<std::vector<PageRange>> parts;
  uint32_t room = 0;
  for (PageRange left : ranges) {
    while (left.count > 0) {
      if (room == 0) {
        parts.emplace_back();
        room = most;
      }
      const uint32_t n = std::min(room, left.count);
      parts.back().push_back({left.first, n});
      left = {left.first + n, left.count - n};
      room -= n;
    }
  }
  return parts;
}

void append(std::vector<PageRange>* to, const std::vector<PageRange>& more) {
  to->insert(to->end(), more.begin(), more.end());
}

// What was stored, ascending. *whole: of a scan in parts, the round that other barriers wait for.
std::vector<PageRange> scan_in_parts(HomeCore& home, Segment& s,
                                     const std::vector<PageRange>& shared, bool serves,
                                     RoundPtr* whole) {
  s.views_mu.assume_held();
  std::vector<PageRange> written;
  const auto serve = [&] {
    fault_point("home_scan_between_parts");
    if (serves) (void)home.parts.server.poll();
  };
  for (const auto& part : parts_of(shared, Scan::kPart)) {
    if (*whole == nullptr) {
      Guard g(home.mu);
      *whole = home.rounds.begin_stores();
    } else {
      s.views_mu.give_way(serve);
    }
    if (s.erased.load(std::memory_order_relaxed)) break;
    append(&written, home.tracker.scan(s, part, shared));
  }
  std::sort(written.begin(), written.end(),
            [](const PageRange& a, const PageRange& b) { return a.first < b.first; });
  return written;
}

uint64_t pages_in(const std::vector<PageRange>& ranges) {
  uint64_t pages = 0;
  for (const PageRange& r : ranges) pages += r.count;
  return pages;
}
}  // namespace

RoundPtr scan_and_publish(HomeCore& home, Segment& s, const Scan& scan, Finished* done) {
  s.views_mu.assume_held();
  // Full fence: stores before the barrier are in the page tables' sight before they are read.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::vector<PageRange> shared;
  {
    Guard g(home.mu);
    if (!s.shared()) return nullptr;
    // What nobody holds is left alone: its stores stay noted by the kernel until somebody does.
    shared = s.directory.shared(s.pages());
  }
  RoundPtr whole;
  auto ranges = pages_in(shared) <= Scan::kPart
                    ? home.tracker.scan(s, shared, shared)
                    : scan_in_parts(home, s, shared, scan.serves, &whole);
  if (scan.named != nullptr) {
    PageSet pages = *scan.named;
    for (const PageRange& r : ranges) pages.add(r);
    ranges = pages.all();
  }
  if (ranges.empty() && whole == nullptr) return nullptr;
  fault_point("home_scanned_before_publish");
  if (mutated("mutate_scan_unlocked")) mutation::let_others_in(s.views_mu);
  Guard g(home.mu);
  RoundPtr published = ranges.empty() ? nullptr : home.rounds.publish_stores(s, ranges);
  if (whole == nullptr) return published;
  home.rounds.end_stores(whole, published, done);
  return published != nullptr ? whole : nullptr;
}

void drop_dead_views(HomeCore& home, Segment& s) {
  const size_t before = s.foreign.size();
  std::erase_if(s.foreign,
                [&](const ForeignView& v) { return !home.parts.node.alive(v.slot, v.process); });
  if (s.foreign.size() == before) return;
  Guard g(home.mu);
  // With them is gone what the kernel knew of their stores (rule 17).
  if (s.shared()) home.rounds.publish_stores(s, s.directory.shared(s.pages()));
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
      const SegmentLock s(home, id, SegmentLock::kViews);
      if (!s || s->owned) return true;
      if (home.flux.report_seen(*s) && send_stored(home, *s)) return true;
    }
    if (deadline.passed()) return false;
  }
}

}  // namespace cmi::memory

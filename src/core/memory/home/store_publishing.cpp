#include "core/memory/home/store_publishing.hpp"

#include <algorithm>
#include <atomic>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home_mutations.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

namespace {
void append(std::vector<PageRange>* to, const std::vector<PageRange>& more) {
  to->insert(to->end(), more.begin(), more.end());
}

uint32_t pages_in(const std::vector<PageRange>& ranges) {
  uint32_t pages = 0;
  for (const PageRange& r : ranges) pages += r.count;
  return pages;
}

// What a scan goes through, part by part. What nobody holds is left alone: its stores stay noted by
// the kernel until somebody does.
class Parts {
 public:
  explicit Parts(Segment& s) : s_(s) {
    const auto views = static_cast<uint32_t>(s.views.size() + s.foreign.size());
    most_ = Scan::kPart / std::max(views, 1U);
  }
  std::vector<PageRange> next(HomeCore& home) CMI_REQUIRES(home.mu) {
    (void)home;
    return s_.directory.shared(s_.pages(), from_, most_, &from_);
  }
  bool more() const { return from_ != kNoPage; }

 private:
  Segment& s_;
  uint32_t from_ = 0, most_ = 0;
};

// The parts behind the first one.
void scan_further(HomeCore& home, Segment& s, Parts& parts, bool serves,
                  StoreTracker::Found* found) {
  s.views_mu.assume_held();
  const auto serve = [&] {
    fault_point("home_scan_between_parts");
    if (serves) (void)home.parts.server.poll();
  };
  while (parts.more()) {
    s.views_mu.give_way(serve);
    if (s.erased.load(std::memory_order_relaxed)) return;
    std::vector<PageRange> part;
    {
      Guard g(home.mu);
      part = parts.next(home);
    }
    const StoreTracker::Found more = home.tracker.scan(s, part);
    append(&found->pages, more.pages);
    found->writer_ended = found->writer_ended || more.writer_ended;
  }
}

// What was found is known here alone, until it is published.
void found_unpublished(Segment& s) {
  fault_point("home_scanned_before_publish");
  s.views_mu.assume_held();
  if (mutated("mutate_scan_unlocked")) mutation::let_others_in(s.views_mu);
}

// Null: nothing was stored, or nobody has to hear of it.
RoundPtr publish_found(HomeCore& home, Segment& s, StoreTracker::Found found)
    CMI_REQUIRES(home.mu) {
  if (found.writer_ended) append(&found.pages, s.directory.shared(s.pages()));
  if (found.pages.empty()) return nullptr;
  return home.rounds.publish_stores(s, each_once(std::move(found.pages)));
}
}  // namespace

RoundPtr scan_and_publish(HomeCore& home, Segment& s, const Scan& scan, Finished* done) {
  s.views_mu.assume_held();
  // Full fence: stores before the barrier are in the page tables' sight before they are read.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Parts parts(s);
  std::vector<PageRange> first;
  RoundPtr whole;  // of a scan in parts: the round that other barriers wait for
  {
    Guard g(home.mu);
    if (!s.shared()) return nullptr;
    first = parts.next(home);
    if (parts.more()) whole = home.rounds.begin_stores();
  }
  StoreTracker::Found found = home.tracker.scan(s, first);
  scan_further(home, s, parts, scan.serves, &found);
  if (scan.named != nullptr) append(&found.pages, scan.named->all());
  if (found.pages.empty() && !found.writer_ended && whole == nullptr) return nullptr;
  found_unpublished(s);
  Guard g(home.mu);
  RoundPtr published = publish_found(home, s, std::move(found));
  if (whole == nullptr) return published;
  home.rounds.end_stores(whole, published, done);
  return published != nullptr ? whole : nullptr;
}

ScannedPart scan_part(HomeCore& home, Segment& s, uint32_t from, uint32_t most) {
  s.views_mu.assume_held();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ScannedPart part;
  std::vector<PageRange> ranges;
  {
    Guard g(home.mu);
    if (!s.shared()) return part;
    ranges = s.directory.shared(s.pages(), from, most, &part.next);
  }
  part.pages = pages_in(ranges);
  StoreTracker::Found found = home.tracker.scan(s, ranges);
  part.found = !found.pages.empty() || found.writer_ended;
  if (!part.found) return part;
  found_unpublished(s);
  Guard g(home.mu);
  (void)publish_found(home, s, std::move(found));
  return part;
}

bool arm_foreign(HomeCore& home, Segment& s, const ForeignView& v) {
  s.views_mu.assume_held();
  if (!home.tracker.by_region(s)) return true;  // its process has
  uint32_t next = 0;
  while (next != kNoPage) {
    std::vector<PageRange> held;
    {
      Guard g(home.mu);
      held = s.directory.shared(s.pages(), next, Scan::kArmed, &next);
    }
    StoreTracker::protect(v, held);
    if (next != kNoPage) s.views_mu.give_way([&] { (void)home.parts.server.poll(); });
    if (s.erased.load(std::memory_order_relaxed)) return false;
  }
  return true;
}

void drop_dead_views(HomeCore& home, Segment& s) {
  const size_t before = s.foreign.size();
  std::erase_if(s.foreign, [&](const ForeignView& v) {
    return !home.parts.node.members().alive(v.slot, v.process);
  });
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

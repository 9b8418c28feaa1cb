// Before an importer fetches the first page of a region it is noted in the directory (rule 10).
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/acquire_regions.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

namespace {
// What was stored there while nobody held it needs no invalidation round: the importer fetches
// after this. Another one that acquires it meanwhile waits for the segment's lock: once it has
// fetched, nothing is to be forgotten any more.
void note(HomeCore& home, Segment& s, Sharer& h, const AcquireRequest& m) {
  std::vector<PageRange> fresh;
  {
    Guard g(home.mu);
    const uint64_t next = home.rounds.table().next_number();
    fresh = s.directory.acquire(h.regions, m.first, m.count, m.epoch, s.pages(), next);
  }
  if (fresh.empty()) return;
  s.views_mu.lock();
  home.tracker.forget(s, fresh);
  s.views_mu.unlock();
}
}  // namespace

WireStatus acquire_regions(HomeCore& home, Segment& s, Sharer& h, const AcquireRequest& m) {
  const uint32_t first = m.first, n = m.count;
  const uint32_t all = regions_of(s.pages());
  if (first >= all || n == 0 || n > all - first || m.epoch == 0) return WireStatus::kRange;
  const PageRange granted = h.granted.pages;
  if (first < region_of(granted.first) ||
      first + n - 1 > region_of(granted.first + granted.count - 1)) {
    return WireStatus::kRights;
  }
  note(home, s, h, m);
  return WireStatus::kOk;
}

void on_acquire(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                const AcquireRequest& m) {
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    status = check(home, s.get(), client.id, m.instance, 0, &h);
    if (status == WireStatus::kOk) status = acquire_regions(home, *s, *h, m);
  }
  reply(home.parts.server, client.id, number, status);
}

}  // namespace cmi::memory

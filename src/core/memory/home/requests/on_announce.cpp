// Pages that an importer has written one-sided, which the other importers are to drop.
#include <algorithm>
#include <atomic>

#include "core/base/careful_copy.hpp"
#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/applied.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {
// Of pages that were written one-sided. The provider does not know when it has failed.
WireStatus arrived(const std::byte* pages, uint32_t n) {
  if (g_incomplete_writes.load(std::memory_order_seq_cst) == 0) return WireStatus::kOk;
  for (uint32_t i = 0; i < n; ++i) {
    if (!page_intact(pages + size_t{i} * kPageSize)) return WireStatus::kBroken;
  }
  return WireStatus::kOk;
}
}  // namespace

// What went by itself was let through by its key; that the token has gone since must not keep
// others from hearing of it. All this can do is to make them drop pages.
void on_announce(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                 const AnnounceRequest& m) {
  Applied applied;
  applied.asked = {number, 0};
  WireStatus& status = applied.status;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* const h = s ? s->sharers.find(client.id, m.instance) : nullptr;
    status = h != nullptr ? WireStatus::kOk : why_gone(home, s.get());
    const uint64_t in_use = h != nullptr ? low_for(home, *s, *h) / kPageSize : 0;
    bool broken = false;
    const PageRangeList ranges = m.ranges();
    for (size_t i = 0; i < m.count && status == WireStatus::kOk; ++i) {
      fault_point("publish_before_page");
      PageRange r = i < ranges.size() ? ranges[i] : PageRange{};
      const uint64_t all = s->size / kPageSize;
      if (r.first >= all || r.count == 0 || r.count > all - r.first) {
        status = WireStatus::kRange;
        break;
      }
      if (r.first >= in_use) continue;
      r.count = static_cast<uint32_t>(std::min<uint64_t>(r.count, in_use - r.first));
      const std::byte* const at = s->service.data() + size_t{r.first} * kPageSize;
      broken = arrived(at, r.count) == WireStatus::kBroken || broken;
      applied.add(r);
      s->writers.count_words(r.first, client.id, StoredWords{}.set());
    }
    if (status == WireStatus::kOk && !m.exact()) status = WireStatus::kMalformed;
    if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
    if (h != nullptr) {
      Guard g(home.mu);
      if (publish_applied(home, *s, *h, client, number, applied)) return;
    }
  }
  reply(home.parts.server, client.id, number, status);
}

}  // namespace cmi::memory

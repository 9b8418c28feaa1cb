#include "core/base/mutation.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/page/diff.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

// Writes that may have arrived before their connection broke, sent again as old and new bytes (rule
// 20). Their connection has been fenced: this comes over a later one.
void on_repair(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
               const RepairRequest& m) {
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock found(home, Uid{m.uid}, SegmentLock::kMemory);
    Segment* s = found.get();
    Sharer* h = nullptr;
    status = check(home, s, client.id, m.instance, fabric::kWrite, &h);
    const bool apply = status == WireStatus::kOk;
    // Without the right nothing is stored any more, but what had arrived is published all the same.
    h = s != nullptr ? s->sharers.find(client.id, m.instance) : nullptr;
    if (h == nullptr) s = nullptr;
    const uint64_t low = s != nullptr ? low_for(home, *s, *h) : 0;
    std::vector<PageRange> ranges;
    bool broken = false;
    for (uint32_t i = 0; i < m.pages && s != nullptr; ++i) {
      if (i >= m.whole_pages() || m.page(i).page >= s->size / kPageSize) {
        status = WireStatus::kMalformed;
        break;
      }
      const auto [page, old, next] = m.page(i);
      if (page >= low / kPageSize) continue;
      if (apply && h->covers(page, 1)) {
        std::byte* const at = s->service.data() + size_t{page} * kPageSize;
        const std::byte* const was = mutated("mutate_repair_blind") ? at : old.data();
        const auto store = [&, to = next.data()] { apply_where_unchanged(was, to, at); };
        broken = !unless_broken(at, kPageSize, store) || broken;
      }
      ranges.push_back({page, 1});
    }
    if (status == WireStatus::kOk && !m.exact()) status = WireStatus::kMalformed;
    if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
    Guard g(home.mu);
    if (auto p =
            ranges.empty() ? nullptr : home.rounds.publish(*s, client.id, m.instance, ranges)) {
      p->finished = [&home, id = client.id, number, status] {
        reply(home.parts.server, id, number, status);
      };
      return;
    }
  }
  reply(home.parts.server, client.id, number, status);
}

}  // namespace cmi::memory

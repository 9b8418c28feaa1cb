// Diffs of pages that an importer has stored to: they are applied, and the other importers drop
// the pages before the publisher has its answer.
#include "core/base/mutation.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/home_mutations.hpp"
#include "core/memory/home/requests/applied.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

void on_publish(HomeCore& home, const ClientInfo& client, uint64_t number,
                const PublishRequest& m) {
  if (mutated("mutate_publish_before_data")) {
    return HomeMutations::publish_before_data(home, client, number, m);
  }
  Applied applied;
  applied.asked = {number, 0};
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    applied.status = check(home, s.get(), client.id, m.instance, fabric::kWrite, &h);
    if (applied.status == WireStatus::kOk) {
      apply_pages(home, *s, *h, m.pages, PublishedPages(m), &applied.asked.secret, &applied);
      Guard g(home.mu);
      if (publish_applied(home, *s, *h, client, number, applied)) return;
    }
  }
  reply(home.parts.server, client.id, number, applied.status);
}

}  // namespace cmi::memory

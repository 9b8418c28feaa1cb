// Before an importer fetches the first page of a region it is noted in the directory (rule 10).
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"

namespace cmi::memory {

void on_acquire(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                const AcquireRequest& m) {
  const uint32_t first = m.first, n = m.count, epoch = m.epoch;
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(home.mu);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(home, client.id, m.uid, m.instance, 0, &s, &h);
    if (status == WireStatus::kOk) {
      const auto pages = s->pages();
      const uint32_t all = regions_of(pages);
      if (first >= all || n == 0 || n > all - first || epoch == 0) {
        status = WireStatus::kRange;
      } else if (first < region_of(h->pages.first) ||
                 first + n - 1 > region_of(h->pages.first + h->pages.count - 1)) {
        status = WireStatus::kRights;
      } else {
        // What was stored there while nobody held it needs no invalidation round: the importer
        // fetches after this.
        const uint64_t next = home.rounds.table().next_number();
        home.tracker.forget(*s, s->directory.hold(h->regions, first, n, epoch, pages, next));
      }
    }
  }
  reply(home.parts.server, client.id, number, status);
}

}  // namespace cmi::memory

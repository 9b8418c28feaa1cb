// Whether a page that an importer has listed as in flux still is.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

void on_ask_flux(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                 const AskFluxRequest& m) {
  const uint32_t page = m.page;
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    status = check(home, s.get(), client.id, m.instance, 0, &h);
    if (status == WireStatus::kOk && page >= s->brk.bytes / kPageSize) {
      status = WireStatus::kRange;
    } else if (status == WireStatus::kOk && !h->covers(page, 1)) {
      status = WireStatus::kRights;
    } else if (status == WireStatus::kOk && s->flux.pages.contains(page)) {
      status = WireStatus::kInFlux;
    } else if (status == WireStatus::kOk &&
               !page_intact(s->service.data() + size_t{page} * kPageSize)) {
      status = WireStatus::kBroken;
    }
  }
  reply(home.parts.server, client.id, number, status);
}

}  // namespace cmi::memory

#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/requests/may_intend.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {
// Of one request: as many as a reader in order has under way. It bounds the time under the locks.
constexpr uint32_t kMostEntered = 2 * kRegionPages;
}  // namespace

WireStatus may_enter(const Segment& s, const Sharer& h, PageRange pages) {
  if (pages.count > kMostEntered) return WireStatus::kMalformed;
  const uint64_t end = uint64_t{pages.first} + pages.count;
  if (end > s.brk.bytes / kPageSize) return WireStatus::kRange;
  if (end > low_of(s, h) / kPageSize) return WireStatus::kBreakUnacknowledged;
  return h.covers(pages.first, pages.count) ? WireStatus::kOk : WireStatus::kRights;
}

// Pages that the importer has released are noted again before it reads them (rule 28). A single one
// comes with the answer.
void on_enter_pages(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                    const EnterPagesRequest& m) {
  std::byte answer[1 + kPageSize];
  size_t content = 0;
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    status = check(home, s.get(), client.id, m.instance, fabric::kRead, &h);
    if (status == WireStatus::kOk) {
      Guard g(home.mu);
      status = may_enter(*s, *h, {m.first, m.count});
      // First: what is published after the page was read goes to this sharer.
      if (status == WireStatus::kOk) {
        h->regions.enter({m.first, m.count}, home.rounds.table().next_number());
      }
    }
    if (status == WireStatus::kOk && m.count == 1) {
      const std::byte* const at = s->service.data() + size_t{m.first} * kPageSize;
      const auto copy = [&] { std::memcpy(answer + 1, at, kPageSize); };
      content = unless_broken(at, kPageSize, copy) ? kPageSize : 0;
      if (content == 0) status = WireStatus::kBroken;
    }
  }
  fault_point("enter_before_reply");
  answer[0] = static_cast<std::byte>(status);
  home.parts.server.reply(client.id, number, {answer, 1 + content});
}

}  // namespace cmi::memory

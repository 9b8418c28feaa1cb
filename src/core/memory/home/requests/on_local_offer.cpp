// An importer of this machine asks where it can have the segment's pages.
#include "core/base/descriptors_left.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/local_grants.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/wire/replies.hpp"

namespace cmi::memory {

namespace {
// Each import that maps pages has two of the home's descriptors. So many are kept for importers
// that come, and for the channel by which pages are asked for: without one it is never heard.
constexpr int kKept = 32;

LocalRefusal refusal_of(const HomeCore& home, const Segment& s, const Sharer& h) {
  if (!home.parts.local) return LocalRefusal::kOff;
  if (access::large_pages(s.flags)) return LocalRefusal::kLarge;
  if (h.granted.pages.count != s.pages()) return LocalRefusal::kPart;
  return descriptors_left(kKept) ? LocalRefusal::kNone : LocalRefusal::kShort;
}
}  // namespace

// Each offer ends the one before: the importer has dropped what it had by that.
void on_local_offer(HomeCore& home, const ClientInfo& client, uint64_t number,
                    const LocalOfferRequest& m) {
  const node::Bus::Address address = home.parts.node.bus().address();
  LocalOfferReply answer;
  WireStatus status = WireStatus::kOk;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    status = check(home, s.get(), client.id, m.instance, fabric::kRead, &h);
    if (status == WireStatus::kOk) {
      // Whatever comes of it: one that gives up mapping asks as well, before it caches a page.
      h->local.reset();
      const LocalRefusal refusal = address.folder.size() <= LocalOfferReply::kMaxPath
                                       ? refusal_of(home, *s, *h)
                                       : LocalRefusal::kOff;
      answer.refusal = static_cast<uint8_t>(refusal);
      if (refusal == LocalRefusal::kNone) {
        const LocalImporter::Ticket ticket{random_u64(), random_u64()};
        h->local = std::make_unique<LocalImporter>(ticket);
        answer.ticket_hi = ticket.hi;
        answer.ticket_lo = ticket.lo;
        answer.slot = address.slot;
        answer.body = std::as_bytes(std::span(address.folder));
      }
      Guard g(home.mu);
      tell_if_alone(home, *s);
    }
  }
  std::byte buf[1 + kWireSize<LocalOfferReply> + LocalOfferReply::kMaxPath];
  Writer out(buf);
  out.put(static_cast<uint8_t>(status));
  if (status == WireStatus::kOk) encode(answer, out);
  home.parts.server.reply(client.id, number, out.done());
}

}  // namespace cmi::memory

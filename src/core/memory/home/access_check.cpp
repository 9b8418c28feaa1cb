#include "core/memory/home/access_check.hpp"

namespace cmi::memory {

void reply(fabric::Server& server, const ContextId& client, uint64_t number, WireStatus s,
           Bytes more) {
  std::byte buf[64 + fabric::kMaxRawKey];
  Writer out(buf);
  out.put(static_cast<uint8_t>(s));
  out.bytes(more);
  server.reply(client, number, out.done());
}

WireStatus why_gone(HomeCore& home, const Segment* s) {
  if (home.ending.load()) return WireStatus::kEnding;
  if (s == nullptr || !s->removed) return WireStatus::kGone;
  // An importer that asks while the registry is locked asks again.
  auto info = home.parts.node.segments().find(s->id, 2 * kMilli);
  const bool there = info ? info->attachments > 0 : info.status() == Status::kReconfig;
  return there ? WireStatus::kRemoved : WireStatus::kGone;
}

uint64_t low_for(HomeCore& home, const Segment& s, const Sharer& h) {
  if (!access::extensible(s.flags)) return s.brk.bytes;
  Guard g(home.mu);
  return low_of(s, h);
}

WireStatus check(HomeCore& home, Segment* s, const ContextId& client, uint32_t instance,
                 uint32_t right, Sharer** sharer) {
  if (s == nullptr || !s->exported.any || s->removed) return why_gone(home, s);
  Sharer* h = s->sharers.find(client, instance);
  if (h == nullptr || !h->ever.presented) return WireStatus::kNotPresented;
  if (h->token == 0) return WireStatus::kToken;
  if ((h->granted.rights & right) != right) return WireStatus::kRights;
  *sharer = h;
  return WireStatus::kOk;
}

WireStatus check_write_through(HomeCore& home, Segment* segment, const fabric::ClientInfo& client,
                               uint32_t instance, uint64_t offset, size_t len, uint32_t rights) {
  Sharer* h = nullptr;
  const WireStatus status = check(home, segment, client.id, instance, rights, &h);
  if (status != WireStatus::kOk) return status;
  if (!h->write_through) return WireStatus::kToken;
  const Segment& s = *segment;
  if (len == 0 || offset >= s.brk.bytes || len > s.brk.bytes - offset) return WireStatus::kRange;
  const uint64_t first = offset / kPageSize, last = (offset + len - 1) / kPageSize;
  if (!h->covers(first, last - first + 1)) return WireStatus::kRights;
  for (uint64_t page = first; page <= last; ++page) {
    if (s.flux.pages.contains(static_cast<uint32_t>(page))) return WireStatus::kInFlux;
  }
  return WireStatus::kOk;
}

}  // namespace cmi::memory

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
  if (home.ending) return WireStatus::kEnding;
  if (s == nullptr || !s->removed) return WireStatus::kGone;
  // Who asks while the registry is locked asks again.
  auto info = home.parts.node.find(s->id, 2 * kMilli);
  const bool there = info ? info->attachments > 0 : info.status() == Status::kReconfig;
  return there ? WireStatus::kRemoved : WireStatus::kGone;
}

// Whether this import may do this. kOk sets both.
WireStatus check(HomeCore& home, const ContextId& client, uint64_t uid, uint32_t instance,
                 uint32_t right, Segment** segment, Sharer** sharer) {
  Segment* s = home.segments.find_uid(uid);
  if (s == nullptr || !s->exported.any || s->removed) return why_gone(home, s);
  Sharer* h = s->sharers.find(client, instance);
  if (h == nullptr || !h->presented) return WireStatus::kNotPresented;
  if (h->token == 0) return WireStatus::kToken;
  if ((h->rights & right) != right) return WireStatus::kRights;
  *segment = s;
  *sharer = h;
  return WireStatus::kOk;
}

WireStatus check_write_through(HomeCore& home, const fabric::ClientInfo& client, uint64_t uid,
                               uint32_t instance, uint64_t offset, size_t len, uint32_t rights,
                               Segment** segment) {
  Sharer* h = nullptr;
  const WireStatus status = check(home, client.id, uid, instance, rights, segment, &h);
  if (status != WireStatus::kOk) return status;
  if (!h->write_through) return WireStatus::kToken;
  const Segment& s = **segment;
  if (len == 0 || offset >= s.brk.bytes || len > s.brk.bytes - offset) return WireStatus::kRange;
  const uint64_t first = offset / kPageSize, last = (offset + len - 1) / kPageSize;
  if (!h->covers(first, last - first + 1)) return WireStatus::kRights;
  for (uint64_t page = first; page <= last; ++page) {
    if (s.flux.pages.contains(static_cast<uint32_t>(page))) return WireStatus::kInFlux;
  }
  return WireStatus::kOk;
}

}  // namespace cmi::memory

// An importer opens a segment: it becomes a sharer, without a token yet.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/quiescing.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/sharing.hpp"

namespace cmi::memory {

namespace {
WireStatus open(HomeCore& home, Segment& s, const fabric::ClientInfo& client, uint32_t instance,
                bool write_through, Writer& out, Finished* done) CMI_EXCLUDES(home.mu) {
  Guard g(home.mu);
  Sharer* h = s.sharers.find(client.id, instance);
  if (h == nullptr ? !may_import(s, write_through) : h->write_through != write_through) {
    return WireStatus::kImportedOtherwise;
  }
  if (h == nullptr) h = add_sharer(home, s, client, instance, write_through);
  if (h == nullptr) return WireStatus::kNoMem;
  if (s.quiesce.on && h->quiesce.notified != s.quiesce.round) {
    const RoundPtr p = begin_round();
    notify_quiesce(home, s, *h, p);
    home.rounds.settle(p, done);
  }
  OpenReply answer;
  answer.size = s.size;
  answer.flags = s.flags;
  answer.lifeline_port = home.parts.watch.port();
  // A lifeline is for a process that has an import here.
  answer.lifeline_secret = home.parts.watch.expect(client.id);
  encode(answer, out);
  if (access::extensible(s.flags)) encode(BreakPart{s.brk}, out);
  // The notification may come later than the importer's first seg_at.
  encode(QuiescePart{s.quiesce.round, static_cast<uint8_t>(s.quiesce.on)}, out);
  encode(FeaturesPart{FeaturesPart::kSwapFetch | FeaturesPart::kAcquireFetch}, out);
  return WireStatus::kOk;
}
}  // namespace

void on_open(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
             const OpenRequest& m, bool write_through) {
  std::byte buf[kWireSize<OpenReply> + kWireSize<BreakPart> + kWireSize<QuiescePart> +
                kWireSize<FeaturesPart>];
  Writer out(buf);
  WireStatus status = WireStatus::kOk;
  Finished done;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    if (!s || !s->exported.any || s->removed) {
      status = why_gone(home, s.get());
    } else {
      status = open(home, *s, client, m.instance, write_through, out, &done);
    }
  }
  run(done);
  reply(home.parts.server, client.id, number, status, out.done());
}

}  // namespace cmi::memory
